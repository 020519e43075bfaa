/* libpmem and libpmem2: their flushes, fences and copies become events; the calls that they make are not recorded. */
#include <errno.h>
#include <sys/mman.h>

#include "interpose/model.h"
#include "recorder/events.h"
#include "recorder/loads.h"
#include "recorder/regions.h"

/* Everybody else's calls are interposed under libpmem's version, and not as its default: so only what was linked with
 * libpmem finds them. A weak reference of what was not has no version, and must stay null. The tools that make the
 * recorder must know the version (build.py). */
#ifdef CC_SHARED
#undef OUTSIDE
#define OUTSIDE(result, name, parameters, body)                                                                        \
    EXPORTED result cc_outside_##name parameters;                                                                      \
    __asm__(".symver cc_outside_" #name ", " #name "@LIBPMEM_1.0");                                                    \
    EXPORTED result cc_outside_##name parameters body
#endif

/* libpmem.h */
enum {
    NODRAIN = 1u << 0,
    NONTEMPORAL = 1u << 1,
    TEMPORAL = 1u << 2,
    WC = 1u << 3,
    WB = 1u << 4,
    NOFLUSH = 1u << 5,
};
/* libpmem's default threshold for non-temporal stores, PMEM_MOVNT_THRESHOLD. */
#define MOVNT_BYTES 256u

/* The real function, with what it calls in turn left unrecorded. */
#define INSIDE(type, call)                                                                                             \
    (__extension__({                                                                                                   \
        cc_thread.inside++;                                                                                            \
        type got_ = (call);                                                                                            \
        cc_thread.inside--;                                                                                            \
        got_;                                                                                                          \
    }))
#define INSIDE_VOID(call)                                                                                              \
    (__extension__({                                                                                                   \
        cc_thread.inside++;                                                                                            \
        (call);                                                                                                        \
        cc_thread.inside--;                                                                                            \
        (void)0;                                                                                                       \
    }))

static void flushes(where at, const void *address, size_t size)
{
    cc_flush_at(at, address, size, CC_CLWB);
}

static void drains(where at)
{
    cc_fence_at(at, CC_DRAIN);
}

/* Before the real copy. Flags of both kinds of store follow libpmem(7); without one, its size decides. */
static void stores(where at, void *target, const void *source, int byte, size_t size, unsigned flags)
{
    if (source)
        cc_copied_from(at, source, size);
    if (!cc_range_in_window(target, size))
        return;
    bool streams = flags & (NONTEMPORAL | WC) ? true : flags & (TEMPORAL | WB) ? false : size >= MOVNT_BYTES;
    if (flags & NOFLUSH)
        streams = false;
    cc_update(at, 0, target, source, byte & 0xff, size,
              (uint8_t)(CC_STORE_BULK | CC_STORE_LIBRARY | (streams ? CC_STORE_NT : 0)), 0);
    if (!streams && !(flags & NOFLUSH))
        flushes(at, target, size);
}

/* After it. */
static void *stored(where at, void *target, unsigned flags)
{
    if (!(flags & (NODRAIN | NOFLUSH)))
        drains(at);
    return target;
}

MODEL(void, pmem_persist, (const void *address, size_t size), REAL(pmem_persist)(address, size),
      (flushes(at, address, size), INSIDE_VOID(REAL(pmem_persist)(address, size)), drains(at)))
MODEL(void, pmem_flush, (const void *address, size_t size), REAL(pmem_flush)(address, size),
      (flushes(at, address, size), INSIDE_VOID(REAL(pmem_flush)(address, size))))
MODEL(void, pmem_drain, (void), REAL(pmem_drain)(), (drains(at), INSIDE_VOID(REAL(pmem_drain)())))
/* Where the file is not on persistent memory the deep ones call msync: it is recorded as such. */
MODEL(void, pmem_deep_persist, (const void *address, size_t size), REAL(pmem_deep_persist)(address, size),
      (flushes(at, address, size), REAL(pmem_deep_persist)(address, size), drains(at)))
MODEL_BEFORE(void, pmem_deep_flush, (const void *address, size_t size), flushes(at, address, size), (address, size))
MODEL_BEFORE(int, pmem_deep_drain, (const void *address, size_t size), drains(at), (address, size))

#define COPIES(call, target, source, byte, size, flags)                                                                \
    (stores(at, target, source, byte, size, flags), (void)INSIDE(void *, call), stored(at, target, flags))

MODEL(void *, pmem_memmove, (void *target, const void *source, size_t size, unsigned flags),
      REAL(pmem_memmove)(target, source, size, flags),
      COPIES(REAL(pmem_memmove)(target, source, size, flags), target, source, 0, size, flags))
MODEL(void *, pmem_memcpy, (void *target, const void *source, size_t size, unsigned flags),
      REAL(pmem_memcpy)(target, source, size, flags),
      COPIES(REAL(pmem_memcpy)(target, source, size, flags), target, source, 0, size, flags))
MODEL(void *, pmem_memset, (void *target, int byte, size_t size, unsigned flags), REAL(pmem_memset)(target, byte, size, flags),
      COPIES(REAL(pmem_memset)(target, byte, size, flags), target, NULL, byte, size, flags))
MODEL(void *, pmem_memmove_persist, (void *target, const void *source, size_t size),
      REAL(pmem_memmove_persist)(target, source, size),
      COPIES(REAL(pmem_memmove_persist)(target, source, size), target, source, 0, size, 0))
MODEL(void *, pmem_memcpy_persist, (void *target, const void *source, size_t size),
      REAL(pmem_memcpy_persist)(target, source, size),
      COPIES(REAL(pmem_memcpy_persist)(target, source, size), target, source, 0, size, 0))
MODEL(void *, pmem_memset_persist, (void *target, int byte, size_t size), REAL(pmem_memset_persist)(target, byte, size),
      COPIES(REAL(pmem_memset_persist)(target, byte, size), target, NULL, byte, size, 0))
MODEL(void *, pmem_memmove_nodrain, (void *target, const void *source, size_t size),
      REAL(pmem_memmove_nodrain)(target, source, size),
      COPIES(REAL(pmem_memmove_nodrain)(target, source, size), target, source, 0, size, NODRAIN))
MODEL(void *, pmem_memcpy_nodrain, (void *target, const void *source, size_t size),
      REAL(pmem_memcpy_nodrain)(target, source, size),
      COPIES(REAL(pmem_memcpy_nodrain)(target, source, size), target, source, 0, size, NODRAIN))
MODEL(void *, pmem_memset_nodrain, (void *target, int byte, size_t size), REAL(pmem_memset_nodrain)(target, byte, size),
      COPIES(REAL(pmem_memset_nodrain)(target, byte, size), target, NULL, byte, size, NODRAIN))

/* libpmem2 hands out functions for a mapping that do not know which: so there is one of ours for each granularity.
 * Where pages are made durable its flush calls msync, which is recorded as such. */
enum { PAGES = 2, GRANULARITIES }; /* libpmem2/base.h */
static struct {
    cc_pmem2_flush *flush;
    cc_pmem2_drain *drain;
    cc_pmem2_memmove *memmove;
    cc_pmem2_memset *memset;
} handed_out[GRANULARITIES];

#define RECORDS() (cc_on() && !cc_thread.inside)

#define COPIES_TO(granularity, function, target, source, byte, what, size, flags)                                      \
    if (!RECORDS())                                                                                                    \
        return handed_out[granularity].function(target, what, size, flags);                                            \
    where at = cc_from_outside();                                                                                      \
    unsigned copying = granularity == PAGES ? flags | NOFLUSH : flags;                                                 \
    (void)COPIES(handed_out[granularity].function(target, what, size, copying), target, source, byte, size, copying);  \
    if (copying != flags)                                                                                              \
        handed_out[PAGES].flush(target, size);                                                                         \
    return target;

#define HANDED_OUT(granularity)                                                                                        \
    static void flush_##granularity(const void *address, size_t size)                                                  \
    {                                                                                                                  \
        if (granularity != PAGES && RECORDS())                                                                         \
            flushes(cc_from_outside(), address, size);                                                                 \
        handed_out[granularity].flush(address, size);                                                                  \
    }                                                                                                                  \
    static void drain_##granularity(void)                                                                              \
    {                                                                                                                  \
        if (granularity != PAGES && RECORDS())                                                                         \
            drains(cc_from_outside());                                                                                 \
        handed_out[granularity].drain();                                                                               \
    }                                                                                                                  \
    static void persist_##granularity(const void *address, size_t size)                                                \
    {                                                                                                                  \
        flush_##granularity(address, size);                                                                            \
        drain_##granularity();                                                                                         \
    }                                                                                                                  \
    static void *memmove_##granularity(void *target, const void *source, size_t size, unsigned flags)                  \
    {                                                                                                                  \
        COPIES_TO(granularity, memmove, target, source, 0, source, size, flags)                                        \
    }                                                                                                                  \
    static void *memset_##granularity(void *target, int byte, size_t size, unsigned flags)                             \
    {                                                                                                                  \
        COPIES_TO(granularity, memset, target, NULL, byte, byte, size, flags)                                          \
    }
HANDED_OUT(0)
HANDED_OUT(1)
HANDED_OUT(2)

/* Noted at each question, for threads may ask at once: what they note is the same. */
static int granularity_of(void *mapping)
{
    int granularity = REAL(pmem2_map_get_store_granularity)(mapping);
    __atomic_store_n(&handed_out[granularity].flush, REAL(pmem2_get_flush_fn)(mapping), __ATOMIC_RELAXED);
    __atomic_store_n(&handed_out[granularity].drain, REAL(pmem2_get_drain_fn)(mapping), __ATOMIC_RELAXED);
    __atomic_store_n(&handed_out[granularity].memmove, REAL(pmem2_get_memmove_fn)(mapping), __ATOMIC_RELAXED);
    __atomic_store_n(&handed_out[granularity].memset, REAL(pmem2_get_memset_fn)(mapping), __ATOMIC_RELAXED);
    return granularity;
}

#define HANDS_OUT(type, asked, ours)                                                                                   \
    EXPORTED type *cc_wrap_pmem2_get_##asked##_fn(void *mapping);                                                      \
    EXPORTED type *cc_wrap_pmem2_get_##asked##_fn(void *mapping)                                                       \
    {                                                                                                                  \
        static type *const of[] = {ours##_0, ours##_1, ours##_2};                                                      \
        return of[granularity_of(mapping)];                                                                            \
    }
HANDS_OUT(cc_pmem2_flush, persist, persist)
HANDS_OUT(cc_pmem2_flush, flush, flush)
HANDS_OUT(cc_pmem2_drain, drain, drain)
HANDS_OUT(cc_pmem2_memmove, memmove, memmove)
HANDS_OUT(cc_pmem2_memmove, memcpy, memmove)
HANDS_OUT(cc_pmem2_memset, memset, memset)
