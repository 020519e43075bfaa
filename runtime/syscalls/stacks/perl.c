/* Which Perl functions a thread is in: the contexts of perl's interpreter, read from the program's memory while the thread waits in
 * a call. Where its structures are is known of perl 5.24 to 5.42 with threads, as distributions build it. A statement counts
 * only if its operation is the one of statements, a function only if it is one: other builds have no frames. */
#include <string.h>

#include "syscalls/recorder.h"

#define SCANNED 64u         /* words of an interpreter in which the current statement is */
#define CONTROL_WORDS 288u  /* of a thread's control block, in which its interpreter is */
#define LONGEST_NAME 256u
#define IN_MEMORY 4096u     /* addresses below are none */
#define CONTEXTS_READ 16u   /* contexts that are read at a time */
#define KNOWN 256u          /* frames that are known */
#define OPERATIONS 400u     /* that perl has */

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
struct known {              /* a statement, and the function that it is in: 0 for one that is in none */
    uint64_t statement, file, function;
    uint32_t line;
    struct script_frame frame;
};
struct perl {
    struct interpreter interpreter;
    uint64_t current_interpreter, alone; /* alone: the first one, which stays the current one of a process with one thread */
    uint64_t operations[2]; /* operations: of statements, the second in the debugger */
    uint64_t statement;     /* offset of the current one in an interpreter, 0: not known yet; the contexts are 2 words behind it */
    size_t function;        /* offset of a function in a context, 0: not known yet */
    struct known known[KNOWN];
};

static bool read_statement(struct tracee *thread, const struct perl *perl, uint64_t address, struct statement *statement)
{
    return address >= IN_MEMORY && memory_read(thread, address, statement, sizeof *statement) == sizeof *statement &&
           (statement->operation == perl->operations[0] || statement->operation == perl->operations[1]);
}

/* Whether there is an interpreter at an address; then its current statement (`where` that is) and its stack are read. The operation that is carried
 * out, the second word, may be a statement, too. */
static bool read_interpreter(struct tracee *thread, struct perl *perl, uint64_t address, struct statement *now, uint64_t *where,
                             struct stack *stack)
{
    uint64_t word[SCANNED];
    if (address < IN_MEMORY || memory_read(thread, address, word, sizeof word) != sizeof word)
        return false;
    for (unsigned at = 2; !perl->statement && at + 2 < SCANNED; at++)
        if (read_statement(thread, perl, word[at], now))
            perl->statement = at;
    *where = word[perl->statement];
    return perl->statement && read_statement(thread, perl, *where, now) &&
           memory_read(thread, word[perl->statement + 2], stack, sizeof *stack) == sizeof *stack;
}

/* The thread's interpreter: of several threads, each has its own among the values in its control block. */
static bool find_interpreter(struct tracee *thread, struct perl *perl, struct statement *now, uint64_t *where, struct stack *stack)
{
    uint64_t word[CONTROL_WORDS];
    if (thread->process->threads == 1) {
        if (perl->alone && read_interpreter(thread, perl, perl->alone, now, where, stack))
            return true;
        perl->alone = word_of(thread, perl->current_interpreter);
        return read_interpreter(thread, perl, perl->alone, now, where, stack);
    }
    size_t known = memory_read(thread, thread->thread_pointer, word, sizeof word) / sizeof *word;
    for (size_t i = 1; i < known; i++) /* a value is behind its number, which is odd */
        if (word[i - 1] % 2 == 1 && word[i - 1] < UINT32_MAX && word[i] % 8 == 0 &&
            read_interpreter(thread, perl, word[i], now, where, stack))
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
    if (*file == '-' || strncmp(file, "(eval ", 6) == 0)
        strcpy(file, text_called(file));
    head.file_bytes = (uint32_t)path_absolute(thread, file, strlen(file));
    memcpy(file + head.file_bytes, name, head.name_bytes);
    return frame_at(thread, head, file, statement->line, 0);
}

/* The name of the function of a context, and its address; false if there is none where functions are. */
static bool function_of(struct tracee *thread, struct perl *perl, const unsigned char *context, uint64_t *function, char *name)
{
    static const size_t places[] = {CONTEXT_FUNCTION, CONTEXT_FUNCTION_OLD};
    for (size_t i = 0; i < 2; i++) {
        memcpy(function, context + places[i], sizeof *function);
        if ((!perl->function || perl->function == places[i]) && read_function(thread, *function, name)) {
            perl->function = places[i];
            return true;
        }
    }
    return false;
}

/* The frame of a statement in the function of a context (NULL: in none). What was asked for before is known: a statement stays
 * where it is as long as its function does. */
