/* Calls that read into memory: from files, sockets, streams, and about the system. */
#include <errno.h>
#include <limits.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "interpose/fills.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"

#undef fread_unlocked /* a macro of libc's when it optimises */

/* `call` returns how many bytes it read, or -1. */
#define READS(target, size, call) FILLS(ssize_t, target, size, got < 0 ? 0 : (size_t)got, call)
/* `call` returns how many items of `size` bytes it read. */
#define ITEMS(target, size, count, call) FILLS(size_t, target, size *count, got *size, call)
/* `call` leaves a string, unless its result shows that it failed. */
#define TEXT(type, target, most, succeeded, call)                                                                      \
    FILLS(type, target, most, (succeeded) && target_ ? raw_length(target_) + 1 : 0, call)

MODEL(ssize_t, read, (int fd, void *target, size_t size), REAL(read)(fd, target, size),
      READS(target, size, REAL(read)(fd, target, size)))
MODEL(ssize_t, pread, (int fd, void *target, size_t size, off_t offset), REAL(pread)(fd, target, size, offset),
      READS(target, size, REAL(pread)(fd, target, size, offset)))
MODEL(ssize_t, pread64, (int fd, void *target, size_t size, off64_t offset), REAL(pread64)(fd, target, size, offset),
      READS(target, size, REAL(pread64)(fd, target, size, offset)))
MODEL(ssize_t, recv, (int fd, void *target, size_t size, int flags), REAL(recv)(fd, target, size, flags),
      READS(target, size, REAL(recv)(fd, target, size, flags)))
MODEL(ssize_t, __read_chk, (int fd, void *target, size_t size, size_t capacity), REAL(__read_chk)(fd, target, size, capacity),
      READS(target, size, REAL(__read_chk)(fd, target, size, capacity)))
MODEL(ssize_t, __pread_chk, (int fd, void *target, size_t size, off_t offset, size_t capacity),
      REAL(__pread_chk)(fd, target, size, offset, capacity),
      READS(target, size, REAL(__pread_chk)(fd, target, size, offset, capacity)))
MODEL(ssize_t, __pread64_chk, (int fd, void *target, size_t size, off64_t offset, size_t capacity),
      REAL(__pread64_chk)(fd, target, size, offset, capacity),
      READS(target, size, REAL(__pread64_chk)(fd, target, size, offset, capacity)))
MODEL(ssize_t, __recv_chk, (int fd, void *target, size_t size, size_t capacity, int flags),
      REAL(__recv_chk)(fd, target, size, capacity, flags), READS(target, size, REAL(__recv_chk)(fd, target, size, capacity, flags)))
MODEL(ssize_t, recvfrom, (int fd, void *target, size_t size, int flags, struct sockaddr *from, socklen_t *length),
      REAL(recvfrom)(fd, target, size, flags, from, length),
      READS(target, size, REAL(recvfrom)(fd, target, size, flags, from, length)))
MODEL(ssize_t, getrandom, (void *target, size_t size, unsigned flags), REAL(getrandom)(target, size, flags),
      READS(target, size, REAL(getrandom)(target, size, flags)))
MODEL(ssize_t, __recvfrom_chk,
      (int fd, void *target, size_t size, size_t capacity, int flags, struct sockaddr *from, socklen_t *length),
      REAL(__recvfrom_chk)(fd, target, size, capacity, flags, from, length),
      READS(target, size, REAL(__recvfrom_chk)(fd, target, size, capacity, flags, from, length)))

/* streams -------------------------------------------------------------------------------------------- */

MODEL(char *, fgets, (char *target, int size, FILE *stream), REAL(fgets)(target, size, stream),
      TEXT(char *, target, size > 0 ? (size_t)size : 0, got, REAL(fgets)(target, size, stream)))
MODEL(char *, fgets_unlocked, (char *target, int size, FILE *stream), REAL(fgets_unlocked)(target, size, stream),
      TEXT(char *, target, size > 0 ? (size_t)size : 0, got, REAL(fgets_unlocked)(target, size, stream)))
MODEL(char *, __fgets_chk, (char *target, size_t capacity, int size, FILE *stream),
      REAL(__fgets_chk)(target, capacity, size, stream),
      TEXT(char *, target, size > 0 ? (size_t)size : 0, got, REAL(__fgets_chk)(target, capacity, size, stream)))
MODEL(char *, __fgets_unlocked_chk, (char *target, size_t capacity, int size, FILE *stream),
      REAL(__fgets_unlocked_chk)(target, capacity, size, stream),
      TEXT(char *, target, size > 0 ? (size_t)size : 0, got, REAL(__fgets_unlocked_chk)(target, capacity, size, stream)))
MODEL(size_t, fread, (void *target, size_t size, size_t count, FILE *stream), REAL(fread)(target, size, count, stream),
      ITEMS(target, size, count, REAL(fread)(target, size, count, stream)))
MODEL(size_t, fread_unlocked, (void *target, size_t size, size_t count, FILE *stream),
      REAL(fread_unlocked)(target, size, count, stream),
      ITEMS(target, size, count, REAL(fread_unlocked)(target, size, count, stream)))
MODEL(size_t, __fread_chk, (void *target, size_t capacity, size_t size, size_t count, FILE *stream),
      REAL(__fread_chk)(target, capacity, size, count, stream),
      ITEMS(target, size, count, REAL(__fread_chk)(target, capacity, size, count, stream)))
