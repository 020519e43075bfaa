/* Records of reads of pool files. The numbers of events do not depend on them. */
#include <sys/mman.h>

#include "recorder/loads.h"
#include "recorder/process.h"
#include "recorder/regions.h"
#include "registers.h"
#include "recorder/sequence.h"
#include "recorder/stacks.h"
#include "recorder/trace.h"

#define SEEN_SLOTS 2048u
/* A thread's first reads are all recorded, then every 17th burst of them, later every 65th. A gap ends early at a read of
 * a site of which few were recorded. */
#define FIRST_READS (1u << 17)
#define BURST 4096u
#define GAP (BURST << 4)
#define SITES_MET (1u << 16)
#define MET_ENOUGH 64 /* reads of a site that were recorded; fewer, and one ends a gap */
#define GAPS_ENDED 4

/* What a load site last read from one call stack, as the trace has it. */
struct seen {
    uint32_t site, stack;
    uint32_t size;
    uint32_t file;
    uint64_t offset;
};

/* A thread's place in the chunks of loads, and the loads that need no second record. */
struct load_writer {
    struct writer writer;
    struct seen seen[SEEN_SLOTS];
};

/* How many more reads this thread leaves out; and by a hash of its site how many were recorded, up to MET_ENOUGH. Threads share
 * the counts, and may lose some. */
HIDDEN __thread uint32_t cc_load_left_out TLS_MODEL;
HIDDEN uint8_t cc_load_met[SITES_MET];

/* Which thread of events this is, as soon as it is one and has something to record or ends: the last read before its first event
 * may be the last of all. */
static void name_thread(struct writer *writer)
{
    struct thread *thread = &cc_thread;
    if (LIKELY(thread->id == thread->load_known))
        return;
    struct cc_event event = {.seq = cc_load_seq(),
                             .kind = CC_THREAD_START,
                             .aux = thread->id,
                             .payload = cc_pid,
                             .instance_delta = CC_NO_INSTANCE};
    thread->load_known = thread->id;
    cc_put(writer, &event);
}

/* The thread ended and its writers go, or the process was forked and nothing of its parent's may be used. */
void cc_loads_forget(bool ends)
{
    struct thread *thread = &cc_thread;
    for (uint32_t level = ends ? thread->level : 0; level < LEVELS; level++) {
        struct load_writer *loads = thread->loads[level];
        if (!loads)
            continue;
        if (ends && loads->writer.chunk)
            name_thread(&loads->writer);
        thread->loads[level] = NULL;
        cc_writer_forget(&loads->writer, true);
        raw3(SYS_munmap, (long)loads, sizeof *loads, 0);
    }
    if (!ends)
        thread->load_id = thread->load_known = 0;
    thread->load_count = thread->load_gaps = thread->load_gap = 0;
    cc_load_left_out = 0;
}

