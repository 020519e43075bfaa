/* A small hash table in persistent memory, without a log: an entry counts if its bit in the bucket's word is set, and one
 * store of that word makes a change of the bucket atomic. */
#ifndef TABLE_H
#define TABLE_H

#include <cpuid.h>
#include <emmintrin.h>
#include <stdint.h>

#define LINE 64
#define BUCKETS 2
#define SLOTS 8

struct entry {
    uint64_t key;
    uint64_t value;
};

/* The word and the entries are in different cache lines. */
struct bucket {
    uint64_t used __attribute__((aligned(LINE)));
    struct entry entry[SLOTS] __attribute__((aligned(LINE)));
};

struct table {
    struct bucket bucket[BUCKETS];
};

static inline struct bucket *bucket_of(struct table *table, uint64_t key) {
    return &table->bucket[(key * 0x9e3779b97f4a7c15ULL >> 32) % BUCKETS];
}

static inline int find(const struct bucket *bucket, uint64_t key) {
    for (int i = 0; i < SLOTS; i++)
        if ((bucket->used >> i & 1) && bucket->entry[i].key == key)
            return i;
    return -1;
}

static inline int find_free(const struct bucket *bucket) {
    for (int i = 0; i < SLOTS; i++)
        if (!(bucket->used >> i & 1))
            return i;
    return -1;
}

static inline int have_clwb(void) {
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 24 & 1);
}

__attribute__((target("clwb"))) static inline void clwb(const void *at) { __builtin_ia32_clwb((void *)(uintptr_t)at); }

/* Writes the lines of [data, data + bytes) back; they have persisted after the next fence(). */
static inline void flush(const void *data, uint64_t bytes) {
    uintptr_t line = (uintptr_t)data & ~(uintptr_t)(LINE - 1);
    for (; line < (uintptr_t)data + bytes; line += LINE) {
        if (have_clwb())
            clwb((const void *)line);
        else
            _mm_clflush((const void *)line);
    }
}

static inline void fence(void) { _mm_sfence(); }

#endif
