/* Which PHP functions a thread is in: the frames of the Zend engine, read from the program's memory while the thread waits in a call.
 * What differs between the versions 7.3 to 8.4 is found by what it holds: the current frame is behind the four words that describe
 * the engine's stack, and points into it; a function's file is the text before the range of lines that holds the current one. */
#include <stddef.h>
#include <string.h>

#include "syscalls/recorder.h"

#define GLOBAL_WORDS 128u   /* of executor_globals, in which the current frame is */
#define FUNCTION_WORDS 32u  /* of a function, in which its file is */
#define LONGEST_NAME 256u
#define PAGE_BYTES 262144u  /* of the engine's stack */
#define IS_TEXT 6u
#define IS_BUILTIN 1u       /* type of a function that is not written in PHP */
#define KNOWN 256u          /* frames that are known */

enum { TEXT_TYPE = 4, TEXT_LENGTH = 16, TEXT = 24, LINE = 24, FUNCTION_NAME = 1 }; /* offsets; a word of a function */

struct frame {              /* zend_execute_data */
    uint64_t instruction, call, value, function, self, self_type, outer;
};
struct known {              /* a place in a function that stays, as one with a name does until its request ends */
    uint64_t instruction, name, lines, file; /* lines: the first and the last of the function; file: a hash of its name */
    struct script_frame frame;
};
struct php {
    struct interpreter interpreter;
    uint64_t globals;
    size_t current, file;   /* words of the globals and of a function; 0: not known yet */
    struct known known[KNOWN];
};

/* Copies a zend_string; its length, 0 for what is none. */
static size_t text_at(struct tracee *thread, uint64_t address, char *to, size_t room)
{
    unsigned char head[TEXT];
    uint64_t length;
    uint32_t type;
    if (address % 8 || memory_read(thread, address, head, sizeof head) != sizeof head)
        return 0;
    memcpy(&type, head + TEXT_TYPE, sizeof type);
    memcpy(&length, head + TEXT_LENGTH, sizeof length);
    if ((type & 0xf) != IS_TEXT || !length || length >= room || memory_read(thread, address + TEXT, to, length) != length)
        return 0;
    to[length] = '\0';
    return strlen(to) == length ? length : 0;
}

/* The address of the current frame, or 0. */
static uint64_t current_frame(struct tracee *thread, struct php *php)
{
    uint64_t word[GLOBAL_WORDS];
    if (php->current)
        return word_of(thread, php->globals + sizeof *word * php->current);
    if (memory_read(thread, php->globals, word, sizeof word) != sizeof word)
        return 0;
    for (size_t at = 4; at < GLOBAL_WORDS && !php->current; at++) { /* top, end, beginning, and size of a page */
        uint64_t top = word[at - 4], end = word[at - 3], start = word[at - 2];
        if (word[at - 1] == PAGE_BYTES && start < top && top <= end && end - start == PAGE_BYTES && word[at] > start && word[at] < end)
            php->current = at;
    }
    return php->current ? word[php->current] : 0;
}

/* Which file a function of PHP is in. A line of it shows where that is kept. */
static size_t file_of(struct tracee *thread, struct php *php, const uint64_t *function, uint32_t line, char *to, size_t room)
{
    size_t first = php->file ? php->file : 4, last = php->file ? php->file : FUNCTION_WORDS - 2;
    for (size_t at = first; at <= last; at++) {
        uint32_t lines[2];
        memcpy(lines, &function[at + 1], sizeof lines);
        bool holds = lines[0] && lines[0] <= line && line <= lines[1];
        size_t size = php->file || holds ? text_at(thread, function[at], to, room) : 0;
        if (!size)
            continue;
        php->file = at;
        return size;
    }
    return 0;
}

static struct script_frame frame_of(struct tracee *thread, struct php *php, const uint64_t *function, uint64_t instruction, bool *stays)
{
    static char file[2 * PATH_ROOM + LONGEST_NAME];
    char name[LONGEST_NAME];
    uint32_t line;
    if (memory_read(thread, instruction + LINE, &line, sizeof line) != sizeof line)
        return (struct script_frame){0}; /* between a function and its caller */
    struct cc_code head = {.name_bytes = (uint32_t)text_at(thread, function[FUNCTION_NAME], name, sizeof name)};
    size_t size = file_of(thread, php, function, line, file, PATH_MAX);
    if (!size)
        return (struct script_frame){0};
    *stays = head.name_bytes && *name != '{'; /* {closure} */
    if (strstr(file, "eval()'d code"))
        size = strlen(strcpy(file, "<string>"));
    else if (strcmp(file, "Command line code") == 0 || strcmp(file, "Standard input code") == 0)
        size = strlen(strcpy(file, *file == 'C' ? "<-r>" : "<stdin>"));
    if (!head.name_bytes)
        head.name_bytes = (uint32_t)strlen(strcpy(name, "main"));
    head.file_bytes = (uint32_t)path_absolute(thread, file, size);
    memcpy(file + head.file_bytes, name, head.name_bytes);
    return frame_at(thread, head, file, line, 0);
}

/* The frame of a function of PHP: what was found before, if the function is the same one. */
static struct script_frame known_frame(struct tracee *thread, struct php *php, const struct frame *frame, const uint64_t *function)
{
    char file[PATH_MAX];
    struct known *known = &php->known[(frame->instruction * 0x9e3779b97f4a7c15u >> 32) % KNOWN];
    size_t size = php->file ? text_at(thread, function[php->file], file, sizeof file) : 0;
    struct known now = {.instruction = frame->instruction, .name = function[FUNCTION_NAME], .lines = function[php->file + 1]};
    if (size)
        now.file = bytes_hash(HASH_START, file, size);
    if (size && memcmp(known, &now, offsetof(struct known, frame)) == 0)
        return known->frame;
    bool stays = false;
    now.frame = frame_of(thread, php, function, frame->instruction, &stays);
    if (size && stays)
        *known = now;
    return now.frame;
}

static size_t frames_of(struct tracee *thread, struct interpreter *interpreter, struct script_frame *frames, size_t most)
{
    struct php *php = (struct php *)interpreter;
    struct frame frame;
    size_t depth = 0;
    uint64_t function[FUNCTION_WORDS], address = current_frame(thread, php);
    for (unsigned steps = 0; address && depth < most && steps < 4 * STACK_DEEPEST; steps++, address = frame.outer) {
        if (memory_read(thread, address, &frame, sizeof frame) != sizeof frame)
            break;
        if (!frame.function || memory_read(thread, frame.function, function, sizeof function) != sizeof function ||
            (function[0] & 0xff) == IS_BUILTIN)
            continue;
        frames[depth] = known_frame(thread, php, &frame, function);
        depth += frames[depth].code != 0;
    }
    return depth;
}

struct interpreter *php_of(struct tracee *thread, uint64_t base, const char *path)
{
    struct symbols symbols;
    if (!(module_begins(path, "php") || module_begins(path, "libphp")) || !symbols_of(thread, base, &symbols))
        return NULL;
    uint64_t globals = symbol(thread, &symbols, "executor_globals"); /* none of a build with threads */
    if (!globals)
        return NULL;
    struct php *php = interpreter_made(sizeof *php, frames_of);
    php->globals = globals;
    return &php->interpreter;
}
