/* System calls on files: opening, writing, truncating, syncing. */
#define CC_MODELS_CALLS
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "interpose/model.h"
#include "interpose/streams.h"
#include "recorder/events.h"
#include "recorder/file_ids.h"
#include "recorder/output.h"
#include "recorder/pool_files.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"
#include "recorder/trace.h"

/* opening ------------------------------------------------------------------------------------------- */

struct opening {
    bool existed;
    struct file_state before;
};

static struct opening opening(int folder, const char *path, int flags)
{
    struct opening before = {.existed = true};
    if (flags & (O_CREAT | O_TRUNC))
        before.existed = path && cc_state_of_path(folder, path, 0, &before.before);
    if (!before.existed)
        before.before.size = 0;
    return before;
}

static void opened(where at, int fd, int flags, const struct opening *before)
{
    struct file_state state;
    if (fd < 0)
        return;
    int saved = errno;
    if (cc_state_of_fd(fd, &state)) {
        bool creates = (flags & O_CREAT) && !before->existed;
        bool resized = flags & (O_CREAT | O_TRUNC);
        uint16_t file = 0;
        if (creates || (flags & O_ACCMODE) != O_RDONLY) {
            cc_forget_inode(state.device, state.inode); /* the number of a deleted file may have come back */
            file = cc_pool_file_of(fd, &state, !creates, resized ? before->before.size : state.size);
        }
        if (file && creates)
            cc_event_at(at, (struct cc_event){.kind = CC_CREATE, .file = file});
        if (file && (flags & O_TRUNC) && before->existed && before->before.size)
            cc_event_at(at, (struct cc_event){.kind = CC_TRUNCATE, .file = file});
    }
    errno = saved;
}

#define OPENS(folder, path, flags, call)                                                                               \
    (__extension__({                                                                                                   \
        struct opening before_ = opening(folder, path, flags);                                                         \
        int fd_ = (call);                                                                                              \
        opened(at, fd_, flags, &before_);                                                                              \
        fd_;                                                                                                           \
    }))

/* The mode is passed on whether it was given or not: a register that nobody reads. */
#define VARIADIC_OPEN(name, folder, parameters, ...)                                                                   \
    static int name##_with_mode(bool modelled, where at, int folder_, const char *path, int flags, mode_t mode)        \
    {                                                                                                                  \
        (void)folder_;                                                                                                 \
        CALLED_AT(at);                                                                                                 \
        if (!modelled)                                                                                                 \
            return REAL(name)(__VA_ARGS__, flags, mode);                                                               \
        return OPENS(folder, path, flags, REAL(name)(__VA_ARGS__, flags, mode));                                       \
    }                                                                                                                  \
    EXPORTED int cc_wrap_##name parameters;                                                                            \
    EXPORTED int cc_wrap_##name parameters                                                                             \
    {                                                                                                                  \
        where at = cc_from_wrapper();                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        return name##_with_mode(MODELLED(), at, FOLDER_OF_##name, path, flags, mode);                                  \
    }                                                                                                                  \
    OUTSIDE(int, name, parameters, {                                                                                   \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                        \
        va_end(rest);                                                                                                  \
        bool modelled = MODELLED() && !cc_thread.inside;                                                               \
        return name##_with_mode(modelled, cc_from_outside(), FOLDER_OF_##name, path, flags, mode);                     \
    })

#define FOLDER_OF_open AT_FDCWD
#define FOLDER_OF_open64 AT_FDCWD
#define FOLDER_OF_openat folder
#define FOLDER_OF_openat64 folder
VARIADIC_OPEN(open, AT_FDCWD, (const char *path, int flags, ...), path)
VARIADIC_OPEN(open64, AT_FDCWD, (const char *path, int flags, ...), path)
VARIADIC_OPEN(openat, folder_, (int folder, const char *path, int flags, ...), folder_, path)
VARIADIC_OPEN(openat64, folder_, (int folder, const char *path, int flags, ...), folder_, path)
MODEL(int, creat, (const char *path, mode_t mode), REAL(creat)(path, mode),
      OPENS(AT_FDCWD, path, O_CREAT | O_TRUNC | O_WRONLY, REAL(creat)(path, mode)))
MODEL(int, creat64, (const char *path, mode_t mode), REAL(creat64)(path, mode),
      OPENS(AT_FDCWD, path, O_CREAT | O_TRUNC | O_WRONLY, REAL(creat64)(path, mode)))
MODEL(int, __open_2, (const char *path, int flags), REAL(__open_2)(path, flags),
      OPENS(AT_FDCWD, path, flags, REAL(__open_2)(path, flags)))
