/* Which Ruby methods a thread is in: the control frames of its execution context, read from the program's memory while the thread
 * waits in a call. What differs between the versions 3.1 to 3.4 is found by what it holds: the context is a variable of the thread
 * that describes a stack, whose frames all point into it; a method's file and names are three values in a row, and the lines of
 * its code are known to be within a range that is stored beside them. */
#include <string.h>

#include "syscalls/recorder.h"

#define VARIABLE_WORDS 1024u /* of a thread, below its control block, among which the context is */
#define FRAMES_READ 32u     /* control frames that are read at a time */
#define LARGEST_FRAME 8u    /* words */
#define SMALLEST_FRAME 6u
#define BODY_WORDS 48u      /* of a method's description, in which file, names and lines are */
#define LONGEST_NAME 256u
#define LARGEST_STACK ((uint64_t)1 << 27) /* bytes */
#define LINE_BYTES 12u      /* of an entry that holds a line */
#define KEPT_WORDS 12u      /* of a description, from file and names to where its lines are */
#define KNOWN 256u          /* frames that are known */

enum { TYPE = 0x1f, TEXT = 0x05, ARRAY = 0x07, INTERNAL = 0x1a, METHOD = 7, METHOD_AT = 12 }; /* types of values */
enum { APART = 1 << 13, LENGTH_AT = 14, LENGTH = 0x1f }; /* flags: a text's bytes are not in it; an array's elements are */
enum { FIRST = 2, SECOND = 3, THIRD = 4 }; /* words of a value behind its flags and class */

/* The table of instruction numbers where a line begins (succ_index_table): of the first ones, and of blocks of others. */
enum { IMMEDIATE = 54, IMMEDIATE_IN_WORD = 9, IMMEDIATE_BITS = 7, BLOCK = 512, BLOCK_WORDS = 10, RANK_BITS = 9 };

struct control_frame {
    uint64_t instruction, top, method, self, variables, block, more[LARGEST_FRAME - 6];
};
struct context {            /* the beginning of a rb_execution_context_t */
    uint64_t stack, words, frame;
};
struct known {              /* a place in a method: where its description is, and what that holds */
    uint64_t instruction, body, kept[KEPT_WORDS];
    struct script_frame frame;
};
struct ruby {
    struct interpreter interpreter;
    uint64_t variable;      /* bytes by which the context is below the control block; 0: not known yet, as the other two */
    size_t frame_words, file, lines; /* words of a frame; words of a method's description */
    struct known known[KNOWN];
};

static uint64_t end_of(const struct context *context)
{
    return context->stack + 8 * context->words;
}

/* Whether an address is that of a method's code. */
static bool is_method(struct tracee *thread, uint64_t address)
{
    uint64_t flags = address % 8 ? 0 : word_of(thread, address);
    return (flags & TYPE) == INTERNAL && (flags >> METHOD_AT & 0xf) == METHOD;
}

/* Whether the frames of a context have so many words: then they end where its stack does, and each points into it. */
static bool has_frames(struct tracee *thread, const struct context *context, size_t words)
{
    uint64_t bytes = end_of(context) - context->frame, frame[FRAMES_READ * LARGEST_FRAME];
    size_t many = bytes / (8 * words), read = many < FRAMES_READ ? many : FRAMES_READ;
    bool any = false;
    if (bytes % (8 * words) || memory_read(thread, context->frame, frame, 8 * words * read) != 8 * words * read)
        return false;
    for (size_t i = 0; i < read; i++) {
        const struct control_frame *at = (const struct control_frame *)&frame[words * i];
        if (at->top < context->stack || at->top > end_of(context) || (at->method && !is_method(thread, at->method)))
            return false;
        any = any || at->method;
    }
    return any;
}

static bool read_context(struct tracee *thread, struct ruby *ruby, uint64_t address, struct context *context)
{
    if (!address || address % 8 || memory_read(thread, address, context, sizeof *context) != sizeof *context || !context->stack ||
        (context->stack | context->frame) % 8 || context->words > LARGEST_STACK / 8 || context->frame <= context->stack ||
        context->frame >= end_of(context))
        return false;
    for (size_t words = LARGEST_FRAME; !ruby->frame_words && words >= SMALLEST_FRAME; words--)
        if (has_frames(thread, context, words))
            ruby->frame_words = words;
    return ruby->frame_words != 0;
}

