/* Library functions that write memory: what they store is taken from their source before they run, or from
 * their target after. */
#include <errno.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

#include "interpose/fills.h"
#include "recorder/events.h"
#include "recorder/loads.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"

/* True for the call that a compiler made of an intrinsic which its hook has recorded. */
static bool is_covered(where at, const void *target, size_t size)
{
    struct thread *thread = &cc_thread;
    bool covered = !at.unit && thread->covered == target && thread->covered_bytes == size;
    thread->covered = NULL;
    return covered;
}

void cc_copies(where at, void *target, const void *source, size_t size)
{
    cc_copied_from(at, source, size);
    if (cc_range_in_window(target, size) && !is_covered(at, target, size))
        cc_update(at, 0, target, source, 0, size, BULK, 0);
}

void cc_fills(where at, void *target, int byte, size_t size)
{
    if (cc_range_in_window(target, size) && !is_covered(at, target, size))
        cc_update(at, 0, target, NULL, byte & 0xff, size, BULK, 0);
}

MODEL_BEFORE(void *, memcpy, (void *restrict target, const void *restrict source, size_t size),
             cc_copies(at, target, source, size), (target, source, size))
MODEL_BEFORE(void *, memmove, (void *target, const void *source, size_t size), cc_copies(at, target, source, size),
             (target, source, size))
MODEL_BEFORE(void *, memset, (void *target, int byte, size_t size), cc_fills(at, target, byte, size),
             (target, byte, size))
MODEL_BEFORE(void *, mempcpy, (void *restrict target, const void *restrict source, size_t size),
             cc_copies(at, target, source, size), (target, source, size))
MODEL_BEFORE(void, bcopy, (const void *source, void *target, size_t size), cc_copies(at, target, source, size),
             (source, target, size))
MODEL_BEFORE(void, bzero, (void *target, size_t size), cc_fills(at, target, 0, size), (target, size))
MODEL_BEFORE(void, __explicit_bzero_chk, (void *target, size_t size, size_t capacity), cc_fills(at, target, 0, size),
             (target, size, capacity))
MODEL_BEFORE(void, explicit_bzero, (void *target, size_t size), cc_fills(at, target, 0, size), (target, size))

MODEL_BEFORE(char *, strcpy, (char *restrict target, const char *restrict source),
             cc_copies(at, target, source, raw_length(source) + 1), (target, source))
MODEL_BEFORE(char *, stpcpy, (char *restrict target, const char *restrict source),
             cc_copies(at, target, source, raw_length(source) + 1), (target, source))
MODEL_BEFORE(char *, strcat, (char *restrict target, const char *restrict source),
             cc_copies(at, target + raw_length(target), source, raw_length(source) + 1), (target, source))

uint64_t cc_will_fill(const void *target, size_t size)
{
    return cc_range_in_window(target, size) ? cc_number(1) : 0;
}

void cc_has_filled(where at, uint64_t seq, void *target, size_t size)
{
    int saved = errno;
    if (seq && size)
        cc_update(at, seq, target, target, 0, size, BULK, 0);
    errno = saved;
}

MODEL_FILLS(char *, strncpy, (char *restrict target, const char *restrict source, size_t size), target, size, size,
            (target, source, size))
MODEL_FILLS(char *, stpncpy, (char *restrict target, const char *restrict source, size_t size), target, size, size,
            (target, source, size))

/* Up to and with the first byte `end`, or all. */
static size_t length_to(const void *result, const void *target, size_t most)
{
    return result ? (size_t)((const char *)result - (const char *)target) : most;
}
MODEL_FILLS(void *, memccpy, (void *restrict target, const void *restrict source, int end, size_t size), target, size,
            length_to(got, target_, size), (target, source, end, size))

static size_t bounded_length(const char *text, size_t most)
{
    size_t length = 0;
    while (length < most && text[length])
        length++;
    return length;
}

MODEL_FILLS(char *, strncat, (char *restrict target, const char *restrict source, size_t size),
            target + raw_length(target), bounded_length(source, size) + 1, raw_length(target_) + 1,
            (target, source, size))

/* How much a printed string takes in a buffer of `room` bytes. */
static size_t printed(int length, size_t capacity)
{
    if (length < 0 || capacity == 0)
        return 0;
    return (size_t)length < capacity ? (size_t)length + 1 : capacity;
}

