/* Notes beside the trace, for whoever asks why nothing was recorded. */
#include <fcntl.h>

#include "recorder/notes.h"

#define NOTED 256u

static char notes_path[PATH_ROOM + 8];

void cc_notes_start(const char *trace)
{
    raw_append(notes_path + raw_append(notes_path, PATH_ROOM, trace), 8, ".notes");
}

/* True if this was noted before; forgets when it has much to remember. */
static bool was_noted(const char *reason, const char *path)
{
    static _Atomic uint64_t noted[NOTED];
    uint64_t hash = raw_hash(raw_hash(RAW_HASH_START, reason), path);
    return atomic_exchange(&noted[hash >> 56], hash) == hash;
}

/* One line per fact: reason, tab, path. */
void cc_note(const char *reason, const char *path)
{
    if (was_noted(reason, path))
        return;
    char line[PATH_ROOM + 64];
    size_t length = raw_append(line, 48, reason);
    line[length++] = '\t';
    length += raw_append(line + length, PATH_ROOM, path);
    for (size_t i = 0; i < length; i++)
        if (line[i] == '\n')
            line[i] = '?';
    line[length++] = '\n';
    long fd = raw3(SYS_open, (long)notes_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (raw_failed(fd))
        return;
    raw3(SYS_write, fd, (long)line, (long)length);
    raw3(SYS_close, fd, 0, 0);
}
