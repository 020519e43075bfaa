/* What calls show of files that differs from run to run: inode and device numbers, times, blocks, free space, and the order of
 * names in a directory. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "nodes/parts.h"

#define BLOCK 512
#define FOLDER_BYTES 4096 /* a folder does not become smaller when names are removed, and nodes find those of earlier runs */
#define BLOCKS_OF_A_DISK (1ul << 28)
#define BUCKETS 1024u
#define ENTRIES_MOST 4096u

/* Files have numbers in the order in which their node first sees them. */
struct seen {
    const struct node *node;
    dev_t device;
    ino_t inode;
    uint64_t number;
    struct seen *next;
};

static struct timespec begin;
static struct seen *buckets[BUCKETS];
static uint64_t counts[NODES];

/* Files that were changed later than a folder was made have the time at which all runs begin. */
void files_since(const char *folder)
{
    struct stat state;
    if (stat(folder, &state) == 0)
        begin = state.st_ctim;
}

static uint64_t number_of(const struct node *node, dev_t device, ino_t inode)
{
    struct seen **at = &buckets[(device ^ inode) % BUCKETS];
    while (*at && ((*at)->node != node || (*at)->device != device || (*at)->inode != inode))
        at = &(*at)->next;
    if (!*at) {
        *at = calloc(1, sizeof **at);
        if (!*at)
            abort();
        **at = (struct seen){node, device, inode, ++counts[node->index], NULL};
    }
    return (*at)->number;
}

static struct timespec shown(struct timespec changed)
{
    bool later = changed.tv_sec > begin.tv_sec || (changed.tv_sec == begin.tv_sec && changed.tv_nsec >= begin.tv_nsec);
    return later ? (struct timespec){(time_t)(time_base(CLOCK_REALTIME) / SECOND), 0} : changed;
}

static enum then after(struct thread *thread)
{
    (void)thread;
    return AFTER;
}

/* fstat, stat, lstat, newfstatat */
static enum then stat_leave(struct thread *thread)
{
    struct stat state;
    uint64_t at = argument(thread, thread->called.orig_rax == SYS_newfstatat ? 2 : 1);
    if (thread->result != 0 || memory_read(thread, at, &state, sizeof state) != sizeof state)
        return ANSWER;
    state.st_ino = number_of(thread->process->node, state.st_dev, state.st_ino);
    state.st_dev = DEVICE;
    if (S_ISDIR(state.st_mode))
        state.st_size = FOLDER_BYTES;
    state.st_mtim = state.st_atim = state.st_ctim = shown(state.st_mtim);
    state.st_blocks = (state.st_size + BLOCK - 1) / BLOCK;
    memory_write(thread, at, &state, sizeof state);
    return ANSWER;
}

static enum then statx_leave(struct thread *thread)
{
    struct statx state;
    if (thread->result != 0 || memory_read(thread, argument(thread, 4), &state, sizeof state) != sizeof state)
        return ANSWER;
    struct timespec changed = shown((struct timespec){state.stx_mtime.tv_sec, state.stx_mtime.tv_nsec});
    state.stx_ino = number_of(thread->process->node, makedev(state.stx_dev_major, state.stx_dev_minor), state.stx_ino);
    state.stx_dev_major = 0;
    state.stx_dev_minor = DEVICE;
    if (S_ISDIR(state.stx_mode))
        state.stx_size = FOLDER_BYTES;
    state.stx_mtime.tv_sec = changed.tv_sec;
    state.stx_mtime.tv_nsec = (uint32_t)changed.tv_nsec;
    state.stx_atime = state.stx_ctime = state.stx_btime = state.stx_mtime;
    state.stx_blocks = (state.stx_size + BLOCK - 1) / BLOCK;
    memory_write(thread, argument(thread, 4), &state, sizeof state);
    return ANSWER;
}

/* statfs, fstatfs */
static enum then statfs_leave(struct thread *thread)
{
    struct statfs state;
    if (thread->result != 0 || memory_read(thread, argument(thread, 1), &state, sizeof state) != sizeof state)
        return ANSWER;
    state.f_blocks = state.f_files = BLOCKS_OF_A_DISK;
    state.f_bfree = state.f_bavail = state.f_ffree = BLOCKS_OF_A_DISK / 2;
    memset(&state.f_fsid, 0, sizeof state.f_fsid);
    memory_write(thread, argument(thread, 1), &state, sizeof state);
    return ANSWER;
}

static int by_name(const void *one, const void *other)
{
    const struct dirent64 *const *first = one, *const *second = other;
    return strcmp((*first)->d_name, (*second)->d_name);
}

/* getdents64: in the order of names, as far as one call lists them. */
static enum then list_leave(struct thread *thread)
{
    const struct dirent64 *entries[ENTRIES_MOST];
    off64_t offsets[ENTRIES_MOST];
    size_t size = thread->result > 0 ? (size_t)thread->result : 0, entry_count = 0, to = 0;
    struct stat folder = {.st_dev = 0};
    int ours = descriptor_ours(thread, (int)argument(thread, 0));
    if (ours >= 0) {
        fstat(ours, &folder);
        close(ours);
    }
    char *list = malloc(size + 1), *sorted = malloc(size + 1);
    if (!list || !sorted)
        abort();
    if (!size || memory_read(thread, argument(thread, 1), list, size) != size)
        size = 0;
    for (size_t at = 0; at < size && entry_count < ENTRIES_MOST; at += entries[entry_count++]->d_reclen)
        entries[entry_count] = (const struct dirent64 *)(list + at);
    for (size_t i = 0; i < entry_count; i++)
        offsets[i] = entries[i]->d_off;
    qsort(entries, entry_count, sizeof *entries, by_name);
    for (size_t i = 0; i < entry_count; to += entries[i++]->d_reclen) {
        struct dirent64 *entry = memcpy(sorted + to, entries[i], entries[i]->d_reclen);
        entry->d_ino = number_of(thread->process->node, folder.st_dev, entry->d_ino);
        entry->d_off = offsets[i]; /* the last continues behind all of them */
    }
    if (to == size && size)
        memory_write(thread, argument(thread, 1), sorted, size);
    free(list);
    free(sorted);
    return ANSWER;
}

/* fsync, fdatasync, sync, syncfs: only our crashes lose what was written. A disk takes milliseconds to make it durable. */
static enum then sync_enter(struct thread *thread)
{
    struct stat state;
    if (thread->called.orig_rax == SYS_sync)
        return answer(thread, 0);
    int ours = descriptor_ours(thread, (int)argument(thread, 0));
    bool has_disk = ours >= 0 && fstat(ours, &state) == 0 && (S_ISREG(state.st_mode) || S_ISDIR(state.st_mode));
    if (ours >= 0)
        close(ours);
    return has_disk ? answer(thread, 0) : NATIVE;
}

const struct handler call_stat = {after, stat_leave, false};
const struct handler call_statx = {after, statx_leave, false};
const struct handler call_statfs = {after, statfs_leave, false};
const struct handler call_list = {after, list_leave, false};
const struct handler call_sync = {sync_enter, NULL, false};
