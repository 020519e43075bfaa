/* Numbers for the functions of scripts, as the trace defines them: by their names and files, not by where they are in memory. And
 * what all that read the frames of interpreters begin with. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define COLUMN_BITS 32 /* of an offset: the line is above them */

static struct table codes; /* by a hash of what they are, and its size */
static struct table files; /* by a hash of their paths, and the size of what was asked for; id: one of these */
enum { THERE = 1, MISSING };

const char *text_called(const char *file)
{
    return strcmp(file, "-e") == 0 ? "<-e>" : strcmp(file, "-") == 0 ? "<stdin>" : "<string>";
}

uint64_t bytes_hash(uint64_t hash, const void *bytes, size_t size)
{
    uint64_t word;
    for (size_t done = 0, part; done < size; done += part) {
        part = size - done < sizeof word ? size - done : sizeof word;
        word = part;
        memcpy(&word, (const char *)bytes + done, part);
        hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
        hash ^= hash >> 32;
    }
    return hash;
}

/* Puts a folder in front of a path if the file is there, or was when that was asked before; the size, 0 if it is not. */
static size_t path_within(const char *folder, size_t length, char *path, size_t size)
{
    char full[2 * PATH_ROOM];
    memcpy(full, folder, length);
    full[length] = '/';
    memcpy(full + length + 1, path, size);
    full[length + 1 + size] = '\0';
    struct pair *known = pair_in(&files, bytes_hash(HASH_START, full, length + 1 + size), size);
    if (known->id != THERE)
        known->id = access(full, F_OK) == 0 ? THERE : MISSING;
    if (known->id != THERE)
        return 0;
    memcpy(path, full, length + 1 + size);
    return length + 1 + size;
}

size_t path_absolute(struct tracee *thread, char *path, size_t size)
{
    char link[64], folder[PATH_ROOM];
    const char *first = thread->process->began_in;
    size_t absolute = 0;
    if (!size || path[0] == '/' || path[0] == '<' || size >= PATH_ROOM)
        return size;
    if (first)
        absolute = path_within(first, strlen(first), path, size);
    snprintf(link, sizeof link, "/proc/%d/cwd", thread->tid);
    ssize_t length = absolute ? 0 : readlink(link, folder, sizeof folder);
    if (length > 0)
        absolute = path_within(folder, (size_t)length, path, size);
    return absolute ? absolute : size;
}

uint32_t code_defined_as(struct tracee *thread, struct cc_code head, const char *bytes, size_t size)
{
    uint64_t hash = bytes_hash(bytes_hash(HASH_START, &head, sizeof head), bytes, size);
    struct pair *found = pair_in(&codes, hash, size);
    if (!found->id) {
        found->id = (uint32_t)codes.used;
        trace_bytes(thread, (struct cc_event){.kind = CC_CODE_DEF, .aux = found->id}, &head, sizeof head, bytes, size);
    }
    return found->id;
}

struct script_frame frame_at(struct tracee *thread, struct cc_code head, const char *file_and_name, uint32_t line, uint32_t column)
{
    uint32_t code = code_defined_as(thread, head, file_and_name, head.file_bytes + head.name_bytes);
    return (struct script_frame){code, (uint64_t)line << COLUMN_BITS | column};
}

void *interpreter_made(size_t size, frames_of_interpreter *frames)
{
    struct interpreter *interpreter = calloc(1, size);
    if (!interpreter)
        die("no memory");
    interpreter->frames = frames;
    return interpreter;
}
