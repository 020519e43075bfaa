/* Which files are watched: their ids, found again by device and inode, and why other files are not. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "internal.h"

#define INODES 4096u            /* cache of what is known of an inode; a lost entry is found again by path */
#define PATTERNS_ROOM 8192u

static char pool[PATH_ROOM];
static size_t pool_length;
static struct file_state pool_state;
static char patterns[PATTERNS_ROOM];
static char files_path[PATH_ROOM + 8], notes_path[PATH_ROOM + 8];
static struct watched inodes[INODES];
static struct quiet_lock lock;

void cc_file_locks_reset(void)
{
    atomic_store(&lock.held, 0);
}

static size_t append(char *to, size_t room, const char *text)
{
    size_t length = raw_length(text);
    if (length >= room)
        length = room - 1;
    raw_move(to, text, length);
    to[length] = 0;
    return length;
}

void cc_watch_start(const char *folder, const char *globs)
{
    pool_length = append(pool, sizeof pool, folder);
    while (pool_length > 1 && pool[pool_length - 1] == '/')
        pool[--pool_length] = 0;
    long fd = raw3(SYS_open, (long)pool, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (!raw_failed(fd)) { /* the kernel will tell of its files without symbolic links */
        pool_length = cc_real_path((int)fd, pool);
        raw3(SYS_close, fd, 0, 0);
    }
    append(patterns, sizeof patterns, globs);
    cc_state_of_path(AT_FDCWD, pool, 0, &pool_state);
}

const char *cc_pool(size_t *length)
{
    *length = pool_length;
    return pool;
}

static void fill_state(const struct stat *from, struct file_state *to)
{
    to->device = from->st_dev;
    to->inode = from->st_ino;
    to->size = (uint64_t)from->st_size;
    to->mode = from->st_mode;
}

bool cc_state_of_fd(int fd, struct file_state *state)
{
    struct stat found;
    if (raw_failed(raw3(SYS_fstat, fd, (long)&found, 0)))
        return false;
    fill_state(&found, state);
    return true;
}

bool cc_state_of_path(int folder, const char *path, int flags, struct file_state *state)
{
    struct stat found;
    if (raw_failed(raw4(SYS_newfstatat, folder, (long)path, (long)&found, flags)))
        return false;
    fill_state(&found, state);
    return true;
}

/* patterns ------------------------------------------------------------------------------------------ */

/* One character of UTF-8; a byte that is none stands for itself, as in Python's file names. */
static uint32_t next_char(const char **text, const char *end)
{
    const unsigned char *at = (const unsigned char *)*text;
    uint32_t more = at[0] >= 0xf0 ? 3 : at[0] >= 0xe0 ? 2 : at[0] >= 0xc2 ? 1 : 0;
    uint32_t value = more == 3 ? at[0] & 7u : more == 2 ? at[0] & 15u : more == 1 ? at[0] & 31u : at[0];
    for (uint32_t i = 1; i <= more; i++) {
        if ((end && (const char *)at + i >= end) || (at[i] & 0xc0) != 0x80) {
            *text += 1;
            return 0xdc00u + at[0];
        }
        value = value << 6 | (at[i] & 63u);
    }
    *text += more + 1;
    return value < 0x80 || more ? value : 0xdc00u + value;
}

/* Reads the set after `[` up to its `]`: whether `c` is in it. NULL if the bracket never closes. */
static const char *in_set(const char *pattern, const char *end, uint32_t c, bool *inside)
{
    bool negated = pattern < end && *pattern == '!', found = false;
    if (negated)
        pattern++;
    for (bool first = true; pattern < end && (first || *pattern != ']'); first = false) {
        uint32_t low = next_char(&pattern, end), high = low;
        if (pattern + 1 < end && *pattern == '-' && pattern[1] != ']') {
            pattern++;
            high = next_char(&pattern, end);
        }
        found |= c >= low && c <= high;
    }
    *inside = found != negated;
    return pattern < end ? pattern + 1 : NULL;
}

/* `*` and `?` stay within a folder, `**` crosses folders, `[a-z]` and `[!a-z]` are sets: as runtime/patterns.py. */
static bool glob(const char *pattern, const char *end, const char *text)
{
    while (pattern < end) {
        if (*pattern == '*') {
            bool deep = ++pattern < end && *pattern == '*';
            if (deep) {
                pattern++;
                if (pattern < end && *pattern == '/' && glob(pattern + 1, end, text))
                    return true;
            }
            for (;; text++) {
                if (glob(pattern, end, text))
                    return true;
                if (!*text || (!deep && *text == '/'))
                    return false;
            }
        }
        if (!*text)
            return false;
        bool set = *pattern == '[', any = *pattern == '?', inside = false;
        uint32_t wanted = next_char(&pattern, end), c = next_char(&text, NULL);
        const char *after = set ? in_set(pattern, end, c, &inside) : NULL;
        if (after) {
            if (!inside || c == '/')
                return false;
            pattern = after;
        } else if (any ? c == '/' : c != wanted) {
            return false;
        }
    }
    return !*text;
}

bool cc_matches(const char *path)
{
    for (const char *line = patterns; *line;) {
        const char *end = line;
        while (*end && *end != '\n')
            end++;
        if (end > line && glob(line, end, path))
            return true;
        line = *end ? end + 1 : end;
    }
    return false;
}

/* paths --------------------------------------------------------------------------------------------- */

size_t cc_real_path(int fd, char *path)
{
    char name[32] = "/proc/self/fd/";
    char digits[12];
    size_t at = raw_length(name), count = 0;
    unsigned value = (unsigned)fd;
    do
        digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count)
        name[at++] = digits[--count];
    name[at] = 0;
    long length = raw3(SYS_readlink, (long)name, (long)path, PATH_ROOM - 1);
    if (raw_failed(length))
        length = 0;
    path[length] = 0;
    return (size_t)length;
}

