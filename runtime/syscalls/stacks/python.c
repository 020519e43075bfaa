/* Which Python functions a thread is in: the frames of CPython's interpreter, read from the program's memory while the thread
 * waits in a call. Where its structures are is known of each minor version (layouts); that an object is what it should be is
 * seen by its type, so that another build has no frames rather than wrong ones. Lines are found later, from the code's own
 * table (analyzer/trace/python_code.py). */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define MOST_STATES 4096u     /* threads of an interpreter, and interpreters */
#define STATE_BYTES 256u      /* of a PyThreadState that are read */
#define CODE_BYTES 208u       /* of a PyCodeObject: all but its instructions */
#define FRAME_BYTES 128u
#define LONGEST_TABLE (1u << 20)
#define LONGEST_NAME 512u
#define KNOWN 1024u           /* codes of a process */
#define STATES 16u            /* threads of a process whose states are known */
#define IS_LATEST 8u          /* flag of a PyThreadState: of those that its thread has, it ran last (bound_gilstate) */
#define NO_FUNCTIONS 3        /* owner of a frame, and any above: it is no function's */
#define TAGS 7u               /* of a reference in a frame, from 3.14 on */
#define OLDEST 8u             /* 3.8: no other one can read the module that is loaded first */

enum { OBJECT_TYPE = 8, OBJECT_SIZE = 16, BYTES_DATA = 32, TEXT_LENGTH = 16, TEXT_STATE = 32 };

struct layout {
    /* _PyRuntime; PyInterpreterState; PyThreadState */
    uint16_t interpreters, threads, next_interpreter, next_thread, thread_id, frame;
    uint16_t status;          /* of a PyThreadState: flags, one of them IS_LATEST; 0 of versions that have none */
    /* its frames. `instruction`: a pointer into the code, or, if `unit`, a number of so many bytes */
    uint16_t frame_code, frame_previous, frame_instruction, frame_owner, unit;
    uint16_t code_file, code_name, code_lines, code_first_line, code_start; /* code_start: 0 of no layout */
    uint16_t ascii, unicode;  /* where a text's characters begin */
    bool through_c;           /* `frame` is of a _PyCFrame, which has the frame at `within_c` */
    uint16_t within_c;
};
/* By the minor version of Python 3, of its headers in Include/internal; 3.13 and 3.14 describe themselves. */
static const struct layout layouts[] = {
    [8] = {.interpreters = 32, .threads = 8, .next_thread = 8, .thread_id = 176, .frame = 24,
           .frame_code = 32, .frame_previous = 24, .frame_instruction = 104, .unit = 1,
           .code_file = 104, .code_name = 112, .code_lines = 120, .code_first_line = 40, .code_start = 1,
           .ascii = 48, .unicode = 72},
    [9] = {.interpreters = 32, .threads = 8, .next_thread = 8, .thread_id = 176, .frame = 24,
           .frame_code = 32, .frame_previous = 24, .frame_instruction = 104, .unit = 1,
           .code_file = 104, .code_name = 112, .code_lines = 120, .code_first_line = 40, .code_start = 1,
           .ascii = 48, .unicode = 72},
    [10] = {.interpreters = 32, .threads = 8, .next_thread = 8, .thread_id = 176, .frame = 24,
            .frame_code = 32, .frame_previous = 24, .frame_instruction = 96, .unit = 2,
            .code_file = 104, .code_name = 112, .code_lines = 120, .code_first_line = 40, .code_start = 1,
            .ascii = 48, .unicode = 72},
    [11] = {.interpreters = 40, .threads = 16, .next_thread = 8, .thread_id = 152, .frame = 56, .through_c = true, .within_c = 8,
            .frame_code = 32, .frame_previous = 48, .frame_instruction = 56, .frame_owner = 69,
            .code_file = 112, .code_name = 128, .code_lines = 136, .code_first_line = 72, .code_start = 184,
            .ascii = 48, .unicode = 72},
    [12] = {.interpreters = 40, .threads = 72, .next_thread = 8, .thread_id = 136, .frame = 56, .status = 24, .through_c = true,
            .frame_code = 0, .frame_previous = 8, .frame_instruction = 56, .frame_owner = 70,
            .code_file = 112, .code_name = 128, .code_lines = 136, .code_first_line = 68, .code_start = 192,
            .ascii = 40, .unicode = 56},
};

struct code_key {
    uint64_t address, file, name, lines;
    uint32_t first_line;
};
struct known_code {
    struct code_key key;
    uint32_t code;
};
struct known_state {        /* of a thread: where its PyThreadState was */
    pid_t tid;
    uint64_t address;
};
struct python {
    struct interpreter interpreter;
    uint32_t minor;
    struct layout at;
    uint64_t runtime, code_type, text_type, bytes_type;
    struct known_code known[KNOWN];
    struct known_state states[STATES];
};

