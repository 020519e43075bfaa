/* Streams: libc writes their files where no interposer sees it, so each call is followed by an inspection of the
 * buffer, the file and standard output. */
#define __NO_INLINE__ 1 /* keeps libc's inline bodies of the very functions defined here out */
#define CC_MODELS_CALLS
#include <errno.h>
#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/file.h>

#include "interpose/model.h"
#include "interpose/streams.h"
#include "recorder/events.h"
#include "recorder/file_ids.h"
#include "recorder/output.h"
#include "recorder/pool_files.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"

#undef fwrite_unlocked /* a macro of libc's when it optimises */

#define UNKNOWN SIZE_MAX

/* Streams on pool files that are open: exit flushes them inside libc. A page of them leads to the next; none is freed. */
#define STREAMS_A_PAGE (PAGE / sizeof(void *) - 1)
struct stream_page {
    struct stream_page *_Atomic next;
    FILE *_Atomic stream[STREAMS_A_PAGE];
};
static struct stream_page open_streams;

static struct stream_page *next_page(struct stream_page *page)
{
    struct stream_page *next = atomic_load(&page->next);
    if (next)
        return next;
    struct stream_page *new = cc_scratch(1, sizeof *new);
    if (!new || atomic_compare_exchange_strong(&page->next, &next, new))
        return new;
    cc_scratch_free(new, 1, sizeof *new);
    return next;
}

/* Puts `now` in the first place that holds `before`; whether there was one on this page. */
static bool exchange_stream(struct stream_page *page, FILE *before, FILE *now)
{
    for (size_t i = 0; i < STREAMS_A_PAGE; i++) {
        FILE *expected = before;
        if (atomic_compare_exchange_strong(&page->stream[i], &expected, now))
            return true;
    }
    return false;
}

static void flush_one(where at, FILE *stream);
static void flush_all(where at);

void cc_stream_opened(FILE *stream)
{
    int saved = errno;
    if (stream && cc_pool_file(fileno(stream))) {
        cc_flush_streams = flush_all;
        for (struct stream_page *page = &open_streams; page && !exchange_stream(page, NULL, stream);)
            page = next_page(page);
    }
    errno = saved;
}

void cc_stream_closes(where at, FILE *stream)
{
    flush_one(at, stream);
    for (struct stream_page *page = &open_streams; page; page = atomic_load(&page->next))
        exchange_stream(page, stream, NULL);
}

struct streaming {
    uint16_t file;
    size_t pending;         /* bytes in the stream's buffer before the call */
    uint64_t seq;
};

static struct streaming streaming(FILE *stream)
{
    struct streaming now = {0};
    int saved = errno;
    int fd = fileno(stream);
    if (fd >= 0 && (now.file = cc_pool_file(fd))) {
        flockfile(stream); /* so that the buffer's fill is this call's doing; the lock is recursive */
        now.pending = __fpending(stream);
        now.seq = cc_number(1);
    }
    errno = saved;
    return now;
}

/* Records `size` bytes before the descriptor's position as written, their content read back from the file. */
static void wrote_before_position(where at, uint64_t seq, uint16_t file, int fd, uint64_t size)
{
    long end = raw3(SYS_lseek, fd, 0, SEEK_CUR), reading = fd;
    long flags = raw3(SYS_fcntl, fd, F_GETFL, 0);
    bool known = end >= (long)size && !raw_failed(flags);
    if (known && (flags & O_ACCMODE) == O_WRONLY) {
        char path[FD_PATH_ROOM];
        cc_fd_path(fd, path);
        reading = raw3(SYS_open, (long)path, O_RDONLY | O_CLOEXEC, 0);
        known = !raw_failed(reading);
    }
    unsigned char block[PAGE * 4];
    uint64_t start = (uint64_t)end - size;
    for (uint64_t done = 0; known && done < size;) {
        /* Events end where pages do: what one event leaves of a page, one write left. */
        uint64_t capacity = sizeof block - (start + done) % PAGE, part = size - done < capacity ? size - done : capacity;
        long got = raw4(SYS_pread64, reading, (long)block, (long)part, (long)(start + done));
        known = got > 0;
        if (known) {
            cc_write_event(at, seq, file, start + done, block, (uint64_t)got, flags & O_APPEND ? CC_WRITE_APPEND : 0);
            done += (uint64_t)got;
            seq = 0;
        }
    }
    if (reading != fd && !raw_failed(reading))
        raw3(SYS_close, reading, 0, 0);
    if (!known)
        cc_unmodelled(at, file, "stdio");
}