MODEL(int, __open64_2, (const char *path, int flags), REAL(__open64_2)(path, flags),
      OPENS(AT_FDCWD, path, flags, REAL(__open64_2)(path, flags)))
MODEL(int, __openat_2, (int folder, const char *path, int flags), REAL(__openat_2)(folder, path, flags),
      OPENS(folder, path, flags, REAL(__openat_2)(folder, path, flags)))
MODEL(int, __openat64_2, (int folder, const char *path, int flags), REAL(__openat64_2)(folder, path, flags),
      OPENS(folder, path, flags, REAL(__openat64_2)(folder, path, flags)))

/* fopen opens behind the interposer's back; its mode shows how. */
static int flags_of_mode(const char *mode)
{
    int flags = mode && mode[0] == 'r' ? O_RDONLY : O_WRONLY | O_CREAT;
    if (mode && mode[0] == 'w')
        flags |= O_TRUNC;
    for (const char *c = mode; c && *c && *c != ','; c++)
        if (*c == '+')
            flags = (flags & ~O_ACCMODE) | O_RDWR;
    return flags;
}

static FILE *stream_opened(where at, FILE *stream, int flags, const struct opening *before)
{
    if (stream) {
        opened(at, fileno(stream), flags, before);
        cc_stream_opened(stream);
    }
    return stream;
}
#define FOPENS(path, mode, call)                                                                                       \
    (__extension__({                                                                                                   \
        int flags_ = flags_of_mode(mode);                                                                              \
        struct opening before_ = opening(AT_FDCWD, path, flags_);                                                      \
        stream_opened(at, call, flags_, &before_);                                                                     \
    }))
MODEL(FILE *, fopen, (const char *path, const char *mode), REAL(fopen)(path, mode), FOPENS(path, mode, REAL(fopen)(path, mode)))
MODEL(FILE *, fopen64, (const char *path, const char *mode), REAL(fopen64)(path, mode),
      FOPENS(path, mode, REAL(fopen64)(path, mode)))
MODEL(FILE *, freopen, (const char *path, const char *mode, FILE *stream), REAL(freopen)(path, mode, stream),
      (cc_stream_closes(at, stream), FOPENS(path, mode, REAL(freopen)(path, mode, stream))))
MODEL(FILE *, freopen64, (const char *path, const char *mode, FILE *stream), REAL(freopen64)(path, mode, stream),
      (cc_stream_closes(at, stream), FOPENS(path, mode, REAL(freopen64)(path, mode, stream))))

/* writing ------------------------------------------------------------------------------------------- */

struct writing {
    uint16_t file;
    bool output, append;
    int flags;              /* of the open file, with those of this call */
    uint64_t seq;           /* the write's, then its sync's */
};

/* The open file's own flags have O_SYNC and O_APPEND, whichever duplicate of the descriptor set them. */
static struct writing writing(int fd, int call_flags)
{
    struct writing now = {0};
    struct file_state state;
    int saved = errno;
    if (cc_state_of_fd(fd, &state)) {
        now.output = cc_is_output(&state);
        now.file = cc_pool_file_of(fd, &state, true, state.size);
        if (now.file) {
            long flags = raw3(SYS_fcntl, fd, F_GETFL, 0);
            now.flags = raw_failed(flags) ? 0 : (int)flags;
            if (call_flags & RWF_SYNC)
                now.flags |= O_SYNC;
            if (call_flags & RWF_DSYNC)
                now.flags |= O_DSYNC;
            now.append = (now.flags & O_APPEND) || (call_flags & RWF_APPEND);
            now.seq = cc_number(2);
        }
    }
    errno = saved;
    return now;
}

static uint64_t where_written(int fd, const struct writing *now, uint64_t offset, uint64_t size, bool positioned)
{
    struct file_state state;
    if (now->append && positioned)
        return cc_state_of_fd(fd, &state) ? state.size - size : offset;
    if (!positioned)
        return (uint64_t)raw3(SYS_lseek, fd, 0, SEEK_CUR) - size;
    return offset;
}

/* Copies the next `room` bytes of a call's parts; `skip` bytes precede them. */
static void gather(unsigned char *to, uint64_t capacity, const struct iovec *parts, int count, uint64_t skip)
{
    for (int i = 0; i < count && capacity; i++) {
        if (skip >= parts[i].iov_len) {
            skip -= parts[i].iov_len;
            continue;
        }
        uint64_t part = parts[i].iov_len - skip < capacity ? parts[i].iov_len - skip : capacity;
        raw_move(to, (const char *)parts[i].iov_base + skip, part);
        to += part;
        capacity -= part;
        skip = 0;
    }
}

