/* Where a call was made: the chain of its callers, from the stack of its thread. Frames are left as .eh_frame describes them
 * (unwind.c); of code without it, by the frame pointer. What is known of an address is kept, so that a frame costs a few
 * nanoseconds after its first time. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define DEEPEST 256u        /* frames; of deeper stacks the outermost are missing */
#define KNOWN 2048u         /* addresses of a process that are known */
#define LARGEST (1u << 20)  /* bytes of a frame that a frame pointer may span */
#define LONGEST_CALL 7u
#define NO_MODULE UINT32_MAX
#define IN_CODE ((uint64_t)1 << 32) /* of a pair of `sites`: its number is of a function of a script, not of a module */

struct range {
    uint64_t start, end, offset;
    uint64_t base;          /* where the module's file begins, 0 if it is not mapped */
    struct frame_entries frames; /* once `prepared` */
    uint32_t module;
    bool prepared;
};
struct known {
    uint64_t address;
    uint32_t site, module;
    bool called;            /* behind a call */
    bool described;         /* `rule` is set */
    struct frame_rule rule;
};
struct code {
    struct range *ranges;
    size_t count;
    struct interpreter *interpreter; /* NULL if it has none that is known */
    uint32_t interpreter_module, program_module, java_module; /* java_module: our agent */
    struct known known[KNOWN];
};

static struct interpreter *(*const interpreters[])(struct tracee *, uint64_t, const char *) = {python_of, shell_of, perl_of, php_of,
                                                                                   ruby_of};
static struct table sites, stacks; /* by (module, offset); by (parent, site) */
static char **modules;
static uint32_t module_count;

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
    char name[64], line[PATH_ROOM + 128], latest[PATH_ROOM] = "", program[PATH_ROOM];
    snprintf(name, sizeof name, "/proc/%d/exe", thread->tid);
    ssize_t length = readlink(name, program, sizeof program - 1);
    program[length > 0 ? length : 0] = '\0';
    uint64_t base = 0, end = 0;
    snprintf(name, sizeof name, "/proc/%d/maps", thread->tid);
    FILE *maps = fopen(name, "re");
    if (!code)
        die("no memory");
    while (maps && fgets(line, sizeof line, maps)) {
        struct range range = {0};
        char access[8];
        int path = 0;
        if (sscanf(line, "%lx-%lx %7s %lx %*s %*s %n", &range.start, &range.end, access, &range.offset, &path) != 4 ||
            line[path] != '/')
            continue;
        line[strcspn(line, "\n")] = '\0';
        /* A linker may put several segments into the first page of a file: what continues a mapping begins no module. */
        if ((range.offset == 0 && range.start != end) || strcmp(latest, line + path) != 0) {
            base = range.offset == 0 ? range.start : 0;
            snprintf(latest, sizeof latest, "%s", line + path);
        }
        end = range.end;
        if (access[2] != 'x')
            continue;
        range.base = base;
        range.module = module_of(thread, line + path);
        if (strcmp(line + path, program) == 0)
            code->program_module = range.module;
        if (is_java_agent(line + path))
            code->java_module = range.module;
        for (size_t i = 0; i < sizeof interpreters / sizeof *interpreters && !code->interpreter; i++)
            if ((code->interpreter = interpreters[i](thread, base, line + path)))
                code->interpreter_module = range.module;
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
    struct code *code = process->code;
    for (size_t i = 0; code && i < code->count; i++)
        free(code->ranges[i].frames.built);
    if (code)
        free(code->ranges);
    if (code)
        free(code->interpreter);
    free(code);
    process->code = NULL;
}

static struct range *range_of(struct code *code, uint64_t address)
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

/* Code that no file holds (compiled at run time) is one site: where it is differs from run to run. */
static uint32_t site_of(struct tracee *thread, const struct range *range, uint64_t address, uint64_t function)
{
    uint64_t offset = range ? range->offset + (address - range->start) : 0;
    struct pair *pair = pair_in(&sites, range ? range->module : NO_MODULE, offset);
    if (!pair->id) {
        struct cc_event event = {.kind = CC_SITE_DEF, .site = pair->id = trace_number(&trace_header()->next_site), .offset = offset};
        event.aux = range ? range->module : 0;
        event.payload = range && function ? range->offset + (function - range->start) : 0;
        trace_event(thread, event);
    }
    return pair->id;
}

/* What is known of an address of code. `exact`: the instruction there is next; else the one before it was a call, perhaps the
 * last of its function. */