static bool inside_pool(const char *path, size_t length, char *relative)
{
    if (length < pool_length || !raw_same(path, pool, pool_length) || (path[pool_length] && path[pool_length] != '/'))
        return false;
    const char *rest = path + pool_length;
    while (*rest == '/')
        rest++;
    raw_move(relative, rest, raw_length(rest) + 1);
    return true;
}

bool cc_in_pool(int fd, char *relative)
{
    char path[PATH_ROOM];
    return pool_length && inside_pool(path, cc_real_path(fd, path), relative);
}

/* The folder part is resolved by the kernel (an O_PATH descriptor), the last name is taken as it is. */
bool cc_watched_name(int folder, const char *path, char *relative)
{
    char parent[PATH_ROOM];
    size_t length = raw_length(path), cut = length;
    if (!pool_length || length >= sizeof parent)
        return false;
    while (cut && path[cut - 1] != '/')
        cut--;
    raw_move(parent, path, cut);
    parent[cut] = 0;
    long fd = raw4(SYS_openat, folder, (long)(cut ? parent : "."), O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (raw_failed(fd))
        return false;
    bool inside = cc_in_pool((int)fd, relative);
    raw3(SYS_close, fd, 0, 0);
    if (!inside)
        return false;
    size_t at = raw_length(relative);
    if (at + 1 + (length - cut) + 1 > PATH_ROOM)
        return false;
    if (at)
        relative[at++] = '/';
    raw_move(relative + at, path + cut, length - cut + 1);
    return relative[at] && cc_matches(relative);
}

/* notes --------------------------------------------------------------------------------------------- */

#define NOTED 256u

/* 64-bit FNV-1a; `hash` is CC_HASH_START or that of what came before. */
uint64_t cc_hash(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

/* True if this was noted before; forgets when it has much to remember. */
static bool was_noted(const char *reason, const char *path)
{
    static _Atomic uint64_t noted[NOTED];
    uint64_t hash = cc_hash(cc_hash(CC_HASH_START, reason), path);
    return atomic_exchange(&noted[hash >> 56], hash) == hash;
}

/* A line a fact for whoever asks why nothing was recorded: reason, tab, path. */
void cc_note(const char *reason, const char *path)
{
    if (was_noted(reason, path))
        return;
    if (!notes_path[0])
        append(notes_path + append(notes_path, sizeof notes_path, cc_trace_path), 8, ".notes");
    char line[PATH_ROOM + 64];
    size_t length = append(line, 48, reason);
    line[length++] = '\t';
    length += append(line + length, PATH_ROOM, path);
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

/* ids ----------------------------------------------------------------------------------------------- */

static struct watched *slot_of(uint64_t device, uint64_t inode)
{
    return &inodes[(inode * 0x9e3779b97f4a7c15ull + device) >> 52];
}

/* What the cache knows: the id, 0 for a file that is not watched, UINT32_MAX for nothing. */
static uint32_t cached(uint64_t device, uint64_t inode)
{
    uint64_t signals = cc_lock(&lock);
    struct watched *slot = slot_of(device, inode);
    uint32_t known = slot->inode == inode && slot->device == device && inode ? slot->file : UINT32_MAX;
    cc_unlock(&lock, signals);
    return known;
}

static void remember(uint64_t device, uint64_t inode, uint16_t file)
{
    uint64_t signals = cc_lock(&lock);
    *slot_of(device, inode) = (struct watched){device, inode, file};
    cc_unlock(&lock, signals);
}

void cc_forget_inode(uint64_t device, uint64_t inode)
{
    uint64_t signals = cc_lock(&lock);
    struct watched *slot = slot_of(device, inode);
    if (slot->inode == inode && slot->device == device)
        *slot = (struct watched){0, 0, 0};
    cc_unlock(&lock, signals);
}

/* The id that `path` has in the whole run: all processes share a list beside the trace, one path a line, and the
 * line number is the id. The definition is recorded while the list is locked, so that it precedes every use. */
static uint16_t id_of_path(const char *path, bool existed, uint64_t size)
{
    if (!files_path[0])
        append(files_path + append(files_path, sizeof files_path, cc_trace_path), 8, ".files");
    long fd = raw3(SYS_open, (long)files_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (raw_failed(fd)) {
        cc_stop(CC_STATUS_DISK_FULL);
        return 0;
    }
    uint64_t signals = cc_block_signals(); /* a handler that wanted the list would wait for its own thread */
    raw3(SYS_flock, fd, LOCK_EX, 0);
    char buffer[1024];
    size_t length = raw_length(path), matched = 0;
    uint32_t lines = 0, id = 0;
    bool same = true;
    long got;
    while (!id && (got = raw3(SYS_read, fd, (long)buffer, sizeof buffer)) > 0) {
        for (long i = 0; i < got && !id; i++) {
            if (buffer[i] == 0) {
                lines++;
                if (same && matched == length)
                    id = lines;
                matched = 0;
                same = true;
            } else {
                same = same && matched < length && buffer[i] == path[matched];
                matched++;
            }
        }
    }
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

static bool ends_with(const char *text, const char *tail)
{
    size_t length = raw_length(text), most = raw_length(tail);
    return length >= most && raw_same(text + length - most, tail, most);
}

/* The id of the open file; a new one is defined with what is said of its first state. Why a file in the pool
 * does not count is noted once. */
uint16_t cc_watched_state(int fd, const struct file_state *state, bool existed, uint64_t first_size)
{
    if ((state->mode & S_IFMT) != S_IFREG || state->device != pool_state.device)
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
    if (cc_recording)
        remember(state->device, state->inode, id);
    return id;
}

uint16_t cc_watched_fd(int fd)
{
    struct file_state state;
    return cc_state_of_fd(fd, &state) ? cc_watched_state(fd, &state, true, state.size) : 0;
}

uint16_t cc_known_inode(uint64_t device, uint64_t inode)
{
    uint32_t known = cached(device, inode);
    return known == UINT32_MAX ? 0 : (uint16_t)known;
}
