/* Which function of a bash script a thread is in, and in which line: from the variables that bash keeps of it, read from its memory
 * while it waits in a call. The command that bash forks has them, too, until it executes its program. */
#include <stdlib.h>
#include <string.h>

#include "syscalls/recorder.h"

#define LONGEST_CHAIN 256u  /* variables in a bucket */
#define SENTINEL UINT64_MAX /* the index of the element at which a list of an array begins and ends */

/* Offsets in bash's structures, of 4.0 to 5.3: VAR_CONTEXT, HASH_TABLE, BUCKET_CONTENTS. */
enum { CONTEXT_TABLE = 32, TABLE_BUCKETS = 0, TABLE_COUNT = 8, BUCKET_NEXT = 0, BUCKET_KEY = 8, BUCKET_DATA = 16 };

enum stack_variable { FUNCTIONS, SOURCES, LINES, NAMES }; /* of a stack, innermost first */
static const char *const names[NAMES] = {"FUNCNAME", "BASH_SOURCE", "BASH_LINENO"};

struct variable {           /* the beginning of a SHELL_VAR */
    uint64_t name, value;
};
struct element {            /* an ARRAY_ELEMENT */
    uint64_t index, value, next;
};
struct shell {
    struct interpreter interpreter;
    uint64_t line_number, global_variables, command; /* command: where the text of -c is */
    uint64_t variables[NAMES], names[NAMES]; /* addresses of the variables that were found, and of their names */
};
struct walk {               /* of an array */
    uint64_t head, element;
};

static uint32_t hash_of(const char *text)
{
    uint32_t hash = 2166136261u;
    for (; *text; text++)
        hash = hash * 16777619u ^ (unsigned char)*text;
    return hash;
}

static bool is_text(struct tracee *thread, uint64_t address, const char *text)
{
    char found[16];
    size_t size = strlen(text) + 1;
    return address && memory_read(thread, address, found, size) == size && memcmp(found, text, size) == 0;
}

static uint64_t find_variable(struct tracee *thread, const struct shell *shell, const char *name)
{
    uint64_t table = word_of(thread, word_of(thread, shell->global_variables) + CONTEXT_TABLE);
    uint32_t count = (uint32_t)word_of(thread, table + TABLE_COUNT);
    if (!table || !count)
        return 0;
    uint64_t bucket = word_of(thread, word_of(thread, table + TABLE_BUCKETS) + 8 * (uint64_t)(hash_of(name) & (count - 1)));
    for (unsigned i = 0; bucket && i < LONGEST_CHAIN; i++, bucket = word_of(thread, bucket + BUCKET_NEXT))
        if (is_text(thread, word_of(thread, bucket + BUCKET_KEY), name))
            return word_of(thread, bucket + BUCKET_DATA);
    return 0;
}

/* Begins at the innermost element. Where an array has its list is seen by the list: the oldest versions have a word more before. */
static struct walk array_of(struct tracee *thread, struct shell *shell, enum stack_variable name)
{
    uint64_t *at = &shell->variables[name], array[4];
    struct variable variable = {0};
    struct element head;
    if (*at && (memory_read(thread, *at, &variable, sizeof variable) != sizeof variable || variable.name != shell->names[name]))
        *at = 0; /* it was unset */
    if (!*at && (*at = find_variable(thread, shell, names[name])) != 0 &&
        memory_read(thread, *at, &variable, sizeof variable) == sizeof variable)
        shell->names[name] = variable.name;
    if (*at && memory_read(thread, variable.value, array, sizeof array) == sizeof array)
        for (unsigned word = 2; word < 4; word++)
            if (array[word] && memory_read(thread, array[word], &head, sizeof head) == sizeof head && head.index == SENTINEL)
                return (struct walk){array[word], head.next};
    return (struct walk){0, 0};
}

/* The text of the next element; false if there is none. */
static bool next_text(struct tracee *thread, struct walk *walk, char *to)
{
    struct element element;
    if (!walk->element || walk->element == walk->head ||
        memory_read(thread, walk->element, &element, sizeof element) != sizeof element || !memory_path(thread, element.value, to))
        return false;
    walk->element = element.next;
    return true;
}

static struct script_frame frame_of(struct tracee *thread, char *file, const char *function, uint32_t line)
{
    struct cc_code head = {.name_bytes = (uint32_t)strlen(function)};
    head.file_bytes = (uint32_t)path_absolute(thread, file, strlen(file));
    memcpy(file + head.file_bytes, function, head.name_bytes);
    return frame_at(thread, head, file, line, 0);
}

/* Whether the outermost function is that of a script: text that -c gives, or that is read from standard input, has none. */
static bool is_script(struct tracee *thread, struct walk functions)
{
    char function[PATH_ROOM] = "";
    while (next_text(thread, &functions, function))
        ;
    return strcmp(function, "main") == 0;
}

static size_t frames_of(struct tracee *thread, struct interpreter *interpreter, struct script_frame *frames, size_t most)
{
    static char file[2 * PATH_ROOM + PATH_MAX], function[PATH_ROOM], number[PATH_ROOM];
    struct shell *shell = (struct shell *)interpreter;
    uint32_t line = 0;
    size_t depth = 0;
    const char *given = shell->command && word_of(thread, shell->command) ? "<-c>" : "<stdin>";
    if (memory_read(thread, shell->line_number, &line, sizeof line) != sizeof line)
        return 0;
    struct walk functions = array_of(thread, shell, FUNCTIONS), sources = array_of(thread, shell, SOURCES);
    struct walk lines = array_of(thread, shell, LINES);
    bool in_file = is_script(thread, functions);
    while (depth < most && next_text(thread, &sources, file) && next_text(thread, &functions, function)) {
        if (strcmp(file, "environment") == 0) /* of a function that was defined on the command line, or inherited */
            strcpy(file, given[1] == '-' ? given : "<string>");
        else if (strncmp(file, "/dev/fd/", strlen("/dev/fd/")) == 0) /* source <(...): which number it has is chance */
            strcpy(file, "<string>");
        else if (strcmp(file, "/dev/stdin") == 0)
            strcpy(file, "<stdin>");
        else if (!in_file && strcmp(file, "main") == 0)
            strcpy(file, given);
        if (*file && *function)
            frames[depth++] = frame_of(thread, file, function, line);
        line = next_text(thread, &lines, number) ? (uint32_t)strtoul(number, NULL, 10) : 0;
    }
    if (!in_file && depth < most)
        frames[depth++] = frame_of(thread, strcpy(file, given), "main", line);
    return depth;
}

struct interpreter *shell_of(struct tracee *thread, uint64_t base, const char *path)
{
    struct symbols symbols;
    if (!module_begins(path, "bash") || !symbols_of(thread, base, &symbols))
        return NULL;
    uint64_t line_number = symbol(thread, &symbols, "line_number");
    uint64_t global_variables = symbol(thread, &symbols, "global_variables");
    if (!line_number || !global_variables)
        return NULL;
    struct shell *shell = interpreter_made(sizeof *shell, frames_of);
    shell->line_number = line_number;
    shell->global_variables = global_variables;
    shell->command = symbol(thread, &symbols, "command_execution_string");
    return &shell->interpreter;
}