static const struct known *known_of(struct tracee *thread, struct code *code, uint64_t address, bool exact)
{
    struct known *known = &code->known[(size_t)(address * 0x9e3779b97f4a7c15u >> 53) % KNOWN];
    if (known->address == address && !exact)
        return known;
    struct range *range = range_of(code, address);
    if (range && !range->prepared) {
        unwind_prepare(thread, range->base, &range->frames);
        range->prepared = true;
    }
    *known = (struct known){.address = exact ? 0 : address, .called = behind_call(thread, address)};
    known->module = range ? range->module : 0;
    known->described = range && unwind_rule(thread, &range->frames, exact ? address : address - 1, &known->rule);
    known->site = site_of(thread, range, address, known->described ? known->rule.start : 0);
    return known;
}

static bool word_at(struct tracee *thread, uint64_t address, uint64_t *word)
{
    return address % sizeof *word == 0 && memory_read(thread, address, word, sizeof *word) == sizeof *word;
}

/* The registers of the caller by the rule of a frame; false at the outermost frame, and where the stack makes no sense. */
static bool leave_described(struct tracee *thread, const struct frame_rule *rule, uint64_t *registers)
{
    uint64_t former[KEPT_REGISTERS], end = registers[rule->base] + (uint64_t)(int64_t)rule->offset;
    memcpy(former, registers, sizeof former);
    if ((rule->loaded && !word_at(thread, end, &end)) || end <= former[KEPT_RSP])
        return false;
    if (rule->kept[KEPT_RIP].how == FRAME_SAME)
        return false;
    for (unsigned i = 0; i < KEPT_REGISTERS; i++) {
        const struct frame_place *kept = &rule->kept[i];
        uint64_t place = kept->how == FRAME_STORED ? end : former[kept->base];
        if (kept->how == FRAME_SAME)
            continue;
        if (kept->how == FRAME_LOST)
            registers[i] = 0;
        else if (!word_at(thread, place + (uint64_t)(int64_t)kept->offset, &registers[i]))
            return false;
    }
    if (rule->kept[KEPT_RSP].how == FRAME_SAME)
        registers[KEPT_RSP] = end;
    return registers[KEPT_RIP] != 0;
}

/* The same by the frame pointer. A function that calls nothing may have no frame (`innermost`): its return address is on top. */
static bool leave_by_pointer(struct tracee *thread, struct code *code, bool innermost, uint64_t *registers)
{
    uint64_t top = registers[KEPT_RSP], frame = registers[KEPT_RBP], caller, outer;
    if (innermost && word_at(thread, top, &caller) && range_of(code, caller) && behind_call(thread, caller)) {
        registers[KEPT_RIP] = caller;
        registers[KEPT_RSP] = top + sizeof caller;
        return true;
    }
    if (frame < top || frame - top > LARGEST || !word_at(thread, frame, &outer) ||
        !word_at(thread, frame + sizeof outer, &caller) || !behind_call(thread, caller))
        return false;
    registers[KEPT_RIP] = caller;
    registers[KEPT_RBP] = outer;
    registers[KEPT_RSP] = frame + 2 * sizeof outer;
    return true;
}

/* A thread that holds our other recorder shows where instrumented code made the call. */
static bool is_shown(struct tracee *thread)
{
    struct cc_called called;
    if (!thread->called || memory_read(thread, thread->called, &called, sizeof called) != sizeof called ||
        !(called.site | called.stack))
        return false;
    thread->site = called.site;
    thread->stack = called.stack;
    return true;
}

/* Puts functions of a script behind some native frames; the new depth. */
static uint32_t with_script(struct tracee *thread, const struct script_frame *inner, size_t many, uint32_t *frames, uint32_t depth)
{
    for (size_t i = 0; i < many && depth < DEEPEST; i++) {
        struct pair *pair = pair_in(&sites, IN_CODE | inner[i].code, inner[i].offset);
        if (!pair->id) {
            struct cc_event event = {.kind = CC_SITE_DEF, .flags = CC_SITE_IN_CODE, .aux = inner[i].code, .offset = inner[i].offset};
            event.site = pair->id = trace_number(&trace_header()->next_site);
            trace_event(thread, event);
        }
        frames[depth++] = pair->id;
    }
    return depth;
}