/* `produced`: bytes that the call put into the stream. What is not in the buffer any more is in the file. */
static void streamed(where at, const struct streaming *now, FILE *stream, size_t produced)
{
    int saved = errno;
    if (now->file) {
        size_t left = __fpending(stream);
        if (produced == UNKNOWN)
            cc_unmodelled(at, now->file, "stdio");
        else if (now->pending + produced > left)
            wrote_before_position(at, now->seq, now->file, fileno(stream), now->pending + produced - left);
        funlockfile(stream);
    }
    cc_output(at);
    errno = saved;
}

#define STREAMS(type, stream, produced, call)                                                                          \
    (__extension__({                                                                                                   \
        FILE *stream_ = (stream);                                                                                      \
        struct streaming now_ = streaming(stream_);                                                                    \
        type got = (call);                                                                                             \
        streamed(at, &now_, stream_, produced);                                                                        \
        got;                                                                                                           \
    }))
#define MODEL_STREAMS(result, name, parameters, stream, produced, arguments)                                           \
    MODEL(result, name, parameters, REAL(name) arguments, STREAMS(result, stream, produced, REAL(name) arguments))
#define PRINTED (got < 0 ? 0 : (size_t)got)
#define ONE (got == EOF ? 0 : 1)

static void flush_one(where at, FILE *stream)
{
    if (__fpending(stream))
        (void)STREAMS(int, stream, 0, REAL(fflush)(stream));
}

static void flush_all(where at)
{
    for (struct stream_page *page = &open_streams; page; page = atomic_load(&page->next))
        for (size_t i = 0; i < STREAMS_A_PAGE; i++) {
            FILE *stream = atomic_load(&page->stream[i]);
            if (stream)
                flush_one(at, stream);
        }
}

/* writing ------------------------------------------------------------------------------------------- */

MODEL_STREAMS(size_t, fwrite, (const void *bytes, size_t size, size_t count, FILE *stream), stream, got *size,
              (bytes, size, count, stream))
MODEL_STREAMS(size_t, fwrite_unlocked, (const void *bytes, size_t size, size_t count, FILE *stream), stream, got *size,
              (bytes, size, count, stream))
MODEL_STREAMS(int, fputs, (const char *text, FILE *stream), stream, got < 0 ? 0 : raw_length(text), (text, stream))
MODEL_STREAMS(int, fputs_unlocked, (const char *text, FILE *stream), stream, got < 0 ? 0 : raw_length(text),
              (text, stream))
MODEL_STREAMS(int, puts, (const char *text), stdout, got < 0 ? 0 : raw_length(text) + 1, (text))
MODEL_STREAMS(int, fputc, (int byte, FILE *stream), stream, ONE, (byte, stream))
MODEL_STREAMS(int, fputc_unlocked, (int byte, FILE *stream), stream, ONE, (byte, stream))
MODEL_STREAMS(int, putc, (int byte, FILE *stream), stream, ONE, (byte, stream))
MODEL_STREAMS(int, putc_unlocked, (int byte, FILE *stream), stream, ONE, (byte, stream))
MODEL(int, _IO_putc, (int byte, FILE *stream), REAL(putc)(byte, stream), STREAMS(int, stream, ONE, REAL(putc)(byte, stream)))
MODEL_STREAMS(int, putchar, (int byte), stdout, ONE, (byte))
MODEL_STREAMS(int, putchar_unlocked, (int byte), stdout, ONE, (byte))
/* What an inlined putc_unlocked calls when the buffer is full. */
MODEL_STREAMS(int, __overflow, (FILE * stream, int byte), stream, byte == EOF ? 0 : ONE, (stream, byte))

MODEL_STREAMS(int, vfprintf, (FILE *restrict stream, const char *restrict format, va_list rest), stream, PRINTED,
              (stream, format, rest))
MODEL_STREAMS(int, vprintf, (const char *restrict format, va_list rest), stdout, PRINTED, (format, rest))
MODEL_STREAMS(int, __vfprintf_chk, (FILE * stream, int flag, const char *format, va_list rest), stream, PRINTED,
              (stream, flag, format, rest))
MODEL_STREAMS(int, __vprintf_chk, (int flag, const char *format, va_list rest), stdout, PRINTED, (flag, format, rest))

#define PRINTS_TO(name, parameters, last, stream, call)                                                                \
    EXPORTED int cc_wrap_##name parameters;                                                                            \
    EXPORTED int cc_wrap_##name parameters                                                                             \
    {                                                                                                                  \
        where at = cc_from_wrapper();                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, last);                                                                                          \
        CALLED_AT(at);                                                                                                 \
        int printed = MODELLED() ? STREAMS(int, stream, PRINTED, call) : (call);                                       \
        va_end(rest);                                                                                                  \
        return printed;                                                                                                \
    }                                                                                                                  \
    OUTSIDE(int, name, parameters, {                                                                                   \
        where at = cc_from_outside();                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, last);                                                                                          \
        CALLED_AT(at);                                                                                                 \
        int printed = MODELLED() && !cc_thread.inside ? STREAMS(int, stream, PRINTED, call) : (call);                  \
        va_end(rest);                                                                                                  \
        return printed;                                                                                                \
    })
