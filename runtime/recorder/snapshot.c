/* A copy of the pool files as they are just before an event: what a crash of the process would leave. */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recorder/pool_walk.h"
#include "recorder/snapshot.h"

uint64_t cc_snapshot_seq = NO_SNAPSHOT;
uint32_t cc_snapshot_site = UINT32_MAX;
static char folder[PATH_ROOM];
static uint64_t chosen_key;
static uint32_t chosen_index;
static uint64_t chosen_count; /* 0: the event is chosen by its number */
static uint64_t counted;

void cc_snapshot_start(const char *seq, const char *after, const char *into)
{
    if (!into || raw_length(into) >= sizeof folder)
        return;
    raw_move(folder, into, raw_length(into) + 1);
    if (seq && *seq)
        cc_snapshot_seq = raw_number(&seq);
    if (after && *after) {
        chosen_key = raw_number(&after);
        chosen_index = (uint32_t)raw_number(&after);
        chosen_count = raw_number(&after);
    }
}

void cc_snapshot_unit(uint64_t key, uint32_t base)
{
    if (chosen_count && key == chosen_key)
        __atomic_store_n(&cc_snapshot_site, base + chosen_index, __ATOMIC_RELAXED);
}

/* The next event of any thread makes the copy: by then this thread has made the update that it has recorded. */
void cc_snapshot_count(uint64_t seq)
{
    if (__atomic_add_fetch(&counted, 1, __ATOMIC_RELAXED) == chosen_count)
        cc_snapshot_seq = seq + 1;
}

void cc_snapshot_child(void)
{
    counted = 0;
}

static void make_parents(int root, const char *relative)
{
    char path[PATH_ROOM];
    size_t length = raw_length(relative);
    for (size_t i = 0; i < length; i++) {
        if (relative[i] == '/') {
            path[i] = 0;
            raw3(SYS_mkdirat, root, (long)path, 0777);
        }
        path[i] = relative[i];
    }
}

static bool copy_data(int from, uint64_t at, uint64_t end, void *into)
{
    static char buffer[1 << 16];
    int to = *(int *)into;
    while (at < end) {
        long part = (long)(end - at < sizeof buffer ? end - at : sizeof buffer);
        part = raw4(SYS_pread64, from, (long)buffer, part, (long)at);
        if (part <= 0 || raw4(SYS_pwrite64, to, (long)buffer, part, (long)at) != part)
            break;
        at += (uint64_t)part;
    }
    return true;
}

/* Holes stay holes. */
static void copy(int from_folder, const char *name, int root, const char *relative)
{
    struct stat state;
    long from = raw4(SYS_openat, from_folder, (long)name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (raw_failed(from))
        return;
    make_parents(root, relative);
    long to = raw4(SYS_openat, root, (long)relative, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (!raw_failed(to) && !raw_failed(raw3(SYS_fstat, from, (long)&state, 0))) {
        int into = (int)to;
        raw3(SYS_ftruncate, to, state.st_size, 0);
        cc_walk_data((int)from, (uint64_t)state.st_size, copy_data, &into);
    }
    if (!raw_failed(to))
        raw3(SYS_close, to, 0, 0);
    raw3(SYS_close, from, 0, 0);
}

static void copy_into(int at, const char *name, const char *relative, void *root)
{
    copy(at, name, *(int *)root, relative);
}

/* The first thread of any process to get there makes the copy; making the folder is how it claims it. */
void cc_snapshot(void)
{
    cc_snapshot_seq = NO_SNAPSHOT;
    if (raw_failed(raw3(SYS_mkdir, (long)folder, 0777, 0)))
        return;
    long opened = raw3(SYS_open, (long)folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (raw_failed(opened))
        return;
    int root = (int)opened;
    cc_walk_pool(copy_into, &root);
    raw3(SYS_close, root, 0, 0);
}