/* The context of the thread: each thread has its own, and each fiber sets it. */
static bool find_context(struct tracee *thread, struct ruby *ruby, struct context *context)
{
    uint64_t before = thread->thread_pointer;
    if (ruby->variable)
        return read_context(thread, ruby, word_of(thread, before - ruby->variable), context);
    for (uint64_t below = 8; below <= 8 * VARIABLE_WORDS; below += 8) {
        uint64_t word;
        if (memory_read(thread, before - below, &word, sizeof word) != sizeof word)
            return false;
        if (read_context(thread, ruby, word, context)) {
            ruby->variable = below;
            return true;
        }
    }
    return false;
}

/* Copies a text; its length, 0 for what is none. */
static size_t text_at(struct tracee *thread, uint64_t value, char *to, size_t room)
{
    uint64_t word[THIRD + 1];
    if (!value || value % 8 || memory_read(thread, value, word, sizeof word) != sizeof word || (word[0] & TYPE) != TEXT)
        return 0;
    uint64_t bytes = value + 8 * FIRST, length = word[0] >> LENGTH_AT & LENGTH; /* as 3.1 has it in the flags */
    if (word[0] & APART) {
        length = word[FIRST];
        bytes = word[SECOND];
    } else if (!length || memchr(&word[FIRST], '\0', length < 8 * (THIRD + 1 - FIRST) ? length : 8 * (THIRD + 1 - FIRST))) {
        length = word[FIRST];
        bytes = value + 8 * SECOND;
    }
    if (!length || length >= room || memory_read(thread, bytes, to, length) != length)
        return 0;
    to[length] = '\0';
    return strlen(to) == length ? length : 0;
}

/* A method's file, by its real path; of what is compiled by `eval`, as that names it. */
static size_t file_at(struct tracee *thread, uint64_t value, char *to, size_t room)
{
    uint64_t word[THIRD + 1];
    if (value % 8 || memory_read(thread, value, word, sizeof word) != sizeof word)
        return 0;
    if ((word[0] & TYPE) != ARRAY)
        return text_at(thread, value, to, room);
    uint64_t pair[2] = {word[FIRST], word[SECOND]};
    if (!(word[0] & APART) && memory_read(thread, word[THIRD], pair, sizeof pair) != sizeof pair)
        return 0;
    size_t size = text_at(thread, pair[1], to, room);
    if (size || !(size = text_at(thread, pair[0], to, room)))
        return size;
    return *to == '-' || strncmp(to, "(eval", 5) == 0 ? strlen(strcpy(to, text_called(to))) : size; /* eval may name a file */
}

/* How many lines begin at an instruction or before it, by the table at an address; 0: it cannot be read. */
static uint32_t lines_begun(struct tracee *thread, uint64_t table, uint32_t instruction)
{
    if (instruction < IMMEDIATE)
        return word_of(thread, table + 8 * (uint64_t)(instruction / IMMEDIATE_IN_WORD)) >>
                   instruction % IMMEDIATE_IN_WORD * IMMEDIATE_BITS & 0x7f;
    uint64_t block[BLOCK_WORDS]; /* lines before it, lines before each word but the first, a bit for each instruction */
    uint32_t at = (instruction - IMMEDIATE) % BLOCK, word = at / 64;
    table += 8 * (IMMEDIATE / IMMEDIATE_IN_WORD) + sizeof block * (uint64_t)((instruction - IMMEDIATE) / BLOCK);
    if (memory_read(thread, table, block, sizeof block) != sizeof block)
        return 0;
    uint32_t before = (uint32_t)block[0] + (word ? block[1] >> (word - 1) * RANK_BITS & 0x1ff : 0);
    return before + (uint32_t)__builtin_popcountll(block[2 + word] << (63 - at % 64));
}

/* The line of an instruction; 0 if it is not known. `lines`: where they are in a method's description. */
static uint32_t line_of(struct tracee *thread, const uint64_t *body, size_t lines, uint64_t instruction)
{
    uint32_t many = (uint32_t)body[lines + 2], all = (uint32_t)(body[0] >> 32), line = 0;
    uint64_t number = (instruction - body[1]) / 8;
    if (instruction < body[1] || number > all || !many || many > all)
        return 0;
    uint32_t begun = many == 1 ? 1 : lines_begun(thread, body[lines + 3], (uint32_t)(number ? number - 1 : 0)); /* it is past the call */
    if (!begun || begun > many ||
        memory_read(thread, body[lines] + LINE_BYTES * (uint64_t)(begun - 1), &line, sizeof line) != sizeof line)
        return 0;
    return line;
}

