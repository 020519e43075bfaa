/* Which Perl functions a thread is in: the contexts of perl's interpreter, read from the program's memory while the thread waits in
 * a call. Where its structures are is known of perl 5.24 to 5.40 with threads, as distributions build it. A statement counts
 * only if its operation is the one of statements, a function only if it is one: other builds have no frames. */
#include <stdlib.h>
#include <string.h>

#include "syscalls/recorder.h"

#define SCANNED 64u         /* words of an interpreter in which the current statement is */
#define CONTROL_WORDS 288u  /* of a thread's control block, in which its interpreter is */
#define LONGEST_NAME 256u
#define IN_MEMORY 4096u     /* addresses below are none */

/* Offsets in PERL_SI; PERL_CONTEXT, and of a function in it from 5.30 on, and before; SV; XPVCV; XPVGV; HEK. */
enum { CONTEXT_BYTES = 104, CONTEXT_STATEMENT = 16, CONTEXT_FUNCTION = 72, CONTEXT_FUNCTION_OLD = 64, BODY = 0, FLAGS = 12,
       FUNCTION_NAME = 56, FUNCTION_FLAGS = 92, GLOB_NAME = 32, KEY_LENGTH = 4, KEY = 8 };
enum { IS_FUNCTION = 9, IS_FORMAT = 10, IS_EVAL = 11, CONTEXT_TYPE = 15 }; /* types of contexts */
enum { CODE = 13, TYPE = 0xff, NAMED = 0x8000 };                          /* types and flags of values */

struct statement {          /* the beginning of a COP */
    uint64_t next, sibling, operation, target;
    uint32_t type, line;
    uint64_t package, file;
};
struct stack {              /* the beginning of a PERL_SI: contexts, and the stack outside of it */
    uint64_t values, contexts, outer, inner;
    int32_t last;
};
struct perl {
    struct interpreter interpreter;
    uint64_t current_interpreter, operations[2]; /* operations: of statements, the second in the debugger */
    uint64_t statement;     /* offset of the current one in an interpreter, 0: not known yet; the contexts are 2 words behind it */
};

static bool read_statement(struct tracee *thread, const struct perl *perl, uint64_t address, struct statement *statement)
{
    return address >= IN_MEMORY && memory_read(thread, address, statement, sizeof *statement) == sizeof *statement &&
           (statement->operation == perl->operations[0] || statement->operation == perl->operations[1]);
}

/* Whether there is an interpreter at an address; then its current statement and its stack are read. The operation that is carried
 * out, the second word, may be a statement, too. */
static bool read_interpreter(struct tracee *thread, struct perl *perl, uint64_t address, struct statement *now, struct stack *stack)
{
    uint64_t word[SCANNED];
    if (address < IN_MEMORY || memory_read(thread, address, word, sizeof word) != sizeof word)
        return false;
    for (unsigned at = 2; !perl->statement && at + 2 < SCANNED; at++)
        if (read_statement(thread, perl, word[at], now))
            perl->statement = at;
    return perl->statement && read_statement(thread, perl, word[perl->statement], now) &&
           memory_read(thread, word[perl->statement + 2], stack, sizeof *stack) == sizeof *stack;
}

/* The thread's interpreter: of several threads, each has its own among the values in its control block. */
static bool find_interpreter(struct tracee *thread, struct perl *perl, struct statement *now, struct stack *stack)
{
    uint64_t word[CONTROL_WORDS];
    if (thread->process->threads == 1)
        return read_interpreter(thread, perl, word_of(thread, perl->current_interpreter), now, stack);
    size_t known = memory_read(thread, thread->thread_pointer, word, sizeof word) / sizeof *word;
    for (size_t i = 1; i < known; i++) /* a value is behind its number, which is odd */
        if (word[i - 1] % 2 == 1 && word[i - 1] < UINT32_MAX && word[i] % 8 == 0 &&
            read_interpreter(thread, perl, word[i], now, stack))
            return true;
    return false;
}

