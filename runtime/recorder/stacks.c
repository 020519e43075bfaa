/* Call stacks, as nodes of one calling-context tree per process, and units, as ranges of site numbers. */
#include <sys/mman.h>

#include "recorder/notes.h"
#include "recorder/kernel_maps.h"
#include "recorder/process.h"
#include "recorder/sequence.h"
#include "recorder/stacks.h"
#include "recorder/trace.h"

#define NODE_SLOTS (1u << 20)  /* open addressing; more contexts than a report can tell apart */
#define NODES_MOST (NODE_SLOTS / 4 * 3)
#define BLOCK_NODES (1u << 14)
#define BLOCKS (NODE_SLOTS / BLOCK_NODES)

_Atomic uint32_t cc_stack_generation;

/* A node of this process; `id` is its name in the trace, which other processes' nodes share. */
struct node {
    uint64_t key;                  /* parent's id << 32 | site */
    uint32_t id;
};

struct tree {
    _Atomic uint32_t *slots;       /* index + 1 of a node, by hash of its key */
    struct node *_Atomic blocks[BLOCKS];
    _Atomic uint32_t nodes;
};

/* Loads have a tree, and numbers of units, of their own: what events are called must not depend on what was read. */
static struct tree of_events, of_loads;

static struct tree *tree_of(const struct writer *writer)
{
    return writer->kind == CC_CHUNK_LOADS ? &of_loads : &of_events;
}

/* The number of a definition, which precedes what uses it. */
static uint64_t definition_seq(const struct writer *writer)
{
    return writer->kind == CC_CHUNK_LOADS ? cc_load_seq() : cc_number(1);
}