static uint64_t word_in(const unsigned char *bytes, unsigned offset)
{
    uint64_t word;
    memcpy(&word, bytes + offset, sizeof word);
    return word;
}

/* 3.N of a file named python3.N or libpython3.N.so*; 0 of others, as builds for debugging and without a lock. */
static uint32_t minor_of(const char *path)
{
    const char *name = strrchr(path, '/');
    name = name ? name + 1 : path;
    name += strncmp(name, "lib", 3) == 0 ? 3 : 0;
    char *end;
    if (strncmp(name, "python3.", 8) != 0)
        return 0;
    unsigned long minor = strtoul(name + 8, &end, 10);
    return (*end == '\0' || strncmp(end, ".so", 3) == 0 || strcmp(end, " (deleted)") == 0) && minor < 100 ? (uint32_t)minor : 0;
}

/* From 3.13 on the runtime describes itself: words behind a cookie and a version (_Py_DebugOffsets). 3.14 has three more of an
 * interpreter, and two more of a frame. */
static bool described(struct tracee *thread, struct python *python)
{
    enum { INTERPRETERS = 5, NEXT_INTERPRETER = 8, THREADS = 9, NEXT_THREAD = 21, FRAME = 23, THREAD = 24, STATUS = 27,
           PREVIOUS = 29, EXECUTABLE = 30, INSTRUCTION = 31, OWNER = 33, FILE_NAME = 35, NAME = 37, LINES = 38, FIRST_LINE = 39, START = 43,
           WORDS = 49 };
    uint64_t word[WORDS];
    if (memory_read(thread, python->runtime, word, sizeof word) != sizeof word || memcmp(word, "xdebugpy", 8) != 0 ||
        word[1] >> 16 != (3u << 8 | python->minor) || word[2])
        return false;
    const uint64_t *state = word + (python->minor > 13 ? 3 : 0), *code = word + (python->minor > 13 ? 5 : 0);
    const uint64_t wanted[] = {
        word[INTERPRETERS], word[NEXT_INTERPRETER], word[THREADS], state[NEXT_THREAD], state[FRAME], state[THREAD],
        state[STATUS], state[PREVIOUS], state[EXECUTABLE], state[INSTRUCTION], state[OWNER], code[FILE_NAME], code[NAME], code[LINES],
        code[FIRST_LINE], code[START],
    };
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        if (wanted[i] > UINT16_MAX)
            return false;
    python->at = (struct layout){
        .interpreters = (uint16_t)word[INTERPRETERS], .next_interpreter = (uint16_t)word[NEXT_INTERPRETER],
        .threads = (uint16_t)word[THREADS], .next_thread = (uint16_t)state[NEXT_THREAD], .frame = (uint16_t)state[FRAME],
        .thread_id = (uint16_t)state[THREAD], .status = (uint16_t)state[STATUS], .frame_previous = (uint16_t)state[PREVIOUS],
        .frame_code = (uint16_t)state[EXECUTABLE], .frame_instruction = (uint16_t)state[INSTRUCTION],
        .frame_owner = (uint16_t)state[OWNER], .code_file = (uint16_t)code[FILE_NAME], .code_name = (uint16_t)code[NAME],
        .code_lines = (uint16_t)code[LINES], .code_first_line = (uint16_t)code[FIRST_LINE],
        .code_start = (uint16_t)code[START], .ascii = 40, .unicode = 56,
    };
    return true;
}

static bool fits(const struct layout *at)
{
    return at->code_start && at->thread_id + 8u <= STATE_BYTES && at->frame + 8u <= STATE_BYTES &&
           at->next_thread + 8u <= STATE_BYTES && at->status + 8u <= STATE_BYTES && at->frame_code + 8u <= FRAME_BYTES && at->frame_previous + 8u <= FRAME_BYTES &&
           at->frame_instruction + 8u <= FRAME_BYTES && at->frame_owner < FRAME_BYTES && at->code_file + 8u <= CODE_BYTES &&
           at->code_name + 8u <= CODE_BYTES && at->code_lines + 8u <= CODE_BYTES && at->code_first_line + 4u <= CODE_BYTES;
}

static size_t frames_of(struct tracee *thread, struct interpreter *interpreter, struct script_frame *frames, size_t most);

