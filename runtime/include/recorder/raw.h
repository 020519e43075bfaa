/* System calls made without libc: they never touch errno, take no lock and are not interposed, so
 * that the recorder may run inside a signal handler and inside any libc function. Each returns the
 * kernel's value: -errno on failure. */
#ifndef CRASHCHECK_RAW_H
#define CRASHCHECK_RAW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>

#if !defined(__x86_64__) || !defined(__linux__)
#error "crashcheck records x86-64 Linux programs only"
#endif

/* Always inlined: the explorer knows its own system calls by the section that holds them (explorer/explore.c). */
#define RAW_INLINE static inline __attribute__((always_inline))

RAW_INLINE long raw6(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

RAW_INLINE long raw4(long number, long a, long b, long c, long d)
{
    return raw6(number, a, b, c, d, 0, 0);
}

RAW_INLINE long raw3(long number, long a, long b, long c)
{
    return raw6(number, a, b, c, 0, 0, 0);
}

RAW_INLINE int raw_failed(long result)
{
    return result < 0 && result >= -4095;
}

/* Own byte movers: the names memcpy and memset are interposed by this very library. */
RAW_INLINE void raw_move(void *to, const void *from, size_t size)
{
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(size) : : "memory");
}

RAW_INLINE void raw_fill(void *to, int byte, size_t size)
{
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(size) : "a"(byte) : "memory");
}

static inline size_t raw_length(const char *text)
{
    size_t length = 0;
    while (text[length])
        length++;
    return length;
}

/* Copies as much of `text` as fits `room` with its end; the length copied. */
static inline size_t raw_append(char *to, size_t capacity, const char *text)
{
    size_t length = raw_length(text);
    if (length >= capacity)
        length = capacity - 1;
    raw_move(to, text, length);
    to[length] = 0;
    return length;
}

/* The decimal number at `*text`, which moves behind it and a space that follows. */
static inline uint64_t raw_number(const char **text)
{
    uint64_t value = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++)
        value = value * 10 + (uint64_t)(**text - '0');
    if (**text == ' ')
        (*text)++;
    return value;
}

/* 64-bit FNV-1a of texts, one after another: `hash` is RAW_HASH_START or that of the texts before. */
#define RAW_HASH_START 14695981039346656037ull
static inline uint64_t raw_hash(uint64_t hash, const char *text)
{
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 1099511628211ull;
    return hash;
}

static inline int raw_same(const char *left, const char *right, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (left[i] != right[i])
            return 0;
    return 1;
}

#endif