static void *reserve(size_t size)
{
    long mapped = raw6(SYS_mmap, 0, (long)size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return raw_failed(mapped) ? NULL : (void *)mapped;
}

bool cc_stacks_start(void)
{
    of_events.slots = reserve(NODE_SLOTS * sizeof *of_events.slots);
    if (cc_loads)
        of_loads.slots = reserve(NODE_SLOTS * sizeof *of_loads.slots);
    return of_events.slots && (of_loads.slots || !cc_loads);
}

void cc_stacks_forget(void)
{
    atomic_fetch_add(&cc_stack_generation, 1);
}

/* The module that holds an address. */
struct module {
    uint64_t address;
    char *path;
    size_t length;
};

static bool is_module(const struct kernel_mapping *mapping, void *data)
{
    struct module *module = data;
    if (module->address < mapping->start || module->address >= mapping->end)
        return false;
    raw_move(module->path, mapping->path, mapping->length);
    module->length = mapping->length;
    return true;
}

/* The absolute path of the module that holds `address`, from the kernel: dladdr takes a lock and gives argv[0]
 * for the program itself. Its length, 0 if there is none. */
static size_t module_of(const void *address, char *path)
{
    struct module module = {.address = (uint64_t)(uintptr_t)address, .path = path};
    cc_each_mapping(is_module, &module);
    return module.length;
}

/* Gives the unit its range of global site ids and records it. Two threads that meet it at once may record
 * two ranges; the first to publish its base wins and the other range stays unused. */
uint32_t cc_unit_meet(struct writer *writer, struct cc_unit *unit, uint64_t seq)
{
    if (unit->hooks_version != CC_HOOKS_VERSION) {
        static const char text[] = "crashcheck: this program was built for another version of the runtime; rebuild it\n";
        cc_note("hooks-version", "a unit was compiled for another hooks version");
        raw3(SYS_write, 2, (long)text, sizeof text - 1);
        cc_stop(CC_STATUS_TOO_MANY);
        return 0;
    }
    bool loads = writer->kind == CC_CHUNK_LOADS;
    uint32_t *next = loads ? &cc_header->next_load_site : &cc_header->next_site;
    uint32_t sites = unit->sites ? unit->sites : 1;
    uint64_t base = __atomic_load_n(next, __ATOMIC_RELAXED);
    do {
        if (base + sites > UINT32_MAX) {
            cc_stop(CC_STATUS_TOO_MANY);
            return 0;
        }
        uint32_t expected = (uint32_t)base;
        if (__atomic_compare_exchange_n(next, &expected, (uint32_t)base + sites, false, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED))
            break;
        base = expected;
    } while (true);
    char path[PATH_ROOM];
    size_t length = module_of(unit, path);
    struct cc_event event = {.seq = seq ? seq : definition_seq(writer),
                             .kind = CC_UNIT_DEF,
                             .aux = (uint32_t)base,
                             .offset = unit->sites,
                             .size = (uint32_t)(sizeof unit->key + length),
                             .instance_delta = CC_NO_INSTANCE};
    if (length)
        event.payload = cc_blob(writer, &unit->key, sizeof unit->key, path, length);
    else
        event.payload = unit->key;
    if (!length || event.payload)
        cc_put(writer, &event);
    uint32_t none = 0;
    if (!__atomic_compare_exchange_n(loads ? &unit->load_base : &unit->site_base, &none, (uint32_t)base, false, __ATOMIC_RELEASE,
                                     __ATOMIC_ACQUIRE))
        return none;
    if (!loads)
        cc_snapshot_unit(unit->key, (uint32_t)base);
    return (uint32_t)base;
}

static uint32_t hash(uint64_t key)
{
    key ^= key >> 33;
    key *= 0xff51afd7ed558ccdull;
    key ^= key >> 29;
    return (uint32_t)key % NODE_SLOTS;
}

static struct node *node_at(struct tree *tree, uint32_t index)
{
    struct node *_Atomic *block = &tree->blocks[index / BLOCK_NODES];
    struct node *start = atomic_load_explicit(block, memory_order_acquire);
    if (!start) {
        struct node *made = reserve(BLOCK_NODES * sizeof *made);
        if (!made)
            return NULL;
        if (atomic_compare_exchange_strong(block, &start, made))
            start = made;
        else
            raw3(SYS_munmap, (long)made, BLOCK_NODES * sizeof *made, 0);
    }
    return start + index % BLOCK_NODES;
}

/* Makes and defines a node; its index + 1, or 0 when there is no room for more. */
static uint32_t make_node(struct writer *writer, uint32_t parent, uint32_t site)
{
    struct tree *tree = tree_of(writer);
    uint32_t index = atomic_fetch_add(&tree->nodes, 1);
    struct node *node = index < NODES_MOST ? node_at(tree, index) : NULL;
    if (!node) {
        atomic_fetch_sub(&tree->nodes, 1);
        return 0;
    }
    node->key = (uint64_t)parent << 32 | site;
    uint32_t *next = tree == &of_loads ? &cc_header->next_load_stack : &cc_header->next_stack;
    node->id = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
    struct cc_event event = {.seq = definition_seq(writer),
                             .kind = CC_STACK_DEF,
                             .stack = node->id,
                             .aux = parent,
                             .site = site,
                             .instance_delta = CC_NO_INSTANCE};
    cc_put(writer, &event);
    return index + 1;
}

/* The node for a call from `site` in `parent`. Lock-free, because a signal handler may need the very node that
 * the interrupted code is making: a node is defined first and published after, and who loses that race keeps
 * an unused definition. When the tree is full, calls count as their caller's. */
static uint32_t child_node(struct writer *writer, uint32_t parent, uint32_t site)
{
    struct tree *tree = tree_of(writer);
    uint64_t key = (uint64_t)parent << 32 | site;
    uint32_t made = 0;
    for (uint32_t at = hash(key);; at = (at + 1) % NODE_SLOTS) {
        uint32_t found = atomic_load_explicit(&tree->slots[at], memory_order_acquire);
        if (!found) {
            if (!made && !(made = make_node(writer, parent, site)))
                return parent;
            if (atomic_compare_exchange_strong(&tree->slots[at], &found, made))
                found = made;
        }
        const struct node *node = node_at(tree, found - 1);
        if (node->key == key)
            return node->id;
    }
}

uint32_t cc_stack_slow(struct writer *writer, const struct cc_frame *frames, uint32_t depth, uint32_t same)
{
    writer->memo_generation = atomic_load_explicit(&cc_stack_generation, memory_order_relaxed);
    uint32_t node = same ? writer->memo_nodes[same - 1] : 0;
    for (uint32_t i = same; i < depth; i++) {
        struct cc_unit *unit = frames[i].unit;
        uint64_t index = frames[i].index;
        uint32_t site = writer->kind == CC_CHUNK_LOADS ? cc_load_site(writer, unit, (uint32_t)index)
                                                       : cc_site(writer, unit, (uint32_t)index);
        node = child_node(writer, node, site);
        writer->memo_frames[i].unit = unit;
        writer->memo_frames[i].index = index;
        writer->memo_nodes[i] = node;
    }
    writer->memo_depth = depth;
    return node;
}