/* The name of a function, and whether it is one. */
static bool read_function(struct tracee *thread, uint64_t function, char *name)
{
    uint32_t flags, length;
    uint64_t body = word_of(thread, function + BODY);
    if (memory_read(thread, function + FLAGS, &flags, sizeof flags) != sizeof flags || (flags & TYPE) != CODE || !body ||
        memory_read(thread, body + FUNCTION_FLAGS, &flags, sizeof flags) != sizeof flags)
        return false;
    uint64_t key = word_of(thread, body + FUNCTION_NAME);
    if (!(flags & NAMED))   /* else it has a name alone, and no glob */
        key = key ? word_of(thread, word_of(thread, key + BODY) + GLOB_NAME) : 0;
    if (memory_read(thread, key + KEY_LENGTH, &length, sizeof length) != sizeof length || !length || length >= LONGEST_NAME ||
        memory_read(thread, key + KEY, name, length) != length)
        return false;
    name[length] = '\0';
    return true;
}

static struct script_frame frame_of(struct tracee *thread, const struct statement *statement, const char *name)
{
    static char file[2 * PATH_ROOM];
    struct cc_code head = {.name_bytes = (uint32_t)strlen(name)};
    if (!memory_path(thread, statement->file, file) || !*file)
        return (struct script_frame){0};
    if (strcmp(file, "-e") == 0 || strncmp(file, "(eval ", 6) == 0)
        strcpy(file, "<string>");
    head.file_bytes = (uint32_t)path_absolute(thread, file, strlen(file));
    memcpy(file + head.file_bytes, name, head.name_bytes);
    return frame_at(thread, head, file, statement->line, 0);
}

static size_t frames_of(struct tracee *thread, struct interpreter *interpreter, struct script_frame *frames, size_t most)
{
    struct perl *perl = (struct perl *)interpreter;
    struct statement now, outer;
    struct stack stack;
    unsigned char context[CONTEXT_BYTES];
    char name[LONGEST_NAME];
    size_t depth = 0;
    if (!find_interpreter(thread, perl, &now, &stack))
        return 0;
    for (int32_t at = stack.last; depth + 1 < most;) {
        if (at < 0) {       /* of a stack that was begun inside of a function, as for sort */
            if (!stack.outer || memory_read(thread, stack.outer, &stack, sizeof stack) != sizeof stack)
                break;
            at = stack.last;
            continue;
        }
        uint64_t address, function;
        if (memory_read(thread, stack.contexts + (uint64_t)at * sizeof context, context, sizeof context) != sizeof context)
            break;
        unsigned type = context[0] & CONTEXT_TYPE;
        memcpy(&address, context + CONTEXT_STATEMENT, sizeof address);
        at--;
        if ((type != IS_FUNCTION && type != IS_FORMAT && type != IS_EVAL) || !read_statement(thread, perl, address, &outer))
            continue;
        if (type == IS_EVAL) {
            strcpy(name, "(eval)"); /* as `caller` has it, also of files that are required */
        } else {
            memcpy(&function, context + CONTEXT_FUNCTION, sizeof function);
            if (!read_function(thread, function, name)) {
                memcpy(&function, context + CONTEXT_FUNCTION_OLD, sizeof function);
                if (!read_function(thread, function, name))
                    return 0;
            }
        }
        struct script_frame frame = frame_of(thread, &now, name);
        if (frame.code)
            frames[depth++] = frame;
        now = outer;
    }
    struct script_frame frame = frame_of(thread, &now, "main");
    if (frame.code)
        frames[depth++] = frame;
    return depth;
}

struct interpreter *perl_of(struct tracee *thread, uint64_t base, const char *path)
{
    struct symbols symbols;
    const char *name = strrchr(path, '/');
    if (!name || (strncmp(name + 1, "perl", 4) != 0 && strncmp(name + 1, "libperl.", 8) != 0) || !symbols_of(thread, base, &symbols))
        return NULL;
    struct perl perl = {.interpreter = {frames_of}, .current_interpreter = symbol(thread, &symbols, "PL_curinterp")};
    perl.operations[0] = symbol(thread, &symbols, "Perl_pp_nextstate");
    perl.operations[1] = symbol(thread, &symbols, "Perl_pp_dbstate");
    if (!perl.current_interpreter || !perl.operations[0] || !perl.operations[1])
        return NULL;
    struct perl *kept = malloc(sizeof *kept);
    if (!kept)
        die("no memory");
    *kept = perl;
    return &kept->interpreter;
}
