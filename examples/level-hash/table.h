/* A two-level hash table in persistent memory, after Level Hashing (Zuo, Hua, Wu, OSDI 2018): each key
 * has two candidate buckets in the top level and two in the bottom level, which is half as large. */
#ifndef TABLE_H
#define TABLE_H

#include <cpuid.h>
#include <emmintrin.h>
#include <stdint.h>

#define TABLE_MAGIC 0x656c62617468736cULL
#define LINE 64
#define SLOTS 7
#define TOP_BUCKETS 4
#define BOTTOM_BUCKETS (TOP_BUCKETS / 2)

struct entry {
    uint64_t key;
    uint64_t value;
};

/* valid[i] decides whether entry[i] counts. The flags share a cache line with the first entries only. */
struct bucket {
    uint8_t valid[8];
    struct entry entry[SLOTS];
} __attribute__((aligned(LINE)));

struct table {
    uint64_t magic;
    struct bucket top[TOP_BUCKETS];
    struct bucket bottom[BOTTOM_BUCKETS];
} __attribute__((aligned(LINE)));

static inline uint64_t hash_of(uint64_t key, uint64_t seed) {
    uint64_t h = (key ^ seed) * 0x9e3779b97f4a7c15ULL;
    return h ^ (h >> 29);
}

static inline uint64_t value_of(uint64_t key) { return key * 1000 + 7; }

/* Candidate bucket 0 to 3 of a key: two in the top level, then two in the bottom level. */
static inline struct bucket *candidate(struct table *t, uint64_t key, int which) {
    uint64_t h = hash_of(key, which & 1 ? 0x5bd1e995 : 0x1b873593);
    return which < 2 ? &t->top[h % TOP_BUCKETS] : &t->bottom[h % BOTTOM_BUCKETS];
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
