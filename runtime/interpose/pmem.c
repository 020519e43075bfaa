/* libpmem: its flushes, fences and copies become events; the calls that it makes itself are not recorded. */
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