static bool known_frame(struct tracee *thread, struct perl *perl, const struct statement *statement, uint64_t address,
                        const unsigned char *context, struct script_frame *frame)
{
    uint64_t function = 0;
    bool is_eval = context && (context[0] & CONTEXT_TYPE) == IS_EVAL;
    char name[LONGEST_NAME] = "main";
    if (is_eval)
        strcpy(name, "(eval)"); /* as `caller` has it, also of files that are required */
    else if (context && perl->function)
        memcpy(&function, context + perl->function, sizeof function);
    else if (context && !function_of(thread, perl, context, &function, name))
        return false;
    function += is_eval;    /* which is no address */
    struct known *known = &perl->known[((address ^ function) * 0x9e3779b97f4a7c15u >> 32) % KNOWN];
    if (known->statement != address || known->file != statement->file || known->line != statement->line || known->function != function) {
        if (context && !is_eval && !read_function(thread, function, name))
            return false;
        *known = (struct known){address, statement->file, function, statement->line, frame_of(thread, statement, name)};
    }
    *frame = known->frame;
    return true;
}

static size_t frames_of(struct tracee *thread, struct interpreter *interpreter, struct script_frame *frames, size_t most)
{
    struct perl *perl = (struct perl *)interpreter;
    struct statement now, outer;
    struct stack stack;
    unsigned char contexts[CONTEXTS_READ][CONTEXT_BYTES];
    size_t depth = 0;
    int32_t first = 0, at;  /* of the contexts that were read */
    uint64_t address, caller;
    if (!find_interpreter(thread, perl, &now, &address, &stack))
        return 0;
    for (first = at = stack.last + 1; depth + 1 < most;) {
        if (--at < 0) {     /* of a stack that was begun inside of a function, as for sort */
            if (!stack.outer || memory_read(thread, stack.outer, &stack, sizeof stack) != sizeof stack)
                break;
            first = at = stack.last + 1;
            continue;
        }
        if (at < first) {
            size_t many = (size_t)at + 1 < CONTEXTS_READ ? (size_t)at + 1 : CONTEXTS_READ;
            first = at + 1 - (int32_t)many;
            if (memory_read(thread, stack.contexts + (uint64_t)first * CONTEXT_BYTES, contexts, many * CONTEXT_BYTES) !=
                many * CONTEXT_BYTES)
                break;
        }
        const unsigned char *context = contexts[at - first];
        unsigned type = context[0] & CONTEXT_TYPE;
        memcpy(&caller, context + CONTEXT_STATEMENT, sizeof caller);
        if ((type != IS_FUNCTION && type != IS_FORMAT && type != IS_EVAL) || !read_statement(thread, perl, caller, &outer))
            continue;
        if (!known_frame(thread, perl, &now, address, context, &frames[depth]))
            return 0;
        depth += frames[depth].code != 0;
        now = outer;
        address = caller;
    }
    if (known_frame(thread, perl, &now, address, NULL, &frames[depth]))
        depth += frames[depth].code != 0;
    return depth;
}

/* The function that carries out an operation: since 5.42 only the table of all, and that of their names, are exported. */
static uint64_t operation(struct tracee *thread, const struct symbols *symbols, const char *exported, const char *name)
{
    char found[16];
    uint64_t function = symbol(thread, symbols, exported);
    if (function)
        return function;
    uint64_t names = symbol(thread, symbols, "PL_op_name"), functions = symbol(thread, symbols, "PL_ppaddr");
    for (unsigned i = 0; names && functions && i < OPERATIONS; i++)
        if (memory_read(thread, word_of(thread, names + 8 * i), found, sizeof found) >= strlen(name) + 1 && strcmp(found, name) == 0)
            return word_of(thread, functions + 8 * i);
    return 0;
}

struct interpreter *perl_of(struct tracee *thread, uint64_t base, const char *path)
{
    struct symbols symbols;
    if (!(module_begins(path, "perl") || module_begins(path, "libperl.")) || !symbols_of(thread, base, &symbols))
        return NULL;
    uint64_t current = symbol(thread, &symbols, "PL_curinterp");
    uint64_t statements = operation(thread, &symbols, "Perl_pp_nextstate", "nextstate");
    uint64_t debugged = operation(thread, &symbols, "Perl_pp_dbstate", "dbstate");
    if (!current || !statements || !debugged)
        return NULL;
    struct perl *perl = interpreter_made(sizeof *perl, frames_of);
    perl->current_interpreter = current;
    perl->operations[0] = statements;
    perl->operations[1] = debugged;
    return &perl->interpreter;
}