/* The bytes that a call wrote, as one update whatever its parts: the kernel copies them under one lock. */
static void parts_written(where at, const struct writing *now, const struct iovec *parts, int count, uint64_t start, uint64_t size)
{
    uint8_t flags = (uint8_t)((now->append ? CC_WRITE_APPEND : 0) | (now->flags & O_DIRECT ? CC_WRITE_DIRECT : 0));
    if (count == 1) {
        cc_write_event(at, now->seq, now->file, start, parts[0].iov_base, size, flags);
        return;
    }
    unsigned char few[512];
    uint64_t capacity = size < LONGEST_UPDATE ? size : LONGEST_UPDATE;
    unsigned char *bytes = capacity <= sizeof few ? few : cc_scratch(1, capacity);
    uint64_t seq = now->seq;
    for (uint64_t done = 0; bytes && done < size; seq = 0) {
        uint64_t part = size - done <= capacity ? size - done : capacity - (start + done) % PAGE;
        gather(bytes, part, parts, count, done);
        cc_write_event(at, seq, now->file, start + done, bytes, part, flags);
        done += part;
    }
    if (bytes && bytes != few)
        cc_scratch_free(bytes, 1, capacity);
}

/* The sync that O_DSYNC makes of a write. It begins when the write does; after its other events if it has several. */
static void written_durably(where at, const struct writing *now, uint64_t start, uint64_t size)
{
    uint32_t kind = (now->flags & O_SYNC) == O_SYNC ? CC_OSYNC : CC_ODSYNC;
    uint32_t range = size > UINT32_MAX ? 0 : (uint32_t)size;
    uint64_t begin = cc_event_at(at, (struct cc_event){.kind = CC_SYNC_BEGIN,
                                                       .seq = size > LONGEST_UPDATE ? 0 : now->seq + 1,
                                                       .aux = kind,
                                                       .file = now->file,
                                                       .offset = start,
                                                       .size = range});
    cc_sync_end(at, begin, kind, now->file, start, range, false);
}

static void written(where at, int fd, const struct writing *now, const struct iovec *parts, int count, uint64_t offset,
                    bool positioned, ssize_t result)
{
    int saved = errno;
    if (now->file && result > 0) {
        uint64_t size = (uint64_t)result, start = where_written(fd, now, offset, size, positioned);
        parts_written(at, now, parts, count, start, size);
        if (now->flags & O_DSYNC)
            written_durably(at, now, start, size);
    }
    if (now->output)
        cc_output(at);
    errno = saved;
}

#define WRITES(fd, bytes, size, offset, positioned, call)                                                              \
    (__extension__({                                                                                                   \
        struct writing now_ = writing(fd, 0);                                                                          \
        struct iovec part_ = {(void *)(uintptr_t)(bytes), size};                                                       \
        ssize_t result_ = (call);                                                                                      \
        written(at, fd, &now_, &part_, 1, (uint64_t)(offset), positioned, result_);                                    \
        result_;                                                                                                       \
    }))
#define WRITES_PARTS(fd, parts, count, offset, positioned, flags, call)                                                \
    (__extension__({                                                                                                   \
        struct writing now_ = writing(fd, flags);                                                                      \
        ssize_t result_ = (call);                                                                                      \
        written(at, fd, &now_, parts, count, (uint64_t)(offset), positioned, result_);                                 \
        result_;                                                                                                       \
    }))

MODEL(ssize_t, write, (int fd, const void *bytes, size_t size), REAL(write)(fd, bytes, size),
      WRITES(fd, bytes, size, 0, false, REAL(write)(fd, bytes, size)))
MODEL(ssize_t, pwrite, (int fd, const void *bytes, size_t size, off_t offset), REAL(pwrite)(fd, bytes, size, offset),
      WRITES(fd, bytes, size, offset, true, REAL(pwrite)(fd, bytes, size, offset)))
MODEL(ssize_t, pwrite64, (int fd, const void *bytes, size_t size, off64_t offset), REAL(pwrite64)(fd, bytes, size, offset),
      WRITES(fd, bytes, size, offset, true, REAL(pwrite64)(fd, bytes, size, offset)))
MODEL(ssize_t, writev, (int fd, const struct iovec *parts, int count), REAL(writev)(fd, parts, count),
      WRITES_PARTS(fd, parts, count, 0, false, 0, REAL(writev)(fd, parts, count)))