/* Where file, names and lines are in a method's description: before the lines is the range that they are in. */
static bool know_body(struct tracee *thread, struct ruby *ruby, const uint64_t *body, uint64_t instruction)
{
    char text[PATH_MAX];
    for (size_t at = 3; !ruby->file && at + KEPT_WORDS <= BODY_WORDS; at++)
        if (file_at(thread, body[at], text, sizeof text) && text_at(thread, body[at + 1], text, sizeof text) &&
            text_at(thread, body[at + 2], text, sizeof text))
            ruby->file = at;
    for (size_t more = 6; ruby->file && !ruby->lines && more <= 7; more++) {
        int32_t range[3]; /* first line, column, last line */
        size_t at = ruby->file + more;
        memcpy(range, (const char *)&body[at] - (more == 6 ? 16 : 20), sizeof range);
        uint32_t line = line_of(thread, body, at, instruction);
        if (line && (int64_t)line >= range[0] && (int64_t)line <= range[2])
            ruby->lines = at;
    }
    return ruby->lines != 0;
}

static struct script_frame frame_of(struct tracee *thread, struct ruby *ruby, const uint64_t *body, uint64_t instruction)
{
    static char file[2 * PATH_ROOM + LONGEST_NAME];
    char name[LONGEST_NAME];
    uint32_t line = line_of(thread, body, ruby->lines, instruction);
    size_t size = file_at(thread, body[ruby->file], file, PATH_MAX);
    struct cc_code head = {.name_bytes = (uint32_t)text_at(thread, body[ruby->file + 1], name, sizeof name)};
    if (!line || !size || !head.name_bytes)
        return (struct script_frame){0};
    if (strcmp(name, "<main>") == 0)
        head.name_bytes = (uint32_t)strlen(strcpy(name, "main"));
    head.file_bytes = (uint32_t)path_absolute(thread, file, size);
    memcpy(file + head.file_bytes, name, head.name_bytes);
    return frame_at(thread, head, file, line, 0);
}

/* The frame of a method that is not of C: what was found before where its description is as it was then, by what it keeps. Code that
 * was compiled by `eval` may be gone, and another at its place. */
static struct script_frame known_frame(struct tracee *thread, struct ruby *ruby, const struct control_frame *frame)
{
    uint64_t body[BODY_WORDS], kept[KEPT_WORDS], at = word_of(thread, frame->method + 8 * FIRST);
    struct known *known = &ruby->known[(frame->instruction * 0x9e3779b97f4a7c15u >> 32) % KNOWN];
    if (!ruby->lines && (memory_read(thread, at, body, sizeof body) != sizeof body || !know_body(thread, ruby, body, frame->instruction)))
        return (struct script_frame){0};
    if (memory_read(thread, at + 8 * ruby->file, kept, sizeof kept) != sizeof kept)
        return (struct script_frame){0};
    if (known->instruction == frame->instruction && known->body == at && memcmp(known->kept, kept, sizeof kept) == 0)
        return known->frame;
    if (memory_read(thread, at, body, sizeof body) != sizeof body)
        return (struct script_frame){0};
    *known = (struct known){.instruction = frame->instruction, .body = at};
    memcpy(known->kept, kept, sizeof kept);
    known->frame = frame_of(thread, ruby, body, frame->instruction);
    return known->frame;
}

static size_t frames_of(struct tracee *thread, struct interpreter *interpreter, struct script_frame *frames, size_t most)
{
    struct ruby *ruby = (struct ruby *)interpreter;
    struct context context;
    struct control_frame frame = {0};
    size_t depth = 0;
    if (!find_context(thread, ruby, &context))
        return 0;
    uint64_t at = context.frame, bytes = 8 * ruby->frame_words;
    for (unsigned steps = 0; at + bytes <= end_of(&context) && depth < most && steps < 4 * STACK_DEEPEST; steps++, at += bytes) {
        if (memory_read(thread, at, &frame, bytes) != bytes)
            break;
        if (frame.method && frame.instruction)
            frames[depth] = known_frame(thread, ruby, &frame);
        depth += frame.method && frame.instruction && frames[depth].code != 0;
    }
    return depth;
}

struct interpreter *ruby_of(struct tracee *thread, uint64_t base, const char *path)
{
    struct symbols symbols;
    if (!(module_begins(path, "ruby") || module_begins(path, "libruby")) || !symbols_of(thread, base, &symbols))
        return NULL;
    uint64_t version = symbol(thread, &symbols, "ruby_api_version");
    if (!version || (uint32_t)word_of(thread, version) < 3) /* the context is a variable of each thread since 3.0 */
        return NULL;
    struct ruby *ruby = interpreter_made(sizeof *ruby, frames_of);
    return &ruby->interpreter;
}
