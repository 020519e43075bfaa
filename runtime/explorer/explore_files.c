/* The descriptors and files of an explored process. It may read what the crash images differ in, and write to anything else:
 * that is kept in the process (explorer/explore_written.c). */
#ifdef CC_SHARED
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

#include "explorer/decisions.h"
#include "explorer/exploration.h"
#include "explorer/file_calls.h"
#include "explorer/mapping_calls.h"
#include "explorer/section.h"
#include "explorer/state.h"
#include "explorer/written.h"

HERE static bool is_followed(long fd)
{
    return fd >= 0 && fd < (long)PLACES;
}

HERE static struct description *description_of(long number, long fd)
{
    if (!is_followed(fd))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    return &cc_run.descriptions[cc_run.description_of[fd]];
}

/* A new descriptor's open file: one that no other descriptor has. */
HERE static void describe(long fd, uint64_t place, uint64_t made)
{
    uint64_t used = 0;
    for (long other = 0; other < (long)PLACES; other++)
        used |= other == fd ? 0 : 1ull << cc_run.description_of[other];
    uint8_t free = 0;
    while (used >> free & 1)
        free++;
    cc_run.description_of[fd] = free;
    cc_run.descriptions[free] = (struct description){place, made};
}

/* Where this process is in a file: the kernel's own place is that of all processes. */
HERE static uint64_t *place_of(long number, long fd)
{
    uint64_t *place = &description_of(number, fd)->place;
    if (*place == NO_PLACE) {
        long now = raw3(SYS_lseek, fd, 0, SEEK_CUR);
        if (raw_failed(now))
            cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
        *place = (uint64_t)now;
    }
    return place;
}

HERE static long mode_of(long fd)
{
    return raw3(SYS_fcntl, fd, F_GETFL, 0);
}

/* Reads from a file as this process has written it, as its mapping has it, or, where none has, as its granules are here. */
HERE static long read_from(const ucontext_t *context, long number, const long *a, uint64_t offset)
{
    struct stat state;
    const struct written *file = cc_explore_written(a[0]);
    if (file) {
        uint64_t left = offset < file->size ? file->size - offset : 0, size = (uint64_t)a[2] < left ? (uint64_t)a[2] : left;
        raw_move((void *)a[1], file->bytes + offset, size);
        return (long)size;
    }
    long got = raw4(SYS_pread64, a[0], a[1], a[2], (long)offset);
    if (got > 0 && cc_explore_is_ours(a[0]) && !raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0))) {
        stir(cc_run.history, (uint64_t)number); /* where it forks now is not where an access to memory would */
        stir(cc_run.history, offset);
        struct file_range range = {state.st_dev, state.st_ino, offset, offset + (uint64_t)got};
        cc_explore_reads_file(context, &range, (char *)a[1]);
    }
    return got;
}

HERE long cc_explore_reads(const ucontext_t *context, long number, const long *a)
{
    if (lies_in_file((uintptr_t)a[1], (size_t)a[2]))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    long mode = mode_of(a[0]);
    if (raw_failed(mode) || (mode & O_ACCMODE) == O_WRONLY) /* the kernel knows which error that is */
        return raw4(number, a[0], a[1], a[2], a[3]);
    if (number == SYS_pread64)
        return read_from(context, number, a, (uint64_t)a[3]);
    uint64_t *place = place_of(number, a[0]);
    long got = read_from(context, number, a, *place);
    if (got > 0)
        *place += (uint64_t)got;
    return got;
}

/* A file that may be written to: from now on this process has it for itself. */
HERE static struct written *own(long number, long fd)
{
    if (cc_explore_is_ours(fd))
        cc_explore_refuse(CC_EXPLORE_FILE_READ, (uint32_t)number);
    if (cc_explore_is_copied(fd))
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    return cc_explore_copy(number, fd);
}

HERE static long write_to(long number, long fd, const void *from, size_t size, uint64_t at)
{
    struct stat state;
    long mode = mode_of(fd), failed = raw3(SYS_fstat, fd, (long)&state, 0);
    if (raw_failed(mode) || raw_failed(failed) || (mode & O_ACCMODE) == O_RDONLY)
        return -EBADF;
    if (lies_in_file((uintptr_t)from, size))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    struct written *file = cc_explore_written(fd);
    if (!file && S_ISCHR(state.st_mode) && state.st_rdev == makedev(1, 3)) /* /dev/null */
        return (long)size;
    if (!file && !S_ISREG(state.st_mode))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    if (!file)
        file = own(number, fd);
    if (file->is_stream && at != NO_PLACE)
        return -ESPIPE;
    if (file->is_stream) {
        file->writers |= is_followed(fd) ? 1ull << cc_run.description_of[fd] : 0;
        cc_explore_put(file, file->size, from, size);
        return (long)size;
    }
    uint64_t *place = place_of(number, fd), to = mode & O_APPEND ? file->size : at == NO_PLACE ? *place : at;
    cc_explore_put(file, to, from, size);
    if (at == NO_PLACE)
        *place = to + size;
    return (long)size;
}

