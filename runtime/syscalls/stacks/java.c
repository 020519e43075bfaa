/* Which Java methods make a call: our agent in the virtual machine (agents/java.c) notes them in the frame of the function through
 * which it passes a native method on. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "java_note.h"
#include "syscalls/recorder.h"

#define KNOWN 4096u         /* places of a process */
#define LONGEST_NAME 4096u

struct java {
    char folder[PATH_ROOM]; /* of the source that is run (java Save.java), with a "/", or "" */
    struct known_place {
        uint64_t address;
        struct script_frame frame;
    } known[KNOWN];
};

static struct java *java_of(struct process *process)
{
    if (!process->java && !(process->java = calloc(1, sizeof *process->java)))
        die("no memory");
    return process->java;
}

void java_runs(struct process *process, const char *source)
{
    struct java *java = java_of(process);
    const char *end = strrchr(source, '/');
    memcpy(java->folder, source, end ? (size_t)(end + 1 - source) : 0);
}

void java_end(struct process *process)
{
    free(process->java);
    process->java = NULL;
}

bool is_java_agent(const char *path)
{
    const char *name = strrchr(path, '/');
    return name && strcmp(name + 1, JAVA_AGENT) == 0;
}

/* Where the source of a class is: beside the one that is run, or where builds have it, in the working folder. */
static size_t find_source(struct tracee *thread, const struct java *java, char *path, size_t size)
{
    static const char *const folders[] = {"", "src/main/java/", "src/main/kotlin/", "src/", "src/test/java/", "app/src/main/java/"};
    static char tried[2 * PATH_ROOM];
    for (size_t i = 0; i <= sizeof folders / sizeof *folders; i++) {
        const char *folder = i ? folders[i - 1] : java->folder;
        size_t length = strlen(folder);
        if (length + size > PATH_MAX)
            continue;
        memcpy(tried, folder, length);
        memcpy(tried + length, path, size);
        size_t found = path_absolute(thread, tried, length + size);
        tried[found] = '\0';
        if (tried[0] != '/' || access(tried, R_OK) != 0 || found > PATH_MAX)
            continue;
        memcpy(path, tried, found);
        return found;
    }
    return size;
}

static struct script_frame read_place(struct tracee *thread, const struct java *java, uint64_t address)
{
    static char text[PATH_ROOM + LONGEST_NAME], name[LONGEST_NAME];
    struct cc_java_place place;
    struct cc_code head = {0};
    if (memory_read(thread, address, &place, sizeof place) != sizeof place || !place.file_bytes || !place.name_bytes ||
        place.file_bytes > PATH_MAX || place.name_bytes > sizeof name)
        return (struct script_frame){0};
    address += sizeof place;
    if (memory_read(thread, address, text, place.file_bytes) != place.file_bytes ||
        memory_read(thread, address + place.file_bytes, name, place.name_bytes) != place.name_bytes)
        return (struct script_frame){0};
    head.file_bytes = (uint32_t)find_source(thread, java, text, place.file_bytes);
    head.name_bytes = place.name_bytes;
    head.first_line = place.first_line;
    memcpy(text + head.file_bytes, name, head.name_bytes);
    return frame_at(thread, head, text, place.line, 0);
}

size_t java_frames(struct tracee *thread, uint64_t frame, struct script_frame *frames, size_t most)
{
    struct cc_java_note note;
    size_t count = 0;
    if (memory_read(thread, frame - sizeof note, &note, sizeof note) != sizeof note || note.magic != CC_JAVA_NOTE)
        return 0;
    struct java *java = java_of(thread->process);
    for (size_t i = 0; i < note.count && i < CC_JAVA_DEEPEST && count < most; i++) {
        struct known_place *known = &java->known[(note.place[i] >> 4) % KNOWN];
        if (known->address != note.place[i])
            *known = (struct known_place){note.place[i], read_place(thread, java, note.place[i])};
        if (known->frame.code)
            frames[count++] = known->frame;
    }
    return count;
}