MODEL(size_t, __fread_unlocked_chk, (void *target, size_t capacity, size_t size, size_t count, FILE *stream),
      REAL(__fread_unlocked_chk)(target, capacity, size, count, stream),
      ITEMS(target, size, count, REAL(__fread_unlocked_chk)(target, capacity, size, count, stream)))

/* about the system ----------------------------------------------------------------------------------- */

MODEL(ssize_t, readlink, (const char *path, char *target, size_t size), REAL(readlink)(path, target, size),
      READS(target, size, REAL(readlink)(path, target, size)))
MODEL(ssize_t, __readlink_chk, (const char *path, char *target, size_t size, size_t capacity),
      REAL(__readlink_chk)(path, target, size, capacity), READS(target, size, REAL(__readlink_chk)(path, target, size, capacity)))
MODEL(ssize_t, readlinkat, (int folder, const char *path, char *target, size_t size),
      REAL(readlinkat)(folder, path, target, size), READS(target, size, REAL(readlinkat)(folder, path, target, size)))
MODEL(ssize_t, __readlinkat_chk, (int folder, const char *path, char *target, size_t size, size_t capacity),
      REAL(__readlinkat_chk)(folder, path, target, size, capacity),
      READS(target, size, REAL(__readlinkat_chk)(folder, path, target, size, capacity)))
MODEL(char *, getcwd, (char *target, size_t size), REAL(getcwd)(target, size),
      TEXT(char *, target, size, got, REAL(getcwd)(target, size)))
MODEL(char *, __getcwd_chk, (char *target, size_t size, size_t capacity), REAL(__getcwd_chk)(target, size, capacity),
      TEXT(char *, target, size, got, REAL(__getcwd_chk)(target, size, capacity)))
MODEL(char *, realpath, (const char *restrict path, char *restrict target), REAL(realpath)(path, target),
      TEXT(char *, target, PATH_MAX, got, REAL(realpath)(path, target)))
MODEL(char *, __realpath_chk, (const char *path, char *target, size_t capacity), REAL(__realpath_chk)(path, target, capacity),
      TEXT(char *, target, PATH_MAX, got, REAL(__realpath_chk)(path, target, capacity)))
MODEL(int, gethostname, (char *target, size_t size), REAL(gethostname)(target, size),
      TEXT(int, target, size, !got, REAL(gethostname)(target, size)))
MODEL(int, __gethostname_chk, (char *target, size_t size, size_t capacity), REAL(__gethostname_chk)(target, size, capacity),
      TEXT(int, target, size, !got, REAL(__gethostname_chk)(target, size, capacity)))
MODEL_FILLS(int, getentropy, (void *target, size_t size), target, size, got ? 0 : size, (target, size))

/* several parts -------------------------------------------------------------------------------------- */

/* Numbers for parts of which some may be persistent memory; 0 if none is. */
static uint64_t will_fill_parts(const struct iovec *parts, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (cc_range_in_window(parts[i].iov_base, parts[i].iov_len))
            return cc_number((uint32_t)count);
    return 0;
}

static void has_filled_parts(where at, uint64_t seq, const struct iovec *parts, size_t count, ssize_t result)
{
    size_t left = result > 0 ? (size_t)result : 0;
    for (size_t i = 0; i < count && left; i++) {
        size_t part = parts[i].iov_len < left ? parts[i].iov_len : left;
        if (seq && cc_range_in_window(parts[i].iov_base, part))
            cc_has_filled(at, seq + i, parts[i].iov_base, part);
        left -= part;
    }
}

#define READS_PARTS(parts, count, call)                                                                                \
    (__extension__({                                                                                                   \
        size_t count_ = count > 0 ? (size_t)count : 0;                                                                 \
        uint64_t seq_ = will_fill_parts(parts, count_);                                                                \
        ssize_t result_ = (call);                                                                                      \
        has_filled_parts(at, seq_, parts, count_, result_);                                                            \
        result_;                                                                                                       \
    }))
MODEL(ssize_t, readv, (int fd, const struct iovec *parts, int count), REAL(readv)(fd, parts, count),
      READS_PARTS(parts, count, REAL(readv)(fd, parts, count)))
MODEL(ssize_t, preadv, (int fd, const struct iovec *parts, int count, off_t offset), REAL(preadv)(fd, parts, count, offset),
      READS_PARTS(parts, count, REAL(preadv)(fd, parts, count, offset)))
MODEL(ssize_t, preadv64, (int fd, const struct iovec *parts, int count, off64_t offset),
      REAL(preadv64)(fd, parts, count, offset), READS_PARTS(parts, count, REAL(preadv64)(fd, parts, count, offset)))
MODEL(ssize_t, preadv2, (int fd, const struct iovec *parts, int count, off_t offset, int flags),
      REAL(preadv2)(fd, parts, count, offset, flags), READS_PARTS(parts, count, REAL(preadv2)(fd, parts, count, offset, flags)))
MODEL(ssize_t, preadv64v2, (int fd, const struct iovec *parts, int count, off64_t offset, int flags),
      REAL(preadv64v2)(fd, parts, count, offset, flags),
      READS_PARTS(parts, count, REAL(preadv64v2)(fd, parts, count, offset, flags)))
MODEL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), REAL(recvmsg)(fd, message, flags),
      READS_PARTS(message->msg_iov, message->msg_iovlen, REAL(recvmsg)(fd, message, flags)))
