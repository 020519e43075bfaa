/* Instrumentation written by hand, as crashcheck-cc would: each macro makes the hook's call, then does the thing. */
#ifndef HAND_H
#define HAND_H

#include <crashcheck.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif
#include <hooks.h>
#ifdef __cplusplus
}
#endif

#ifndef HOOKS_VERSION
#define HOOKS_VERSION CC_HOOKS_VERSION
#endif
#define UNIT_KEY 0x1122334455667788ull
static __attribute__((unused)) struct cc_unit hand_unit = {0, 100, UNIT_KEY, HOOKS_VERSION, 0, NULL};

#define IN_WINDOW(p) ((uintptr_t)(p) - cc_window_start < cc_window_bytes)
#define STORE_AS(index, depth, flags, target, value, base)                                                             \
    do {                                                                                                               \
        __typeof__(*(target)) v_ = (value);                                                                            \
        if (IN_WINDOW(target)) {                                                                                       \
            uint64_t w_ = 0;                                                                                           \
            memcpy(&w_, &v_, sizeof v_);                                                                               \
            cc_store_word(target, w_, sizeof v_, (uint64_t)(uintptr_t)(base), &hand_unit, index, depth, flags);        \
        }                                                                                                              \
        *(volatile __typeof__(*(target)) *)(target) = v_;                                                              \
    } while (0)
#define STORE(index, target, value) STORE_AS(index, 0, 0, target, value, 0)
#define CLWB(index, target)                                                                                            \
    do {                                                                                                               \
        if (IN_WINDOW(target))                                                                                         \
            cc_flush(target, 1, 3, &hand_unit, index, 0);                                                              \
        __asm__ volatile("clflush (%0)" : : "r"(target) : "memory");                                                   \
    } while (0)
#define SFENCE(index)                                                                                                  \
    do {                                                                                                               \
        if (cc_recording)                                                                                              \
            cc_fence(1, &hand_unit, index, 0);                                                                         \
        __asm__ volatile("sfence" : : : "memory");                                                                     \
    } while (0)
#define NEED(condition)                                                                                                \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            perror(#condition);                                                                                        \
            exit(99);                                                                                                  \
        }                                                                                                              \
    } while (0)

/* argv[1] is the pool. */
static inline char *in_pool(const char *pool, const char *name)
{
    static char path[2][4096];
    static int turn;
    char *to = path[turn ^= 1];
    snprintf(to, 4096, "%s/%s", pool, name);
    return to;
}

static inline int open_file(const char *pool, const char *name, size_t size)
{
    int fd = open(in_pool(pool, name), O_RDWR | O_CREAT, 0644);
    NEED(fd >= 0);
    if (size)
        NEED(ftruncate(fd, (off_t)size) == 0);
    return fd;
}

static inline void *map_file(int fd, size_t size)
{
    void *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(at != MAP_FAILED);
    return at;
}
#endif
