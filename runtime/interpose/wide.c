/* Functions that write strings of wide characters. */
#include <wchar.h>

#include "interpose/fills.h"

#define WIDE sizeof(wchar_t)

static size_t wide_length(const wchar_t *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

static size_t bounded_wide_length(const wchar_t *text, size_t most)
{
    size_t length = 0;
    while (length < most && text[length])
        length++;
    return length;
}

MODEL_BEFORE(wchar_t *, wmemcpy, (wchar_t *restrict target, const wchar_t *restrict source, size_t count),
             cc_copies(at, target, source, count *WIDE), (target, source, count))
MODEL_BEFORE(wchar_t *, __wmemcpy_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t capacity),
             cc_copies(at, target, source, count *WIDE), (target, source, count, capacity))
MODEL_BEFORE(wchar_t *, wmemmove, (wchar_t *target, const wchar_t *source, size_t count),
             cc_copies(at, target, source, count *WIDE), (target, source, count))
MODEL_BEFORE(wchar_t *, __wmemmove_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t capacity),
             cc_copies(at, target, source, count *WIDE), (target, source, count, capacity))
MODEL_BEFORE(wchar_t *, wmempcpy, (wchar_t *restrict target, const wchar_t *restrict source, size_t count),
             cc_copies(at, target, source, count *WIDE), (target, source, count))
MODEL_BEFORE(wchar_t *, __wmempcpy_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t capacity),
             cc_copies(at, target, source, count *WIDE), (target, source, count, capacity))
MODEL_FILLS(wchar_t *, wmemset, (wchar_t *target, wchar_t value, size_t count), target, count *WIDE, count *WIDE,
            (target, value, count))
MODEL_FILLS(wchar_t *, __wmemset_chk, (wchar_t *target, wchar_t value, size_t count, size_t capacity), target, count *WIDE,
            count *WIDE, (target, value, count, capacity))
MODEL_BEFORE(wchar_t *, wcscpy, (wchar_t *restrict target, const wchar_t *restrict source),
             cc_copies(at, target, source, (wide_length(source) + 1) * WIDE), (target, source))
MODEL_BEFORE(wchar_t *, __wcscpy_chk, (wchar_t *target, const wchar_t *source, size_t capacity),
             cc_copies(at, target, source, (wide_length(source) + 1) * WIDE), (target, source, capacity))
MODEL_BEFORE(wchar_t *, wcpcpy, (wchar_t *restrict target, const wchar_t *restrict source),
             cc_copies(at, target, source, (wide_length(source) + 1) * WIDE), (target, source))
MODEL_BEFORE(wchar_t *, __wcpcpy_chk, (wchar_t *target, const wchar_t *source, size_t capacity),
             cc_copies(at, target, source, (wide_length(source) + 1) * WIDE), (target, source, capacity))
MODEL_BEFORE(wchar_t *, wcscat, (wchar_t *restrict target, const wchar_t *restrict source),
             cc_copies(at, target + wide_length(target), source, (wide_length(source) + 1) * WIDE), (target, source))
MODEL_BEFORE(wchar_t *, __wcscat_chk, (wchar_t *target, const wchar_t *source, size_t capacity),
             cc_copies(at, target + wide_length(target), source, (wide_length(source) + 1) * WIDE),
             (target, source, capacity))
MODEL_FILLS(wchar_t *, wcsncpy, (wchar_t *restrict target, const wchar_t *restrict source, size_t count), target,
            count *WIDE, count *WIDE, (target, source, count))
MODEL_FILLS(wchar_t *, __wcsncpy_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t capacity), target,
            count *WIDE, count *WIDE, (target, source, count, capacity))
MODEL_FILLS(wchar_t *, wcpncpy, (wchar_t *restrict target, const wchar_t *restrict source, size_t count), target,
            count *WIDE, count *WIDE, (target, source, count))
MODEL_FILLS(wchar_t *, __wcpncpy_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t capacity), target,
            count *WIDE, count *WIDE, (target, source, count, capacity))
MODEL_FILLS(wchar_t *, wcsncat, (wchar_t *restrict target, const wchar_t *restrict source, size_t count),
            target + wide_length(target), (bounded_wide_length(source, count) + 1) * WIDE,
            (wide_length(target_) + 1) * WIDE, (target, source, count))
MODEL_FILLS(wchar_t *, __wcsncat_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t capacity),
            target + wide_length(target), (bounded_wide_length(source, count) + 1) * WIDE,
            (wide_length(target_) + 1) * WIDE, (target, source, count, capacity))