HERE long cc_explore_writes(long number, const long *a)
{
    return write_to(number, a[0], (const void *)a[1], (size_t)a[2], number == SYS_pwrite64 ? (uint64_t)a[3] : NO_PLACE);
}

HERE long cc_explore_writes_parts(long number, const long *a)
{
    const struct iovec *parts = (const struct iovec *)a[1];
    long all = 0;
    if (lies_in_file((uintptr_t)a[1], (size_t)a[2] * sizeof *parts))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    for (long i = 0; i < a[2]; i++) {
        long part = write_to(number, a[0], parts[i].iov_base, parts[i].iov_len, NO_PLACE);
        if (raw_failed(part))
            return part;
        all += part;
    }
    return all;
}

HERE long cc_explore_seeks(long number, const long *a)
{
    struct stat state;
    long now = raw3(SYS_lseek, a[0], 0, SEEK_CUR);
    if (raw_failed(now))
        return now;
    uint64_t *place = &description_of(number, a[0])->place;
    if (*place == NO_PLACE)
        *place = (uint64_t)now;
    long base = a[2] == SEEK_SET ? 0 : (long)*place;
    if (a[2] == SEEK_END && !raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0))) {
        const struct written *file = cc_explore_written(a[0]);
        base = file ? (long)file->size : state.st_size;
    } else if (a[2] != SEEK_SET && a[2] != SEEK_CUR) {
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    }
    if (base + a[1] < 0)
        return -EINVAL;
    *place = (uint64_t)(base + a[1]);
    return base + a[1];
}

/* The names in a folder, from this process's place on: no process changes those that the kernel has. */
HERE long cc_explore_lists(long number, const long *a)
{
    struct stat state;
    if (lies_in_file((uintptr_t)a[1], (size_t)a[2]))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    if (raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0)) || cc_explore_makes_in(&state))
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    uint64_t *place = place_of(number, a[0]);
    if (raw_failed(raw3(SYS_lseek, a[0], (long)*place, SEEK_SET)))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    long got = raw3(number, a[0], a[1], a[2]);
    *place = (uint64_t)raw3(SYS_lseek, a[0], 0, SEEK_CUR);
    return got;
}

/* Opens a file that this process made: the kernel does not have it. */
HERE static long open_made(long number, struct written *file, long flags)
{
    if ((flags & O_CREAT) && (flags & O_EXCL))
        return -EEXIST;
    if (flags & O_DIRECTORY)
        return -ENOTDIR;
    long fd = raw3(SYS_open, (long)"/dev/null", flags & ~(O_CREAT | O_EXCL | O_TRUNC | O_NOFOLLOW), 0);
    if (raw_failed(fd))
        return fd;
    if (!is_followed(fd))
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    describe(fd, 0, 1 + (uint64_t)(file - cc_run.written));
    if (flags & O_TRUNC)
        cc_explore_cut(file, 0);
    return fd;
}

/* Opens a file that the kernel has; it is neither made nor cut there. */
HERE static long open_there(long number, long folder, const char *path, long flags, long mode)
{
    struct stat state;
    long fd = raw4(SYS_openat, folder, (long)path, flags & ~(O_CREAT | O_EXCL | O_TRUNC), mode);
    if (raw_failed(fd))
        return fd;
    if ((flags & O_CREAT) && (flags & O_EXCL)) {
        raw3(SYS_close, fd, 0, 0);
        return -EEXIST;
    }
    if (is_followed(fd))
        describe(fd, NO_PLACE, 0);
    if (raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)) || !S_ISREG(state.st_mode))
        return fd;
    struct written *file = cc_explore_written_as(&state);
    if (file && file->is_stream) /* standard output is a file, whose beginning this would overwrite */
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    if ((flags & O_TRUNC) && (file || state.st_size))
        cc_explore_cut(file ? file : own(number, fd), 0);
    return fd;
}

HERE long cc_explore_opens(long number, const long *a)
{
    const long *rest = number == SYS_openat ? a + 1 : a;
    long folder = number == SYS_openat ? a[0] : AT_FDCWD;
    long flags = number == SYS_creat ? O_CREAT | O_WRONLY | O_TRUNC : rest[1], mode = rest[number == SYS_creat ? 1 : 2];
    const char *path = (const char *)rest[0];
    char link;
    if ((flags & __O_TMPFILE) == __O_TMPFILE) /* which has the bit of O_DIRECTORY, too */
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    cc_explore_stir_bytes(cc_run.history, path, raw_length(path));
    struct written *made = cc_explore_made(folder, path);
    if (made)
        return open_made(number, made, flags);
    long fd = open_there(number, folder, path, flags, mode);
    if (fd != -ENOENT || !(flags & O_CREAT))
        return fd;
    if (!raw_failed(raw4(SYS_readlinkat, folder, (long)path, (long)&link, 1))) /* it would be made elsewhere */
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    long failed = cc_explore_make(number, folder, path, (uint32_t)mode, &made);
    return raw_failed(failed) ? failed : open_made(number, made, flags & ~(O_CREAT | O_EXCL));
}

