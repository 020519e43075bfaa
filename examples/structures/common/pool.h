/* A pool of persistent memory: one mapped file, a root, and blocks that are named by their offset in it.
 *
 * A block that was taken and not yet reached from the root is lost by a crash, and so is one that was unlinked and not yet
 * given back: nothing worse. Give a block back only after the store that unlinks it has persisted. */
#ifndef POOL_H
#define POOL_H

#include <cpuid.h>
#include <fcntl.h>
#include <emmintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The bug that this build has; 0: none. Each is a condition in the code, beside the comment that names the culprit. */
#ifndef BUG
#define BUG 0
#endif

#ifndef POOL_BYTES
#define POOL_BYTES (256 * 1024)
#endif

#define LINE 64
#define POOL_MAGIC 0x6c6f6f702d74736eULL
#define POOL_SMALL 16  /* free lists of blocks of 1 to 16 lines, */
#define POOL_CLASSES 24 /* then of 2 KiB, 4 KiB, … 256 KiB */

struct pool {
    uint64_t magic; /* the first line is written last of all: without it there is no pool */
    uint64_t root;
    uint64_t used; /* no block has been taken from here on */
    uint64_t free_list[POOL_CLASSES] __attribute__((aligned(LINE)));
} __attribute__((aligned(LINE)));

struct free_block {
    uint64_t next;
};

static char *pool_base;
static int pool_has_clwb, pool_has_clflushopt;

/* A null or wild offset dies here, as a null pointer does. */
static inline void *pool_at(uint64_t offset) {
    if (offset == 0 || offset >= POOL_BYTES)
        abort();
    return pool_base + offset;
}

/* The object of this type at an offset, and back. */
#define AT(type, offset) ((type *)pool_at(offset))
#define OFFSET(pointer) ((uint64_t)((const char *)(pointer)-pool_base))

/* A store of at most 8 bytes that persists whole, and in its line after every store before it: the compiler keeps that order. */
#define PUBLISH(place, value) __atomic_store_n(&(place), (value), __ATOMIC_RELEASE)

__attribute__((target("clwb"))) static inline void pool_clwb(void *line) { __builtin_ia32_clwb(line); }
__attribute__((target("clflushopt"))) static inline void pool_clflushopt(void *at) { __builtin_ia32_clflushopt(at); }

/* Starts to write the lines of [data, data + bytes) back; they have persisted after the next fence(). */
static inline void flush(const volatile void *data, uint64_t bytes) {
    uintptr_t line = (uintptr_t)data & ~(uintptr_t)(LINE - 1);
    for (; line < (uintptr_t)data + bytes; line += LINE) {
        if (pool_has_clwb)
            pool_clwb((void *)line);
        else if (pool_has_clflushopt)
            pool_clflushopt((void *)line);
        else
            _mm_clflush((void *)line);
    }
}

static inline void fence(void) { _mm_sfence(); }

static inline void persist(const volatile void *data, uint64_t bytes) {
    flush(data, bytes);
    fence();
}

static inline struct pool *pool(void) { return (struct pool *)(void *)pool_base; }

static inline unsigned pool_class(uint64_t bytes, uint64_t *size) {
    unsigned which = 0;
    for (*size = LINE; *size < bytes; which++)
        *size += which + 1 < POOL_SMALL ? LINE : *size;
    return which;
}

/* A block that begins at a cache line, and holds anything. It is the caller's until it is freed, or lost. */
static inline uint64_t pool_alloc(uint64_t bytes) {
    uint64_t size, taken;
    uint64_t *list = &pool()->free_list[pool_class(bytes, &size)];
    taken = *list;
    if (taken) {
        PUBLISH(*list, AT(struct free_block, taken)->next);
        persist(list, sizeof *list);
        return taken;
    }
    taken = pool()->used;
    if (taken + size > POOL_BYTES) {
        fprintf(stderr, "the pool is full\n");
        exit(3);
    }
    PUBLISH(pool()->used, taken + size);
    persist(&pool()->used, sizeof pool()->used);
    return taken;
}

static inline void pool_free(uint64_t block, uint64_t bytes) {
    uint64_t size;
    uint64_t *list = &pool()->free_list[pool_class(bytes, &size)];
    AT(struct free_block, block)->next = *list;
    persist(AT(struct free_block, block), sizeof(struct free_block));
    PUBLISH(*list, block);
    persist(list, sizeof *list);
}

/* What the structure starts from; 0 before it was set, also after a crash. */
static inline uint64_t pool_root(void) { return pool()->root; }

static inline void pool_set_root(uint64_t block) {
    PUBLISH(pool()->root, block);
    persist(&pool()->root, sizeof pool()->root);
}

static inline void pool_open(const char *path) {
    unsigned a, b = 0, c, d;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) {
        pool_has_clflushopt = b >> 23 & 1;
        pool_has_clwb = b >> 24 & 1;
    }
    struct stat status;
    int file = open(path, O_RDWR | O_CREAT, 0644);
    if (file < 0 || fstat(file, &status) != 0 || (status.st_size < POOL_BYTES && ftruncate(file, POOL_BYTES) != 0)) {
        perror(path);
        exit(2);
    }
    void *base = mmap(NULL, POOL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (base == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    close(file);
    pool_base = (char *)base;
    if (pool()->magic == POOL_MAGIC)
        return;
    pool()->used = sizeof(struct pool);
    PUBLISH(pool()->magic, POOL_MAGIC);
    persist(pool(), LINE);
}

#endif