PRINTS_TO(printf, (const char *restrict format, ...), format, stdout, REAL(vfprintf)(stdout, format, rest))
PRINTS_TO(fprintf, (FILE *restrict stream, const char *restrict format, ...), format, stream, REAL(vfprintf)(stream, format, rest))
PRINTS_TO(__printf_chk, (int flag, const char *format, ...), format, stdout, REAL(__vfprintf_chk)(stdout, flag, format, rest))
PRINTS_TO(__fprintf_chk, (FILE * stream, int flag, const char *format, ...), format, stream,
          REAL(__vfprintf_chk)(stream, flag, format, rest))

/* dprintf has no stream of its own that outlives the call. */
static int prints_to_fd(where at, int fd, int length, uint64_t seq)
{
    int saved = errno;
    uint16_t file = length > 0 ? cc_pool_file(fd) : 0;
    if (file)
        wrote_before_position(at, seq, file, fd, (uint64_t)length);
    cc_output(at);
    errno = saved;
    return length;
}
MODEL(int, vdprintf, (int fd, const char *restrict format, va_list rest), REAL(vdprintf)(fd, format, rest),
      prints_to_fd(at, fd, REAL(vdprintf)(fd, format, rest), 0))
MODEL(int, __vdprintf_chk, (int fd, int flag, const char *format, va_list rest), REAL(__vdprintf_chk)(fd, flag, format, rest),
      prints_to_fd(at, fd, REAL(__vdprintf_chk)(fd, flag, format, rest), 0))
#define PRINTS_TO_FD(name, parameters, call)                                                                           \
    EXPORTED int cc_wrap_##name parameters;                                                                            \
    EXPORTED int cc_wrap_##name parameters                                                                             \
    {                                                                                                                  \
        where at = cc_from_wrapper();                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, format);                                                                                        \
        CALLED_AT(at);                                                                                                 \
        int printed = call;                                                                                            \
        va_end(rest);                                                                                                  \
        return MODELLED() ? prints_to_fd(at, fd, printed, 0) : printed;                                                \
    }                                                                                                                  \
    OUTSIDE(int, name, parameters, {                                                                                   \
        va_list rest;                                                                                                  \
        va_start(rest, format);                                                                                        \
        CALLED_AT(cc_from_outside());                                                                                  \
        int printed = call;                                                                                            \
        va_end(rest);                                                                                                  \
        return MODELLED() && !cc_thread.inside ? prints_to_fd(cc_from_outside(), fd, printed, 0) : printed;            \
    })
PRINTS_TO_FD(dprintf, (int fd, const char *restrict format, ...), REAL(vdprintf)(fd, format, rest))
PRINTS_TO_FD(__dprintf_chk, (int fd, int flag, const char *format, ...), REAL(__vdprintf_chk)(fd, flag, format, rest))

/* flushing, moving, closing: the buffer is written out first, as these calls would do themselves --------- */

static int flush_any(where at, FILE *stream, int (*call)(FILE *))
{
    if (stream)
        return STREAMS(int, stream, 0, call(stream));
    flush_all(at);
    int result = call(NULL), saved = errno;
    cc_output(at);
    errno = saved;
    return result;
}
MODEL(int, fflush, (FILE * stream), REAL(fflush)(stream), flush_any(at, stream, REAL(fflush)))
MODEL(int, fflush_unlocked, (FILE * stream), REAL(fflush_unlocked)(stream), flush_any(at, stream, REAL(fflush_unlocked)))
MODEL_BEFORE(int, fclose, (FILE * stream), cc_stream_closes(at, stream), (stream))
MODEL_BEFORE(int, fseek, (FILE * stream, long offset, int whence), flush_one(at, stream), (stream, offset, whence))
MODEL_BEFORE(int, fseeko, (FILE * stream, off_t offset, int whence), flush_one(at, stream), (stream, offset, whence))
MODEL_BEFORE(int, fseeko64, (FILE * stream, off64_t offset, int whence), flush_one(at, stream),
             (stream, offset, whence))
MODEL_BEFORE(void, rewind, (FILE * stream), flush_one(at, stream), (stream))
MODEL_BEFORE(int, fsetpos, (FILE * stream, const fpos_t *place), flush_one(at, stream), (stream, place))

static FILE *stream_of_fd(FILE *stream)
{
    cc_stream_opened(stream);
    return stream;
}
MODEL(FILE *, fdopen, (int fd, const char *mode), REAL(fdopen)(fd, mode), stream_of_fd(REAL(fdopen)(fd, mode)))
