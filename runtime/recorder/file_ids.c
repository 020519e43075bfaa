/* Numbers of pool files: a list that all processes of the run share, and a cache of inodes before it. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "recorder/events.h"
#include "recorder/file_ids.h"
#include "recorder/locks.h"
#include "recorder/notes.h"
#include "recorder/process.h"
#include "recorder/trace.h"

#define INODES 4096u            /* cache of what is known of an inode; a lost entry is found again by path */

struct inode {
    uint64_t device, inode;
    uint16_t file;          /* 0: known not to be a pool file */
};

static char files_path[PATH_ROOM + 8];
static struct inode inodes[INODES];
static struct quiet_lock lock;

void cc_file_ids_reset_lock(void)
{
    atomic_store(&lock.held, 0);
}

static struct inode *slot_of(uint64_t device, uint64_t inode)
{
    return &inodes[(inode * 0x9e3779b97f4a7c15ull + device) >> 52];
}

/* What the cache knows: the id, 0 for a file that is no pool file, UINT32_MAX for nothing. */
static uint32_t cached(uint64_t device, uint64_t inode)
{
    uint64_t signals = cc_lock(&lock);
    struct inode *slot = slot_of(device, inode);
    uint32_t known = slot->inode == inode && slot->device == device && inode ? slot->file : UINT32_MAX;
    cc_unlock(&lock, signals);
    return known;
}

static void remember(uint64_t device, uint64_t inode, uint16_t file)
{
    uint64_t signals = cc_lock(&lock);
    *slot_of(device, inode) = (struct inode){device, inode, file};
    cc_unlock(&lock, signals);
}

void cc_forget_inode(uint64_t device, uint64_t inode)
{
    uint64_t signals = cc_lock(&lock);
    struct inode *slot = slot_of(device, inode);
    if (slot->inode == inode && slot->device == device)
        *slot = (struct inode){0, 0, 0};
    cc_unlock(&lock, signals);
}

/* The number of the line of the list that is `path`, from 1; 0 if there is none, and `lines` that there are. */
static uint32_t line_of(long fd, const char *path, size_t length, uint32_t *lines)
{
    char buffer[1024];
    size_t matched = 0;
    bool same = true;
    long got;
    while ((got = raw3(SYS_read, fd, (long)buffer, sizeof buffer)) > 0)
        for (long i = 0; i < got; i++) {
            if (buffer[i]) {
                same = same && matched < length && buffer[i] == path[matched];
                matched++;
                continue;
            }
            ++*lines;
            if (same && matched == length)
                return *lines;
            matched = 0;
            same = true;
        }
    return 0;
}

/* The id that `path` has in the whole run: all processes share a list beside the trace, one path a line, and the
 * line number is the id. The definition is recorded while the list is locked, so that it precedes every use. */
static uint16_t id_of_path(const char *path, bool existed, uint64_t size)
{
    if (!files_path[0])
        raw_append(files_path + raw_append(files_path, sizeof files_path, cc_trace_path), 8, ".files");
    long fd = raw3(SYS_open, (long)files_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (raw_failed(fd)) {
        cc_stop(CC_STATUS_DISK_FULL);
        return 0;
    }
    uint64_t signals = cc_block_signals(); /* a handler that wanted the list would wait for its own thread */
    raw3(SYS_flock, fd, LOCK_EX, 0);
    size_t length = raw_length(path);
    uint32_t lines = 0, id = line_of(fd, path, length, &lines);
    if (!id) {
        if (lines >= UINT16_MAX) {
            cc_stop(CC_STATUS_TOO_MANY);
        } else {
            id = lines + 1;
            __atomic_store_n(&cc_header->next_file, id + 1, __ATOMIC_RELAXED);
            cc_event_bytes(cc_from_outside(),
                           (struct cc_event){.kind = CC_FILE_DEF, .file = (uint16_t)id, .flags = existed, .offset = size},
                           NULL, 0, path, length);
            raw3(SYS_write, fd, (long)path, (long)length + 1);
        }
    }
    raw3(SYS_flock, fd, LOCK_UN, 0);
    raw3(SYS_close, fd, 0, 0);
    cc_restore_signals(signals);
    return (uint16_t)id;
}

uint16_t cc_file_of_path(const char *relative, bool existed, uint64_t size)
{
    uint16_t file = id_of_path(relative, existed, size);
    cc_uses_pool_file();
    return file;
}

static bool ends_with(const char *text, const char *tail)
{
    size_t length = raw_length(text), most = raw_length(tail);
    return length >= most && raw_same(text + length - most, tail, most);
}

/* The id of the open file; a new one is defined with its first state. Why a file in the pool
 * does not count is noted once. */
uint16_t cc_pool_file_of(int fd, const struct file_state *state, bool existed, uint64_t first_size)
{
    if ((state->mode & S_IFMT) != S_IFREG || state->device != cc_pool_state.device)
        return 0;
    uint32_t known = cached(state->device, state->inode);
    if (known != UINT32_MAX)
        return (uint16_t)known;
    char relative[PATH_ROOM];
    uint16_t id = 0;
    if (cc_in_pool(fd, relative)) {
        if (ends_with(relative, " (deleted)"))
            cc_note("deleted", relative);
        else if (cc_matches(relative))
            id = id_of_path(relative, existed, first_size);
        else
            cc_note("pattern", relative);
    }
    if (id)
        cc_uses_pool_file();
    if (cc_recording)
        remember(state->device, state->inode, id);
    return id;
}

uint16_t cc_pool_file(int fd)
{
    struct file_state state;
    return cc_state_of_fd(fd, &state) ? cc_pool_file_of(fd, &state, true, state.size) : 0;
}

uint16_t cc_known_inode(uint64_t device, uint64_t inode)
{
    uint32_t known = cached(device, inode);
    return known == UINT32_MAX ? 0 : (uint16_t)known;
}