static struct load_writer *writer_slow(uint32_t level)
{
    struct thread *thread = &cc_thread;
    if (!cc_recording || level >= LEVELS)
        return NULL;
    if (UNLIKELY(!thread->load_id)) {
        thread->load_id = __atomic_fetch_add(&cc_header->next_load_thread, 1, __ATOMIC_RELAXED);
        cc_thread_begins();
    }
    if (!thread->loads[level]) {
        long mapped =
            raw6(SYS_mmap, 0, sizeof(struct load_writer), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (raw_failed(mapped)) {
            cc_stop(CC_STATUS_DISK_FULL);
            return NULL;
        }
        thread->loads[level] = (struct load_writer *)mapped;
        cc_writer_start(&thread->loads[level]->writer, CC_CHUNK_LOADS, thread->load_id);
    }
    struct load_writer *loads = thread->loads[level];
    return loads->writer.chunk || cc_new_chunk(&loads->writer) ? loads : NULL;
}

/* Like cc_enter, at the same level of interruption. A load is what an event's covered call may be preceded by, so
 * that stays. */
static inline struct load_writer *enter(uint32_t *level)
{
    struct thread *thread = &cc_thread;
    if (UNLIKELY(*cc_alive == 0))
        cc_child();
    *level = thread->level++;
    atomic_signal_fence(memory_order_seq_cst);
    if (LIKELY(*level < LEVELS)) {
        struct load_writer *loads = thread->loads[*level];
        if (LIKELY(loads && loads->writer.chunk))
            return loads;
    }
    return writer_slow(*level);
}

/* Whether this site read the same place, from the same calls, the last time that it was recorded in this thread. */
static bool seen_before(struct load_writer *loads, uint32_t level, const struct cc_event *event)
{
    struct thread *thread = &cc_thread;
    if (UNLIKELY(level)) {
        thread->load_disturbed = 1;
        return false;
    }
    if (UNLIKELY(thread->load_disturbed)) {
        thread->load_disturbed = 0;
        raw_fill(loads->seen, 0, sizeof loads->seen);
    }
    uint32_t hash = (event->site * 0x9e3779b1u) ^ (event->stack * 0x85ebca6bu);
    struct seen *slot = &loads->seen[(hash >> 16) % SEEN_SLOTS];
    if (slot->offset == event->offset && slot->site == event->site && slot->stack == event->stack &&
        slot->size == event->size && slot->file == event->file)
        return true;
    *slot = (struct seen){event->site, event->stack, event->size, event->file, event->offset};
    return false;
}

static inline uint8_t *met(where at)
{
    return &cc_load_met[(uint16_t)((uint32_t)((uintptr_t)at.unit >> 3) + at.index)];
}

/* Whether a read is left out. */
static bool left_out(where at)
{
    if (LIKELY(!cc_load_left_out))
        return false;
    if (*met(at) < MET_ENOUGH) {
        cc_load_left_out = 0;
        return false;
    }
    cc_load_left_out--;
    return true;
}

static void gap(struct load_writer *loads, uint64_t seq, uint32_t begins)
{
    struct cc_event event = {.kind = CC_LOAD_GAP, .aux = begins, .instance_delta = CC_NO_INSTANCE};
    event.seq = seq ? seq : cc_load_seq();
    name_thread(&loads->writer);
    cc_put(&loads->writer, &event);
}

/* Before a read is recorded: the gap before it ends, or the burst is over and the next gap begins after it. */
static void sample(struct load_writer *loads, uint32_t level, where at, uint64_t seq)
{
    struct thread *thread = &cc_thread;
    uint8_t *met_before = met(at);
    if (UNLIKELY(level)) /* of a signal handler, in the midst of another read or event */
        return;
    if (UNLIKELY(thread->load_gap)) {
        thread->load_gap = 0;
        gap(loads, seq, 0);
        *met_before = *met_before < MET_ENOUGH - MET_ENOUGH / GAPS_ENDED ? *met_before + MET_ENOUGH / GAPS_ENDED : MET_ENOUGH;
    }
    if (*met_before < MET_ENOUGH)
        ++*met_before;
    thread->load_count++;
}

/* After a read was recorded, or found to be recorded already. */
static void sampled(struct load_writer *loads, uint32_t level, uint64_t seq)
{
    struct thread *thread = &cc_thread;
    if (level || LIKELY(thread->load_count < (thread->load_gaps ? BURST : FIRST_READS)))
        return;
    thread->load_count = 0;
    thread->load_gaps++;
    thread->load_gap = 1;
    cc_load_left_out = GAP << (thread->load_gaps < 12 ? thread->load_gaps / 6 : 2);
    gap(loads, seq, 1);
    raw_fill(loads->seen, 0, sizeof loads->seen);
}

static void put(struct writer *writer, struct cc_event *event, uint64_t seq)
{
    name_thread(writer);
    event->seq = seq ? seq : cc_load_seq();
    cc_put(writer, event);
}

/* How many of `size` bytes at `source` one record can hold: they are in the region found last. */
static uint64_t part_in_region(const struct writer *writer, uintptr_t source, uint64_t size)
{
    uint64_t part = writer->last.end - source < size ? writer->last.end - source : size;
    return part > LONGEST_UPDATE ? LONGEST_UPDATE : part;
}

static void load(struct load_writer *loads, uint32_t level, where at, uint64_t seq, uintptr_t source, uint64_t size,
                 uint64_t instance, uint32_t flags)
{
    struct writer *writer = &loads->writer;
    struct cc_event event = {.kind = CC_LOAD, .flags = (uint8_t)flags};
    bool located = false;
    for (uint64_t part; size; source += part, size -= part) {
        uintptr_t next = 0;
        if (!cc_region(writer, source, &next)) {
            if (!next || next - source >= size)
                return;
            part = next - source;
            continue;
        }
        part = part_in_region(writer, source, size);
        if (!located) {
            event.site = cc_load_site(writer, at.unit, at.index);
            event.stack = cc_stack(writer, at.depth);
            located = true;
        }
        event.file = writer->last.file;
        event.offset = writer->last.offset + (source - writer->last.start);
        event.size = (uint32_t)part;
        uint64_t delta = source - instance;
        event.instance_delta = instance && delta < CC_NO_INSTANCE ? (uint32_t)delta : CC_NO_INSTANCE;
        if (!seen_before(loads, level, &event))
            put(writer, &event, seq);
        else
            name_thread(writer);
    }
}

/* `seq`: that of the event that the load belongs to, or 0. */
void cc_load_at(where at, uint64_t seq, const void *source, uint64_t size, uint64_t instance, uint32_t flags)
{
    if (left_out(at))
        return;
    uint32_t level;
    struct load_writer *loads = enter(&level);
    if (LIKELY(loads != NULL)) {
        sample(loads, level, at, seq);
        load(loads, level, at, seq, (uintptr_t)source, size, instance, flags);
        sampled(loads, level, seq);
    }
    cc_leave();
}

void cc_load(const void *source, uint64_t size, uint64_t instance, struct cc_unit *unit, uint32_t index, uint32_t depth,
             uint32_t flags)
{
    if (LIKELY(cc_recording && cc_loads)) {
        cc_load_at((where){unit, index, depth}, 0, source, size, instance, flags);
        if (flags & CC_STORE_BULK) {
            cc_thread.load_covered = source;
            cc_thread.load_covered_bytes = size;
        }
    }
}

HIDDEN __attribute__((used)) void cc_access(const struct cc_access *access, struct cc_unit *unit);
void cc_access(const struct cc_access *access, struct cc_unit *unit)
{
    if (UNLIKELY(!cc_recording))
        return;
    uint32_t depth = cc_shadow.depth - (uint32_t)(access->packed & 1);
    if (depth > CC_STACK_MAX - 1)
        depth = CC_STACK_MAX - 1;
    where at = {unit, (uint32_t)access->site, depth};
    uint8_t flags = (uint8_t)(access->packed >> 1);
    if (flags & CC_ACCESS_WRITES)
        return;
    uint64_t instance = access->delta == UINT64_MAX ? 0 : access->address - access->delta;
    cc_load_at(at, 0, (const void *)access->address, access->packed >> 9, instance, flags);
}

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
__asm__(".text\n.globl cc_access_entry\n.type cc_access_entry,@function\n"
        "cc_access_entry:\n"
        "push %rax\n"
        "mov 48(%rsp), %rax\n"
        "sub cc_load_window_start(%rip), %rax\n"
        "cmp cc_load_window_bytes(%rip), %rax\n"
        "pop %rax\n"
        "jb 2f\n"
        "3: lea 8(%rsp), %rsp\n"
        "ret\n"
        "2: push %rax\n"
        "push %rcx\n"
        "push %rdx\n"
        "mov cc_load_left_out@gottpoff(%rip), %rdx\n"
        "mov %fs:(%rdx), %eax\n"
        "sub $1, %eax\n"
        "jb 4f\n" /* nothing is left out */
        "mov 24(%rsp), %rcx\n"
        "shr $3, %rcx\n"
        "add 56(%rsp), %ecx\n"
        "movzwl %cx, %ecx\n"
        "push %rdi\n"
        "lea cc_load_met(%rip), %rdi\n"
        "cmpb $" TEXT(MET_ENOUGH) ", (%rdi,%rcx)\n"
        "pop %rdi\n"
        "jb 4f\n"
        "mov %eax, %fs:(%rdx)\n"
        "pop %rdx\n"
        "pop %rcx\n"
        "pop %rax\n"
        "jmp 3b\n"
        "4: pop %rdx\n"
        "pop %rcx\n"
        "pop %rax\n"
        PASS_ACCESS_TO(cc_access)
        ".size cc_access_entry, .-cc_access_entry\n");

void cc_load_string(const void *source, uint64_t most, struct cc_unit *unit, uint32_t index, uint32_t depth)
{
    if (!cc_recording || !cc_loads)
        return;
    const char *text = source;
    uint64_t size = 0;
    while (size < most && text[size++])
        continue;
    cc_load_at((where){unit, index, depth}, 0, source, size, 0, CC_STORE_BULK | CC_STORE_LIBRARY);
}

/* The source of a modelled copy, unless it is the call that the compiler made of an intrinsic with a hook. */
void cc_copied_from(where at, const void *source, uint64_t size)
{
    struct thread *thread = &cc_thread;
    if (LIKELY(!cc_loads))
        return;
    bool covered = !at.unit && thread->load_covered == source && thread->load_covered_bytes == size;
    thread->load_covered = NULL;
    if (!covered && size && (uintptr_t)source - cc_load_window_start < cc_load_window_bytes)
        cc_load_at(at, 0, source, size, 0, CC_STORE_BULK | CC_STORE_LIBRARY);
}