MODEL_FILLS(int, vsnprintf, (char *restrict target, size_t capacity, const char *restrict format, va_list rest), target,
            capacity, printed(got, capacity), (target, capacity, format, rest))
MODEL_FILLS(int, vsprintf, (char *restrict target, const char *restrict format, va_list rest), target, 1,
            printed(got, SIZE_MAX), (target, format, rest))
MODEL_FILLS(int, __vsnprintf_chk,
            (char *restrict target, size_t capacity, int flag, size_t size, const char *restrict format, va_list rest),
            target, capacity, printed(got, capacity), (target, capacity, flag, size, format, rest))
MODEL_FILLS(int, __vsprintf_chk,
            (char *restrict target, int flag, size_t size, const char *restrict format, va_list rest), target, 1,
            printed(got, SIZE_MAX), (target, flag, size, format, rest))

/* The variadic ones take their arguments as a list to the one above. */
#define PRINTS(name, parameters, last, capacity, length_of_room, call)                                                     \
    static int name##_list(bool modelled, where at, VLIST_##name);                                                     \
    static int name##_list(bool modelled, where at, VLIST_##name)                                                      \
    {                                                                                                                  \
        if (!modelled)                                                                                                 \
            return call;                                                                                               \
        return FILLS(int, target, length_of_room, printed(got, capacity), call);                                           \
    }                                                                                                                  \
    EXPORTED int cc_wrap_##name parameters;                                                                            \
    EXPORTED int cc_wrap_##name parameters                                                                             \
    {                                                                                                                  \
        where at = cc_from_wrapper();                                                                                  \
        va_list rest;                                                                                                  \
        va_start(rest, last);                                                                                          \
        int got = name##_list(cc_on(), at, VARGS_##name);                                                              \
        va_end(rest);                                                                                                  \
        return got;                                                                                                    \
    }                                                                                                                  \
    OUTSIDE(int, name, parameters, {                                                                                   \
        va_list rest;                                                                                                  \
        va_start(rest, last);                                                                                          \
        int got = name##_list(cc_on() && !cc_thread.inside, cc_from_outside(), VARGS_##name);                          \
        va_end(rest);                                                                                                  \
        return got;                                                                                                    \
    })

#define VLIST_snprintf char *target, size_t capacity, const char *format, va_list rest
#define VARGS_snprintf target, capacity, format, rest
PRINTS(snprintf, (char *restrict target, size_t capacity, const char *restrict format, ...), format, capacity, capacity,
       REAL(vsnprintf)(target, capacity, format, rest))
#define VLIST_sprintf char *target, const char *format, va_list rest
#define VARGS_sprintf target, format, rest
PRINTS(sprintf, (char *restrict target, const char *restrict format, ...), format, SIZE_MAX, 1,
       REAL(vsprintf)(target, format, rest))
#define VLIST___snprintf_chk char *target, size_t capacity, int flag, size_t size, const char *format, va_list rest
#define VARGS___snprintf_chk target, capacity, flag, size, format, rest
PRINTS(__snprintf_chk, (char *restrict target, size_t capacity, int flag, size_t size, const char *restrict format, ...), format,
       capacity, capacity, REAL(__vsnprintf_chk)(target, capacity, flag, size, format, rest))
#define VLIST___sprintf_chk char *target, int flag, size_t size, const char *format, va_list rest
#define VARGS___sprintf_chk target, flag, size, format, rest
PRINTS(__sprintf_chk, (char *restrict target, int flag, size_t size, const char *restrict format, ...), format, SIZE_MAX, 1,
       REAL(__vsprintf_chk)(target, flag, size, format, rest))

/* What _FORTIFY_SOURCE makes of them: `room` bytes are known to be at the target. */
MODEL_BEFORE(void *, __memcpy_chk, (void *target, const void *source, size_t size, size_t capacity),
             cc_copies(at, target, source, size), (target, source, size, capacity))
MODEL_BEFORE(void *, __memmove_chk, (void *target, const void *source, size_t size, size_t capacity),
             cc_copies(at, target, source, size), (target, source, size, capacity))
MODEL_BEFORE(void *, __mempcpy_chk, (void *target, const void *source, size_t size, size_t capacity),
             cc_copies(at, target, source, size), (target, source, size, capacity))