/* Of a module: it is the C library or libuv, through which Node makes system calls. */
static bool makes_calls(uint32_t module)
{
    static const char *const names[] = {"libc.so", "libc-", "libc.musl", "ld-musl", "libpthread", "libuv"};
    const char *path = module ? modules[module - 1] : "", *name = strrchr(path, '/');
    for (size_t i = 0; name && i < sizeof names / sizeof *names; i++)
        if (strncmp(name + 1, names[i], strlen(names[i])) == 0)
            return true;
    return false;
}

static uint32_t stack_within(struct tracee *thread, uint32_t outer, uint32_t site)
{
    struct pair *pair = pair_in(&stacks, outer, site);
    if (!pair->id) {
        pair->id = trace_number(&trace_header()->next_stack);
        trace_event(thread, (struct cc_event){.kind = CC_STACK_DEF, .stack = pair->id, .aux = outer, .site = site});
    }
    return pair->id;
}

void stack_locate(struct tracee *thread)
{
    static struct script_frame inner[STACK_DEEPEST];
    if (thread->located)
        return;
    thread->located = is_shown(thread);
    if (thread->located)
        return;
    struct code *code = code_of(thread);
    uint64_t registers[KEPT_REGISTERS];
    uint32_t frames[DEEPEST], depth = 0;
    memory_ahead(thread);
    struct interpreter *interpreter = code->interpreter;
    size_t many = interpreter ? interpreter->frames(thread, interpreter, inner, STACK_DEEPEST) : 0;
    bool reported = !many && scripts_report(thread->process);
    memcpy(registers, thread->registers, sizeof registers);
    for (bool exact = false, more = true; more && depth < DEEPEST;) {
        const struct known *here = known_of(thread, code, registers[KEPT_RIP], exact);
        if (many && depth && here->module == code->interpreter_module)
            break; /* what the interpreter is called by, its own frames show */
        if (depth && here->module && here->module == code->java_module &&
            (many = java_frames(thread, registers[KEPT_RBP], inner, STACK_DEEPEST)))
            break;
        if (reported && depth && here->module == code->program_module) {
            reported = false;
            many = script_frames(thread, here->described ? here->rule.start : here->address, inner, STACK_DEEPEST);
            if (many)
                break;
        }
        frames[depth++] = here->site;
        reported = reported && makes_calls(here->module); /* else another library than Node's makes this one */
        exact = here->described && here->rule.is_signal;
        more = here->described ? leave_described(thread, &here->rule, registers)
                               : leave_by_pointer(thread, code, depth == 1, registers);
    }
    memory_ahead_end();
    depth = with_script(thread, inner, many, frames, depth);
    uint32_t stack = thread->process->launched;
    while (depth > 1)
        stack = stack_within(thread, stack, frames[--depth]);
    thread->site = frames[0];
    thread->stack = stack;
    thread->scripted = many > 0;
    thread->located = true;
}

/* What a script runs (a shell's mv) is called by the script: its stacks continue with that of the call which executes it. What
 * executes it in between, as env does, is left out. */
static enum then launches(struct tracee *thread)
{
    struct process *process = thread->process;
    if ((uint32_t)thread->tid == trace_header()->main_pid && !process->executed)
        return SKIP;        /* the recorder's own, which becomes the command */
    stack_locate(thread);
    process->launching = thread->scripted ? stack_within(thread, thread->stack, thread->site) : process->launched;
    return SKIP;
}

void stack_launched(struct process *process)
{
    char link[64], folder[PATH_ROOM];
    snprintf(link, sizeof link, "/proc/%d/cwd", process->pid);
    ssize_t size = readlink(link, folder, sizeof folder - 1);
    folder[size > 0 ? size : 0] = '\0';
    free(process->began_in);
    process->began_in = size > 0 ? strdup(folder) : NULL;
    process->launched = process->launching;
    process->executed = true;
}

void stack_born(struct tracee *parent, struct process *child)
{
    if (parent->process->java) { /* the child's stack is one of libc's, which shows no method */
        parent->located = false;
        stack_locate(parent);
        if (parent->scripted)
            child->launched = stack_within(parent, parent->stack, parent->site);
        return;
    }
    struct script_frame inner[SCRIPT_DEEPEST];
    uint32_t frames[SCRIPT_DEEPEST], depth = with_script(parent, inner, script_starts(parent, inner), frames, 0);
    while (depth > 0)
        child->launched = stack_within(parent, child->launched, frames[--depth]);
}

const struct handler program_runs = {launches, NULL, true};