MODEL(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t offset), REAL(pwritev)(fd, parts, count, offset),
      WRITES_PARTS(fd, parts, count, offset, true, 0, REAL(pwritev)(fd, parts, count, offset)))
MODEL(ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off64_t offset),
      REAL(pwritev64)(fd, parts, count, offset),
      WRITES_PARTS(fd, parts, count, offset, true, 0, REAL(pwritev64)(fd, parts, count, offset)))
MODEL(ssize_t, pwritev2, (int fd, const struct iovec *parts, int count, off_t offset, int flags),
      REAL(pwritev2)(fd, parts, count, offset, flags),
      WRITES_PARTS(fd, parts, count, offset, offset != -1, flags, REAL(pwritev2)(fd, parts, count, offset, flags)))
MODEL(ssize_t, pwritev64v2, (int fd, const struct iovec *parts, int count, off64_t offset, int flags),
      REAL(pwritev64v2)(fd, parts, count, offset, flags),
      WRITES_PARTS(fd, parts, count, offset, offset != -1, flags, REAL(pwritev64v2)(fd, parts, count, offset, flags)))

/* Copies between files within the kernel: named, not followed. */
static void copies_into(where at, int fd, const char *name, ssize_t result)
{
    int saved = errno;
    uint16_t file = result > 0 ? cc_pool_file(fd) : 0;
    if (file)
        cc_unmodelled(at, file, name);
    errno = saved;
}
#define COPIES(name, fd, call)                                                                                         \
    (__extension__({                                                                                                   \
        ssize_t result_ = (call);                                                                                      \
        copies_into(at, fd, #name, result_);                                                                           \
        result_;                                                                                                       \
    }))
MODEL(ssize_t, sendfile, (int to, int from, off_t *offset, size_t size), REAL(sendfile)(to, from, offset, size),
      COPIES(sendfile, to, REAL(sendfile)(to, from, offset, size)))
MODEL(ssize_t, sendfile64, (int to, int from, off64_t *offset, size_t size), REAL(sendfile64)(to, from, offset, size),
      COPIES(sendfile, to, REAL(sendfile64)(to, from, offset, size)))
MODEL(ssize_t, copy_file_range, (int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags),
      REAL(copy_file_range)(from, from_at, to, to_at, size, flags),
      COPIES(copy_file_range, to, REAL(copy_file_range)(from, from_at, to, to_at, size, flags)))
MODEL(ssize_t, splice, (int from, off64_t *from_at, int to, off64_t *to_at, size_t size, unsigned flags),
      REAL(splice)(from, from_at, to, to_at, size, flags),
      COPIES(splice, to, REAL(splice)(from, from_at, to, to_at, size, flags)))

/* size and space ------------------------------------------------------------------------------------ */

struct sizing {
    uint16_t file;
    uint64_t seq, before;
};

static struct sizing sizing(int fd)
{
    struct sizing now = {0};
    struct file_state state;
    if (cc_state_of_fd(fd, &state) && (now.file = cc_pool_file_of(fd, &state, true, state.size))) {
        now.before = state.size;
        now.seq = cc_number(1);
    }
    return now;
}

static void sized(where at, int fd, const struct sizing *now)
{
    struct file_state state;
    int saved = errno;
    if (now->file && cc_state_of_fd(fd, &state) && state.size != now->before)
        cc_event_at(at, (struct cc_event){.kind = CC_TRUNCATE, .seq = now->seq, .file = now->file, .offset = state.size});
    errno = saved;
}
#define RESIZES(fd, call)                                                                                              \
    (__extension__({                                                                                                   \
        struct sizing now_ = sizing(fd);                                                                               \
        int result_ = (call);                                                                                          \
        sized(at, fd, &now_);                                                                                          \
        result_;                                                                                                       \
    }))
MODEL(int, ftruncate, (int fd, off_t size), REAL(ftruncate)(fd, size), RESIZES(fd, REAL(ftruncate)(fd, size)))
MODEL(int, ftruncate64, (int fd, off64_t size), REAL(ftruncate64)(fd, size), RESIZES(fd, REAL(ftruncate64)(fd, size)))
MODEL(int, posix_fallocate, (int fd, off_t offset, off_t size), REAL(posix_fallocate)(fd, offset, size),
      RESIZES(fd, REAL(posix_fallocate)(fd, offset, size)))
MODEL(int, posix_fallocate64, (int fd, off64_t offset, off64_t size), REAL(posix_fallocate64)(fd, offset, size),
      RESIZES(fd, REAL(posix_fallocate64)(fd, offset, size)))

static int allocate_space(where at, int fd, int mode, off64_t offset, off64_t size, int (*call)(int, int, off64_t, off64_t))
{
    struct sizing now = sizing(fd);
    int result = call(fd, mode, offset, size), saved = errno;
    if (!result && now.file && (mode & ~1 /* FALLOC_FL_KEEP_SIZE */))
        cc_unmodelled(at, now.file, "fallocate");
    sized(at, fd, &now);
    errno = saved;
    return result;
}
MODEL(int, fallocate, (int fd, int mode, off_t offset, off_t size), REAL(fallocate)(fd, mode, offset, size),
      allocate_space(at, fd, mode, offset, size, REAL(fallocate)))
MODEL(int, fallocate64, (int fd, int mode, off64_t offset, off64_t size), REAL(fallocate64)(fd, mode, offset, size),
      allocate_space(at, fd, mode, offset, size, REAL(fallocate64)))

static int truncate_path(where at, const char *path, off64_t size, int (*call)(const char *, off64_t))
{
    int fd = (int)raw3(SYS_open, (long)path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0);
    if (fd < 0)
        return call(path, size);
    int result = RESIZES(fd, call(path, size));
    raw3(SYS_close, fd, 0, 0);
    return result;
}
MODEL(int, truncate, (const char *path, off_t size), REAL(truncate)(path, size), truncate_path(at, path, size, REAL(truncate)))
MODEL(int, truncate64, (const char *path, off64_t size), REAL(truncate64)(path, size),
      truncate_path(at, path, size, REAL(truncate64)))

/* syncing ------------------------------------------------------------------------------------------- */

static int sync_file(where at, int fd, uint32_t kind, int (*call)(int))
{
    struct file_state state;
    char relative[PATH_ROOM];
    uint16_t file = 0;
    bool folder = false;
    int saved = errno;
    if (cc_state_of_fd(fd, &state)) {
        folder = (state.mode & S_IFMT) == S_IFDIR && cc_in_pool(fd, relative);
        file = folder ? 0 : cc_pool_file_of(fd, &state, true, state.size);
    }
    errno = saved;
    if (!file && !folder)
        return call(fd);
    uint64_t name = 0;
    if (folder) {
        kind = CC_DIRSYNC;
        name = raw_hash(RAW_HASH_START, relative);
    }
    uint64_t begin = cc_sync_begin(at, kind, file, name, 0);
    int result = call(fd);
    saved = errno;
    cc_sync_end(at, begin, kind, file, name, 0, result != 0);
    cc_output(at);
    errno = saved;
    return result;
}
MODEL(int, fsync, (int fd), REAL(fsync)(fd), sync_file(at, fd, CC_FSYNC, REAL(fsync)))
MODEL(int, fdatasync, (int fd), REAL(fdatasync)(fd), sync_file(at, fd, CC_FDATASYNC, REAL(fdatasync)))

static int sync_all(where at, int fd, int (*of_file)(int), void (*all)(void))
{
    uint64_t begin = cc_sync_begin(at, CC_SYNC, 0, 0, 0);
    int result = 0;
    if (of_file)
        result = of_file(fd);
    else
        all();
    int saved = errno;
    cc_sync_end(at, begin, CC_SYNC, 0, 0, 0, result != 0);
    cc_output(at);
    errno = saved;
    return result;
}
MODEL(int, syncfs, (int fd), REAL(syncfs)(fd), sync_all(at, fd, REAL(syncfs), NULL))
MODEL(void, sync, (void), REAL(sync)(), (void)sync_all(at, 0, NULL, REAL(sync)))

static int sync_range(where at, int fd, off64_t offset, off64_t size, unsigned flags)
{
    int saved = errno;
    uint16_t file = cc_pool_file(fd);
    uint32_t range = size > UINT32_MAX ? 0 : (uint32_t)size;
    uint64_t begin = file ? cc_sync_begin(at, CC_SYNC_RANGE, file, (uint64_t)offset, range) : 0;
    errno = saved;
    int result = REAL(sync_file_range)(fd, offset, size, flags);
    saved = errno;
    if (file)
        cc_sync_end(at, begin, CC_SYNC_RANGE, file, (uint64_t)offset, range, result != 0);
    errno = saved;
    return result;
}
MODEL(int, sync_file_range, (int fd, off64_t offset, off64_t size, unsigned flags),
      REAL(sync_file_range)(fd, offset, size, flags), sync_range(at, fd, offset, size, flags))
