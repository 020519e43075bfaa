/* Visits each pool file that there is, and the data of a file. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/pool_files.h"
#include "recorder/pool_walk.h"

struct entry { /* what getdents64 writes */
    uint64_t inode;
    int64_t next;
    uint16_t length;
    uint8_t type;
    char name[];
};

struct walk {
    cc_visit *visit;
    void *context;
    char relative[PATH_ROOM]; /* path of the folder that is read, inside the pool */
};

static bool is_dots(const char *name)
{
    return name[0] == '.' && (!name[1] || (name[1] == '.' && !name[2]));
}

static void walk(struct walk *walked, int at, size_t length);

/* One file of the folder `at`, or one of its folders. */
static void visit(struct walk *walked, int at, const char *name, size_t length)
{
    struct file_state state;
    if (!cc_state_of_path(at, name, AT_SYMLINK_NOFOLLOW, &state))
        return;
    if ((state.mode & S_IFMT) == S_IFREG && cc_matches(walked->relative))
        walked->visit(at, name, walked->relative, walked->context);
    if ((state.mode & S_IFMT) != S_IFDIR)
        return;
    long folder = raw4(SYS_openat, at, (long)name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (raw_failed(folder))
        return;
    walk(walked, (int)folder, length);
    raw3(SYS_close, folder, 0, 0);
}

/* The folder `at`, whose path has `length` bytes. */
static void walk(struct walk *walked, int at, size_t length)
{
    char buffer[512] __attribute__((aligned(8))); /* small: a path has room for 2048 folders inside folders */
    long got;
    while ((got = raw3(SYS_getdents64, at, (long)buffer, sizeof buffer)) > 0) {
        const struct entry *entry;
        for (long i = 0; i < got; i += entry->length) {
            entry = (const struct entry *)(const void *)(buffer + i);
            size_t name = raw_length(entry->name), start = length;
            if (is_dots(entry->name) || start + name + 2 > PATH_ROOM)
                continue;
            if (start)
                walked->relative[start++] = '/';
            raw_move(walked->relative + start, entry->name, name + 1);
            visit(walked, at, entry->name, start + name);
            walked->relative[length] = 0;
        }
    }
}

void cc_walk_pool(cc_visit *each, void *context)
{
    static struct walk walked; /* not on the stack of a thread, which may be small */
    size_t length;
    long pool = raw3(SYS_open, (long)cc_pool(&length), O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (raw_failed(pool))
        return;
    walked.visit = each;
    walked.context = context;
    walked.relative[0] = 0;
    walk(&walked, (int)pool, 0);
    raw3(SYS_close, pool, 0, 0);
}

void cc_walk_data(int fd, uint64_t size, cc_visit_data *visit, void *context)
{
    for (long at = 0; (uint64_t)at < size;) {
        long data = raw3(SYS_lseek, fd, at, SEEK_DATA);
        if (data == -ENXIO)
            return;
        if (raw_failed(data)) /* the file system knows no holes */
            data = at;
        long hole = raw3(SYS_lseek, fd, data, SEEK_HOLE);
        if (raw_failed(hole))
            hole = (long)size;
        if (!visit(fd, (uint64_t)data, (uint64_t)hole, context))
            return;
        at = hole;
    }
}
