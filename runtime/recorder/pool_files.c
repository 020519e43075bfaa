/* Which files are recorded: paths inside the pool folder, and the patterns that they must match. */
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "glob.h"
#include "recorder/pool_files.h"

static char pool[PATH_ROOM];
static size_t pool_length;
struct file_state cc_pool_state;
static const char *patterns = ""; /* one a line */

void cc_pool_files_start(const char *folder, const char *globs)
{
    pool_length = raw_append(pool, sizeof pool, folder);
    while (pool_length > 1 && pool[pool_length - 1] == '/')
        pool[--pool_length] = 0;
    long fd = raw3(SYS_open, (long)pool, O_PATH | O_DIRECTORY | O_CLOEXEC, 0);
    if (!raw_failed(fd)) { /* the kernel reports its files by paths without symbolic links */
        pool_length = cc_real_path((int)fd, pool);
        raw3(SYS_close, fd, 0, 0);
    }
    /* Not in the environment, which the program may change. */
    size_t capacity = raw_length(globs) + 1;
    long copy = raw6(SYS_mmap, 0, (long)capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!raw_failed(copy)) {
        raw_move((void *)copy, globs, capacity);
        patterns = (const char *)copy;
    }
    cc_state_of_path(AT_FDCWD, pool, 0, &cc_pool_state);
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

void cc_fd_path(int fd, char path[FD_PATH_ROOM])
{
    char digits[12];
    size_t at = raw_append(path, FD_PATH_ROOM, "/proc/self/fd/"), count = 0;
    unsigned value = (unsigned)fd;
    do
        digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    while (count)
        path[at++] = digits[--count];
    path[at] = 0;
}

size_t cc_real_path(int fd, char *path)
{
    char name[FD_PATH_ROOM];
    cc_fd_path(fd, name);
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
bool cc_names_pool_file(int folder, const char *path, char *relative)
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