struct interpreter *python_of(struct tracee *thread, uint64_t base, const char *path)
{
    struct symbols symbols;
    uint32_t minor = minor_of(path);
    if (!minor || !symbols_of(thread, base, &symbols))
        return NULL;
    struct python *python = interpreter_made(sizeof *python, frames_of);
    python->minor = minor;
    python->runtime = symbol(thread, &symbols, "_PyRuntime");
    python->code_type = symbol(thread, &symbols, "PyCode_Type");
    python->text_type = symbol(thread, &symbols, "PyUnicode_Type");
    python->bytes_type = symbol(thread, &symbols, "PyBytes_Type");
    bool known = python->runtime && python->code_type && python->text_type && python->bytes_type;
    if (known && minor < sizeof layouts / sizeof *layouts)
        python->at = layouts[minor];
    if (known && (minor == 13 || minor == 14 ? described(thread, python) : true) && fits(&python->at))
        return &python->interpreter;
    free(python);
    return NULL;
}

/* Reads a PyThreadState, and its innermost frame; 0 if it has none, or is not of the thread: one of the same thread has the same
 * thread pointer, which a fork keeps. */
static uint64_t frame_in(struct tracee *thread, const struct python *python, uint64_t address, unsigned char *state)
{
    const struct layout *at = &python->at;
    if (memory_read(thread, address, state, STATE_BYTES) != STATE_BYTES)
        memset(state, 0, STATE_BYTES);
    if (word_in(state, at->thread_id) != thread->thread_pointer)
        return 0;
    uint64_t frame = word_in(state, at->frame);
    return at->through_c && frame ? word_of(thread, frame + at->within_c) : frame;
}

/* The innermost frame of the thread. Its PyThreadState stays where it is as long as it has frames. What has it may run other
 * interpreters in between: then another state of the thread is the latest. */
static uint64_t innermost_frame(struct tracee *thread, struct python *python)
{
    const struct layout *at = &python->at;
    struct known_state *known = &python->states[(size_t)thread->tid % STATES];
    unsigned char state[STATE_BYTES];
    uint64_t frame = known->tid == thread->tid ? frame_in(thread, python, known->address, state) : 0;
    if (frame && (!at->status || word_in(state, at->status) & IS_LATEST))
        return frame;
    uint64_t interpreter = word_of(thread, python->runtime + at->interpreters);
    for (unsigned i = 0; interpreter && i < MOST_STATES; i++) {
        uint64_t address = word_of(thread, interpreter + at->threads);
        for (unsigned many = 0; address && many < MOST_STATES; many++) {
            if ((frame = frame_in(thread, python, address, state))) {
                *known = (struct known_state){thread->tid, address};
                return frame;
            }
            address = word_in(state, at->next_thread);
        }
        interpreter = word_of(thread, interpreter + at->next_interpreter);
    }
    return 0;
}

/* Appends a character as UTF-8; a byte that was no UTF-8 in a file's name as that byte. */
static size_t encode(char *to, uint32_t letter)
{
    if (letter < 0x80 || (letter >= 0xdc80 && letter < 0xdd00)) {
        to[0] = (char)(letter & 0xff);
        return 1;
    }
    size_t size = letter < 0x800 ? 2 : letter < 0x10000 ? 3 : 4;
    for (size_t i = size - 1; i > 0; i--, letter >>= 6)
        to[i] = (char)(0x80 | (letter & 0x3f));
    to[0] = (char)((0xf00u >> size & 0xf0) | letter);
    return size;
}

/* A Python text as UTF-8; how long it is, 0 for what is none, or is empty. `to`: 4 bytes for each of `most` characters. */
static size_t text_at(struct tracee *thread, const struct python *python, uint64_t address, char *to, size_t most)
{
    static unsigned char raw[4 * PATH_ROOM];
    unsigned char head[TEXT_STATE + 4];
    if (memory_read(thread, address, head, sizeof head) != sizeof head || word_in(head, OBJECT_TYPE) != python->text_type)
        return 0;
    uint32_t state;
    memcpy(&state, head + TEXT_STATE, sizeof state);
    unsigned kind = state >> 2 & 7, compact = state >> 5 & 1, ascii = state >> 6 & 1;
    uint64_t length = word_in(head, TEXT_LENGTH);
    length = length < most ? length : most;
    if (!compact || (kind != 1 && kind != 2 && kind != 4) || length * kind > sizeof raw ||
        memory_read(thread, address + (ascii ? python->at.ascii : python->at.unicode), raw, length * kind) != length * kind)
        return 0;
    size_t size = 0;
    for (uint64_t i = 0; i < length; i++) {
        uint32_t letter = 0;
        memcpy(&letter, raw + i * kind, kind);
        size += encode(to + size, letter);
    }
    return size;
}

