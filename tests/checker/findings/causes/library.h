/* A small library over a mapped file, whose bugs are chosen by CASE (causes.c). Each structure has its own line. */
#include <emmintrin.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define LINE _Alignas(64)

static inline void flush(const volatile void *at, size_t size)
{
    for (uintptr_t line = (uintptr_t)at & ~(uintptr_t)63; line < (uintptr_t)at + size; line += 64)
        __builtin_ia32_clflushopt((void *)line);
}

static inline void persist(const volatile void *at, size_t size)
{
    flush(at, size);
    _mm_sfence();
}

struct block {
    LINE uint64_t used;
    LINE uint64_t data[8];
};

struct heap {
    LINE uint64_t first;
    struct block blocks[8];
};

struct log {
    LINE uint64_t length;
    LINE uint64_t entries[16];
};

uint64_t heap_take(struct heap *heap, uint64_t value);
void log_append(struct log *log, uint64_t value);
void copy_words(uint64_t *to, const uint64_t *from, size_t count);
