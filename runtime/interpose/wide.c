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

MODEL(wchar_t *, wmemcpy, (wchar_t *restrict target, const wchar_t *restrict source, size_t count), REAL(wmemcpy)(target, source, count),
      (cc_copies(at, target, source, count *WIDE), REAL(wmemcpy)(target, source, count)))
MODEL(wchar_t *, __wmemcpy_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t room), REAL(__wmemcpy_chk)(target, source, count, room),
      (cc_copies(at, target, source, count *WIDE), REAL(__wmemcpy_chk)(target, source, count, room)))
MODEL(wchar_t *, wmemmove, (wchar_t *target, const wchar_t *source, size_t count), REAL(wmemmove)(target, source, count),
      (cc_copies(at, target, source, count *WIDE), REAL(wmemmove)(target, source, count)))
MODEL(wchar_t *, __wmemmove_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t room), REAL(__wmemmove_chk)(target, source, count, room),
      (cc_copies(at, target, source, count *WIDE), REAL(__wmemmove_chk)(target, source, count, room)))
MODEL(wchar_t *, wmempcpy, (wchar_t *restrict target, const wchar_t *restrict source, size_t count), REAL(wmempcpy)(target, source, count),
      (cc_copies(at, target, source, count *WIDE), REAL(wmempcpy)(target, source, count)))
MODEL(wchar_t *, __wmempcpy_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t room), REAL(__wmempcpy_chk)(target, source, count, room),
      (cc_copies(at, target, source, count *WIDE), REAL(__wmempcpy_chk)(target, source, count, room)))
MODEL(wchar_t *, wmemset, (wchar_t *target, wchar_t value, size_t count), REAL(wmemset)(target, value, count),
      FILLS(wchar_t *, target, count *WIDE, count *WIDE, REAL(wmemset)(target, value, count)))
MODEL(wchar_t *, __wmemset_chk, (wchar_t *target, wchar_t value, size_t count, size_t room), REAL(__wmemset_chk)(target, value, count, room),
      FILLS(wchar_t *, target, count *WIDE, count *WIDE, REAL(__wmemset_chk)(target, value, count, room)))
MODEL(wchar_t *, wcscpy, (wchar_t *restrict target, const wchar_t *restrict source), REAL(wcscpy)(target, source),
      (cc_copies(at, target, source, (wide_length(source) + 1) * WIDE), REAL(wcscpy)(target, source)))
MODEL(wchar_t *, __wcscpy_chk, (wchar_t *target, const wchar_t *source, size_t room), REAL(__wcscpy_chk)(target, source, room),
      (cc_copies(at, target, source, (wide_length(source) + 1) * WIDE), REAL(__wcscpy_chk)(target, source, room)))
MODEL(wchar_t *, wcpcpy, (wchar_t *restrict target, const wchar_t *restrict source), REAL(wcpcpy)(target, source),
      (cc_copies(at, target, source, (wide_length(source) + 1) * WIDE), REAL(wcpcpy)(target, source)))
MODEL(wchar_t *, __wcpcpy_chk, (wchar_t *target, const wchar_t *source, size_t room), REAL(__wcpcpy_chk)(target, source, room),
      (cc_copies(at, target, source, (wide_length(source) + 1) * WIDE), REAL(__wcpcpy_chk)(target, source, room)))
MODEL(wchar_t *, wcscat, (wchar_t *restrict target, const wchar_t *restrict source), REAL(wcscat)(target, source),
      (cc_copies(at, target + wide_length(target), source, (wide_length(source) + 1) * WIDE), REAL(wcscat)(target, source)))
MODEL(wchar_t *, __wcscat_chk, (wchar_t *target, const wchar_t *source, size_t room), REAL(__wcscat_chk)(target, source, room),
      (cc_copies(at, target + wide_length(target), source, (wide_length(source) + 1) * WIDE), REAL(__wcscat_chk)(target, source, room)))
MODEL(wchar_t *, wcsncpy, (wchar_t *restrict target, const wchar_t *restrict source, size_t count), REAL(wcsncpy)(target, source, count),
      FILLS(wchar_t *, target, count *WIDE, count *WIDE, REAL(wcsncpy)(target, source, count)))
MODEL(wchar_t *, __wcsncpy_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t room), REAL(__wcsncpy_chk)(target, source, count, room),
      FILLS(wchar_t *, target, count *WIDE, count *WIDE, REAL(__wcsncpy_chk)(target, source, count, room)))
MODEL(wchar_t *, wcpncpy, (wchar_t *restrict target, const wchar_t *restrict source, size_t count), REAL(wcpncpy)(target, source, count),
      FILLS(wchar_t *, target, count *WIDE, count *WIDE, REAL(wcpncpy)(target, source, count)))
MODEL(wchar_t *, __wcpncpy_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t room), REAL(__wcpncpy_chk)(target, source, count, room),
      FILLS(wchar_t *, target, count *WIDE, count *WIDE, REAL(__wcpncpy_chk)(target, source, count, room)))
MODEL(wchar_t *, wcsncat, (wchar_t *restrict target, const wchar_t *restrict source, size_t count), REAL(wcsncat)(target, source, count),
      FILLS(wchar_t *, target + wide_length(target), (bounded_wide_length(source, count) + 1) * WIDE, (wide_length(target_) + 1) * WIDE, REAL(wcsncat)(target, source, count)))
MODEL(wchar_t *, __wcsncat_chk, (wchar_t *target, const wchar_t *source, size_t count, size_t room), REAL(__wcsncat_chk)(target, source, count, room),
      FILLS(wchar_t *, target + wide_length(target), (bounded_wide_length(source, count) + 1) * WIDE, (wide_length(target_) + 1) * WIDE, REAL(__wcsncat_chk)(target, source, count, room)))