/* The first of the interpreter's options that is one of `letters`, as far as the arguments show; 0: none of them. */
static char option_among(struct tracee *thread, const char *letters)
{
    char path[64], arguments[PATH_MAX] = {0};
    snprintf(path, sizeof path, "/proc/%d/cmdline", thread->tid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd < 0 ? 0 : read(fd, arguments, sizeof arguments - 2);
    if (fd >= 0)
        close(fd);
    const char *at = arguments + strlen(arguments) + 1;
    for (; at - arguments < size && at[0] == '-' && at[1]; at += strlen(at) + 1) {
        for (const char *letter = at + 1; at[1] != '-' && *letter; letter++) {
            if (strchr(letters, *letter))
                return *letter;
            if (strchr("cm", *letter))
                return 0;
            if (strchr("WX", *letter)) { /* have a value */
                at += letter[1] ? 0 : strlen(at) + 1;
                break;
            }
        }
    }
    return 0;
}

bool python_preloads(struct tracee *thread, const char *path)
{
    return minor_of(path) >= OLDEST && !option_among(thread, "IES");
}

static uint32_t read_code(struct tracee *thread, const struct python *python, const struct code_key *key)
{
    static char bytes[4 * PATH_ROOM + 4 * LONGEST_NAME + LONGEST_TABLE];
    struct cc_code head = {.version = 3u << 8 | python->minor, .first_line = key->first_line};
    unsigned char lines[BYTES_DATA];
    size_t file = path_absolute(thread, bytes, text_at(thread, python, key->file, bytes, PATH_MAX));
    if (file == strlen("<string>") && memcmp(bytes, "<string>", file) == 0 && option_among(thread, "cm") == 'c')
        file = strlen(strcpy(bytes, "<-c>"));
    size_t name = text_at(thread, python, key->name, bytes + file, LONGEST_NAME);
    if (!file || !name || memory_read(thread, key->lines, lines, sizeof lines) != sizeof lines ||
        word_in(lines, OBJECT_TYPE) != python->bytes_type)
        return 0;
    uint64_t size = word_in(lines, OBJECT_SIZE);
    if (size > LONGEST_TABLE || memory_read(thread, key->lines + BYTES_DATA, bytes + file + name, size) != size)
        return 0;
    head.file_bytes = (uint32_t)file;
    head.name_bytes = (uint32_t)name;
    return code_defined_as(thread, head, bytes, file + name + size);
}

/* The number of the code at an address, 0 if there is none. Another may be there later: what it points to must be the same. */
static uint32_t code_number(struct tracee *thread, struct python *python, uint64_t address, const unsigned char *bytes)
{
    const struct layout *at = &python->at;
    struct code_key key = {.address = address};
    if (word_in(bytes, OBJECT_TYPE) != python->code_type)
        return 0;
    key.file = word_in(bytes, at->code_file);
    key.name = word_in(bytes, at->code_name);
    key.lines = word_in(bytes, at->code_lines);
    memcpy(&key.first_line, bytes + at->code_first_line, sizeof key.first_line);
    struct known_code *known = &python->known[(size_t)(address * 0x9e3779b97f4a7c15u >> 40) % KNOWN];
    if (known->key.address != address || known->key.file != key.file || known->key.name != key.name ||
        known->key.lines != key.lines || known->key.first_line != key.first_line)
        *known = (struct known_code){key, read_code(thread, python, &key)};
    return known->code;
}

static size_t frames_of(struct tracee *thread, struct interpreter *interpreter, struct script_frame *frames, size_t most)
{
    struct python *python = (struct python *)interpreter;
    const struct layout *at = &python->at;
    unsigned char bytes[FRAME_BYTES], head[CODE_BYTES];
    uint64_t frame = innermost_frame(thread, python);
    size_t found = 0;
    for (unsigned steps = 0; frame && found < most && steps < 2 * STACK_DEEPEST; steps++) {
        if (memory_read(thread, frame, bytes, sizeof bytes) != sizeof bytes)
            break;
        frame = word_in(bytes, at->frame_previous);
        if (at->frame_owner && bytes[at->frame_owner] >= NO_FUNCTIONS)
            continue;
        uint64_t address = word_in(bytes, at->frame_code) & ~(uint64_t)TAGS, instruction = word_in(bytes, at->frame_instruction);
        instruction = at->unit ? (uint64_t)at->unit * (uint32_t)instruction : instruction - address - at->code_start;
        if (instruction > INT32_MAX || memory_read(thread, address, head, sizeof head) != sizeof head)
            continue;
        uint32_t code = code_number(thread, python, address, head);
        if (code)
            frames[found++] = (struct script_frame){code, (uint32_t)instruction};
    }
    return found;
}