HERE static long duplicated(long number, long from, long to)
{
    if (raw_failed(to) || to == from)
        return to;
    if (!is_followed(from) || !is_followed(to))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    cc_run.description_of[to] = cc_run.description_of[from];
    return to;
}

HERE long cc_explore_duplicates(long number, const long *a)
{
    return duplicated(number, a[0], raw3(number, a[0], a[1], a[2]));
}

HERE long cc_explore_resizes(long number, const long *a)
{
    struct stat state;
    struct written *file = cc_explore_written(a[0]);
    if (raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0)))
        return -EBADF;
    if (!file && state.st_size == a[1])
        return 0;
    if (a[1] < 0 || (mode_of(a[0]) & O_ACCMODE) == O_RDONLY || (file ? file->is_stream : !S_ISREG(state.st_mode)))
        return -EINVAL;
    cc_explore_cut(file ? file : own(number, a[0]), (uint64_t)a[1]);
    return 0;
}

HERE long cc_explore_syncs(long number, const long *a)
{
    const struct written *file = cc_explore_written(a[0]);
    return file && !file->is_stream ? 0 : raw3(number, a[0], 0, 0);
}

/* What the kernel does not know of a file that this process made or wrote to. */
HERE static long asks_of_made(long number, const struct written *made, const long *a)
{
    switch (number) {
    case SYS_stat:
    case SYS_lstat:
        cc_explore_show(made, (struct stat *)a[1]);
        return 0;
    case SYS_newfstatat:
        cc_explore_show(made, (struct stat *)a[2]);
        return 0;
    case SYS_access:
        return a[1] & X_OK && !(made->mode & 0111) ? -EACCES : 0;
    case SYS_faccessat:
    case SYS_faccessat2:
        return a[2] & X_OK && !(made->mode & 0111) ? -EACCES : 0;
    case SYS_readlink:
    case SYS_readlinkat:
        return -EINVAL;
    default:
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    }
}

HERE long cc_explore_asks(long number, const long *a)
{
    bool in_folder = number == SYS_newfstatat || number == SYS_faccessat || number == SYS_faccessat2 || number == SYS_readlinkat ||
                     number == SYS_statx;
    const char *path = number == SYS_fstat ? "" : (const char *)a[in_folder];
    long folder = in_folder ? a[0] : AT_FDCWD;
    const struct written *file = *path ? cc_explore_made(folder, path) : number == SYS_readlinkat ? NULL : cc_explore_written(a[0]);
    if (*path && file)
        return asks_of_made(number, file, a);
    long got = raw6(number, a[0], a[1], a[2], a[3], a[4], 0);
    if (raw_failed(got))
        return got;
    struct stat of_path, *state = &of_path;
    switch (number) {
    case SYS_fstat:
    case SYS_stat:
    case SYS_lstat:
        state = (struct stat *)a[1];
        break;
    case SYS_newfstatat:
        state = (struct stat *)a[2];
        break;
    case SYS_statx:
        if (raw_failed(raw4(SYS_newfstatat, folder, (long)path, (long)state, a[2] & (AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))))
            cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
        break;
    default:
        return got;
    }
    if (*path)
        file = cc_explore_written_as(state);
    if (!file || file->is_stream)
        return got;
    if (number == SYS_statx)
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    cc_explore_show(file, state);
    return got;
}

/* A lock of the whole process: there is no other that could hold one, and those that wait for their children must not. */
HERE static bool is_lock(long command)
{
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

HERE static bool asks_for_lock(long command)
{
    return command == F_GETLK || command == F_OFD_GETLK;
}

HERE static long locks(const long *a)
{
    struct flock *lock = (struct flock *)a[2];
    long mode = mode_of(a[0]);
    if (raw_failed(mode))
        return mode;
    if (lies_in_file((uintptr_t)a[2], sizeof(struct flock)))
        cc_explore_refuse(CC_EXPLORE_PASSED, SYS_fcntl);
    short type = lock->l_type;
    if (asks_for_lock(a[1])) {
        lock->l_type = F_UNLCK;
        return type == F_RDLCK || type == F_WRLCK ? 0 : -EINVAL;
    }
    bool may = type == F_UNLCK || (mode & O_ACCMODE) == O_RDWR || (mode & O_ACCMODE) == (type == F_WRLCK ? O_WRONLY : O_RDONLY);
    return may ? 0 : -EBADF;
}

HERE long cc_explore_controls(long number, const long *a)
{
    if (number == SYS_fcntl && (is_lock(a[1]) || asks_for_lock(a[1])))
        return locks(a);
    if (number == SYS_fcntl && (a[1] == F_DUPFD || a[1] == F_DUPFD_CLOEXEC))
        return duplicated(number, a[0], raw3(number, a[0], a[1], a[2]));
    bool followed = number == SYS_ioctl ? a[1] == TCGETS || a[1] == TIOCGWINSZ || a[1] == FIOCLEX : a[1] == F_GETFD || a[1] == F_SETFD || a[1] == F_GETFL;
    if (!followed)
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    return raw3(number, a[0], a[1], a[2]);
}
#endif