MODEL_BEFORE(void *, __memset_chk, (void *target, int byte, size_t size, size_t capacity), cc_fills(at, target, byte, size),
             (target, byte, size, capacity))
MODEL_BEFORE(char *, __strcpy_chk, (char *target, const char *source, size_t capacity),
             cc_copies(at, target, source, raw_length(source) + 1), (target, source, capacity))
MODEL_BEFORE(char *, __stpcpy_chk, (char *target, const char *source, size_t capacity),
             cc_copies(at, target, source, raw_length(source) + 1), (target, source, capacity))
MODEL_BEFORE(char *, __strcat_chk, (char *target, const char *source, size_t capacity),
             cc_copies(at, target + raw_length(target), source, raw_length(source) + 1), (target, source, capacity))
MODEL_FILLS(char *, __strncpy_chk, (char *target, const char *source, size_t size, size_t capacity), target, size, size,
            (target, source, size, capacity))
MODEL_FILLS(char *, __stpncpy_chk, (char *target, const char *source, size_t size, size_t capacity), target, size, size,
            (target, source, size, capacity))
MODEL_FILLS(char *, __strncat_chk, (char *target, const char *source, size_t size, size_t capacity),
            target + raw_length(target), bounded_length(source, size) + 1, raw_length(target_) + 1,
            (target, source, size, capacity))

/* Younger than many C libraries, and small enough to be done here: as in BSD's manual. */
static size_t limited_copy(where at, char *target, const char *source, size_t capacity)
{
    size_t length = raw_length(source);
    if (!capacity)
        return length;
    size_t part = length < capacity ? length : capacity - 1;
    uint64_t seq = cc_on() ? cc_will_fill(target, part + 1) : 0;
    raw_move(target, source, part);
    target[part] = 0;
    cc_has_filled(at, seq, target, part + 1);
    return length;
}

static size_t limited_add(where at, char *target, const char *source, size_t capacity)
{
    size_t used = bounded_length(target, capacity);
    return used + limited_copy(at, target + used, source, capacity - used);
}

EXPORTED size_t cc_wrap_strlcpy(char *target, const char *source, size_t capacity);
EXPORTED size_t cc_wrap_strlcpy(char *target, const char *source, size_t capacity)
{
    return limited_copy(cc_from_wrapper(), target, source, capacity);
}

EXPORTED size_t cc_wrap_strlcat(char *target, const char *source, size_t capacity);
EXPORTED size_t cc_wrap_strlcat(char *target, const char *source, size_t capacity)
{
    return limited_add(cc_from_wrapper(), target, source, capacity);
}

/* What instrumented code alone is recorded to call: other code does all the time, on memory of its own. */
#define GIVES(result, name, parameters, target, most, size, arguments)                                                     \
    WRAP(result, name, parameters, name arguments, FILLS(result, target, most, size, name arguments))

GIVES(time_t, time, (time_t * target), target, sizeof *target, sizeof *target, (target))
GIVES(int, clock_gettime, (clockid_t clock, struct timespec *target), target, sizeof *target, got ? 0 : sizeof *target,
      (clock, target))
GIVES(int, gettimeofday, (struct timeval *restrict target, void *restrict zone), target, sizeof *target,
      got ? 0 : sizeof *target, (target, zone))
GIVES(struct tm *, gmtime_r, (const time_t *restrict from, struct tm *restrict target), target, sizeof *target,
      got ? sizeof *target : 0, (from, target))
GIVES(struct tm *, localtime_r, (const time_t *restrict from, struct tm *restrict target), target, sizeof *target,
      got ? sizeof *target : 0, (from, target))
GIVES(size_t, strftime,
      (char *restrict target, size_t capacity, const char *restrict format, const struct tm *restrict from), target,
      capacity, got ? got + 1 : 0, (target, capacity, format, from))
GIVES(int, rand_r, (unsigned *target), target, sizeof *target, sizeof *target, (target))

static void sorted(where at, void *target, size_t count, size_t size, __compar_fn_t compare)
{
    uint64_t seq = cc_will_fill(target, count * size);
    qsort(target, count, size, compare);
    cc_has_filled(at, seq, target, count * size);
}
WRAP(void, qsort, (void *target, size_t count, size_t size, __compar_fn_t compare), qsort(target, count, size, compare),
     sorted(at, target, count, size, compare))
