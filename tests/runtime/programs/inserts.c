/* A store-heavy loop: each insert is 4 stores, 2 clwb and 1 sfence. argv: pool, inserts, stack depth. */
#include <time.h>

#include "hand.h"

#ifdef PLAIN
#define S(index, target, value, base) (*(volatile __typeof__(target))(target) = (value))
#define F(index, target) __asm__ volatile("clwb (%0)" : : "r"(target) : "memory")
#define B(index) __asm__ volatile("sfence" : : : "memory")
#else
#define S(index, target, value, base) STORE_AS(index, depth, 0, target, value, base)
#define F(index, target)                                                                                               \
    do {                                                                                                               \
        if (IN_WINDOW(target))                                                                                         \
            cc_flush(target, 1, 3, &hand_unit, index, depth);                                                          \
        __asm__ volatile("clwb (%0)" : : "r"(target) : "memory");                                                      \
    } while (0)
#define B(index)                                                                                                       \
    do {                                                                                                               \
        if (cc_recording)                                                                                              \
            cc_fence(1, &hand_unit, index, depth);                                                                     \
        __asm__ volatile("sfence" : : : "memory");                                                                     \
    } while (0)
#endif

#ifndef ENTRIES
#define ENTRIES (1u << 16)
#endif

struct entry {
    uint64_t key, value, extra;
    char pad[40];
    uint64_t valid;
    char rest[56];
};

int main(int argc, char **argv)
{
    uint64_t inserts = argc > 2 ? strtoull(argv[2], NULL, 0) : 1000;
    uint32_t depth = argc > 3 ? (uint32_t)atoi(argv[3]) : 0;
    size_t size = ENTRIES * sizeof(struct entry);
    int fd = open_file(argv[1], "a.db", size);
    struct entry *table = map_file(fd, size);
    for (size_t i = 0; i < size; i += 4096)
        ((volatile char *)table)[i] = 0;
#ifndef PLAIN
    for (uint32_t i = 0; i < depth; i++) {
        cc_shadow.frames[i].unit = &hand_unit;
        cc_shadow.frames[i].index = i;
    }
    cc_shadow.depth = depth;
#endif
    struct timespec start, end;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    uint64_t hash = 1;
    for (uint64_t i = 0; i < inserts; i++) {
        hash = hash * 6364136223846793005ull + 1442695040888963407ull;
        struct entry *e = &table[(hash >> 32) % ENTRIES];
        S(1, &e->key, i, e);
        S(2, &e->value, hash, e);
        S(3, &e->extra, i ^ hash, e);
        F(4, e);
        S(5, &e->valid, 1ul, e);
        F(6, &e->valid);
        B(7);
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &end);
    (void)depth;
    fprintf(stderr, "%.1f ns\n",
            ((double)(end.tv_sec - start.tv_sec) * 1e9 + (double)(end.tv_nsec - start.tv_nsec)) / (double)inserts);
    return 0;
}
