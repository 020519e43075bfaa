/* Where a call was made. The top of the stack is searched for return addresses: words that point into executable code of a
 * file, just behind a call instruction. What an earlier call left there may be among them; the same place of a program gives
 * the same list nearly always, and that is what grouping needs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "syscalls/recorder.h"

#define TOP 2048u    /* bytes of the stack that are searched */
#define DEEPEST 24u
#define KNOWN 4096u  /* addresses of a process whose site is known */
#define LONGEST_CALL 7u

struct range {
    uint64_t start, end, offset;
    uint32_t module;
};
struct code {
    struct range *ranges;
    size_t count;
    struct {
        uint64_t address;
        uint32_t site;
    } known[KNOWN];
};
struct pair {       /* (module, offset) of a site; (parent, site) of a stack */
    uint64_t first, second;
    uint32_t id;
};
struct table {
    struct pair *slots;
    size_t room, used;
};

static struct table sites, stacks;
static char **modules;
static uint32_t module_count;

static struct pair *slot(struct table *table, uint64_t first, uint64_t second)
{
    size_t at = (size_t)((first * 0x9e3779b97f4a7c15u ^ second * 0xc2b2ae3d27d4eb4fu) >> 20) & (table->room - 1);
    while (table->slots[at].id && (table->slots[at].first != first || table->slots[at].second != second))
        at = (at + 1) & (table->room - 1);
    return &table->slots[at];
}

static struct pair *found(struct table *table, uint64_t first, uint64_t second)
{
    if (2 * table->used >= table->room) {
        struct table wider = {.room = table->room ? 2 * table->room : 1024, .used = table->used};
        wider.slots = calloc(wider.room, sizeof *wider.slots);
        if (!wider.slots)
            die("no memory");
        for (size_t i = 0; i < table->room; i++)
            if (table->slots[i].id)
                *slot(&wider, table->slots[i].first, table->slots[i].second) = table->slots[i];
        free(table->slots);
        *table = wider;
    }
    struct pair *pair = slot(table, first, second);
    if (!pair->id) {
        table->used++;
        pair->first = first;
        pair->second = second;
    }
    return pair;
}

static uint32_t module_of(struct tracee *thread, const char *path)
{
    for (uint32_t i = 0; i < module_count; i++)
        if (strcmp(modules[i], path) == 0)
            return i + 1;
    char **wider = realloc(modules, (module_count + 1) * sizeof *wider);
    char *kept = strdup(path);
    if (!wider || !kept)
        die("no memory");
    modules = wider;
    modules[module_count++] = kept;
    trace_bytes(thread, (struct cc_event){.kind = CC_MODULE_DEF, .aux = module_count}, NULL, 0, path, strlen(path));
    return module_count;
}

static struct code *code_of(struct tracee *thread)
{
    struct process *process = thread->process;
    if (process->code)
        return process->code;
    struct code *code = process->code = calloc(1, sizeof *code);
    char name[64], line[PATH_ROOM + 128];
    snprintf(name, sizeof name, "/proc/%d/maps", thread->tid);
    FILE *maps = fopen(name, "re");
    if (!code)
        die("no memory");
    while (maps && fgets(line, sizeof line, maps)) {
        struct range range;
        char access[8];
        int path = 0;
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %n", &range.start, &range.end, access, &range.offset, &path) != 4 ||
            access[2] != 'x' || line[path] != '/')
            continue;
        line[strcspn(line, "\n")] = '\0';
        range.module = module_of(thread, line + path);
        struct range *wider = realloc(code->ranges, (code->count + 1) * sizeof *wider);
        if (!wider)
            die("no memory");
        code->ranges = wider;
        code->ranges[code->count++] = range;
    }
    if (maps)
        fclose(maps);
    return code;
}

void stack_forget(struct process *process)
{
    if (process->code)
        free(process->code->ranges);
    free(process->code);
    process->code = NULL;
}

static const struct range *range_of(const struct code *code, uint64_t address)
{
    for (size_t i = 0; i < code->count; i++)
        if (address - code->ranges[i].start < code->ranges[i].end - code->ranges[i].start)
            return &code->ranges[i];
    return NULL;
}

/* Whether the bytes before an address are a call: e8 and 4 bytes, or ff /2 with its operand. */
static bool behind_call(struct tracee *thread, uint64_t address)
{
    unsigned char bytes[LONGEST_CALL];
    if (memory_read(thread, address - sizeof bytes, bytes, sizeof bytes) != sizeof bytes)
        return false;
    const unsigned char *end = bytes + sizeof bytes;
    if (end[-5] == 0xe8)
        return true;
    for (unsigned length = 2; length <= LONGEST_CALL; length++) {
        if (end[-(int)length] != 0xff || (end[1 - (int)length] >> 3 & 7) != 2)
            continue;
        unsigned mode = end[1 - (int)length] >> 6, rm = end[1 - (int)length] & 7;
        unsigned operand = mode == 1 ? 1 : mode == 2 || (mode == 0 && rm == 5) ? 4 : 0;
        if (length == 2 + operand + (mode != 3 && rm == 4 ? 1 : 0))
            return true;
    }
    return false;
}

static uint32_t site_of(struct tracee *thread, const struct range *range, uint64_t address)
{
    uint64_t offset = range->offset + (address - range->start);
    struct pair *pair = found(&sites, range->module, offset);
    if (!pair->id) {
        pair->id = trace_header()->next_site++;
        trace_event(thread, (struct cc_event){
                                .kind = CC_SITE_DEF, .site = pair->id, .aux = range->module, .offset = offset});
    }
    return pair->id;
}

/* The site of a word of the stack, 0 if it is no return address. */
static uint32_t site_of_word(struct tracee *thread, struct code *code, uint64_t word)
{
    const struct range *range = range_of(code, word);
    if (!range)
        return 0;
    size_t at = (size_t)(word * 0x9e3779b97f4a7c15u >> 52) % KNOWN;
    if (code->known[at].address != word) {
        code->known[at].site = behind_call(thread, word) ? site_of(thread, range, word) : 0;
        code->known[at].address = word;
    }
    return code->known[at].site;
}

void stack_locate(struct tracee *thread)
{
    if (thread->located)
        return;
    struct code *code = code_of(thread);
    const struct range *here = range_of(code, thread->ip);
    uint64_t top[TOP / sizeof(uint64_t)];
    uint32_t callers[DEEPEST], many = 0;
    size_t words = memory_read(thread, thread->sp, top, sizeof top) / sizeof *top;
    thread->site = here ? site_of(thread, here, thread->ip) : 0;
    for (size_t i = 0; i < words && many < DEEPEST; i++) {
        uint32_t site = site_of_word(thread, code, top[i]);
        if (site)
            callers[many++] = site;
    }
    uint32_t stack = 0;
    while (many-- > 0) {
        struct pair *pair = found(&stacks, stack, callers[many]);
        if (!pair->id) {
            pair->id = trace_header()->next_stack++;
            trace_event(thread, (struct cc_event){
                                    .kind = CC_STACK_DEF, .stack = pair->id, .aux = stack, .site = callers[many]});
        }
        stack = pair->id;
    }
    thread->stack = stack;
    thread->located = true;
}
