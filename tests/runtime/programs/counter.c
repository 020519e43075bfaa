/* A runtime that counts what a program does and records nothing: other bodies behind the hooks (hooks.h). */
#include <stdio.h>

#include "hooks.h"
#include "registers.h"

#pragma GCC diagnostic ignored "-Wunused-parameter"
#define PLACE uint64_t instance, struct cc_unit *unit, uint32_t index, uint32_t depth

__thread struct cc_shadow cc_shadow;
__thread struct cc_call_site cc_call_site;
__thread uint32_t cc_fence_wanted;
uintptr_t cc_window_start, cc_window_bytes = UINTPTR_MAX;
uint8_t cc_load_on = 1;
uint32_t cc_recording = 1;

static struct {
    unsigned long stores, stored_bytes, loads, loaded_bytes, atomics, flushes, fences, operations;
} counts;

#define ADD(what, number) __atomic_fetch_add(&counts.what, number, __ATOMIC_RELAXED)

static void stored(uint64_t bytes)
{
    ADD(stores, 1);
    ADD(stored_bytes, bytes);
}

static void loaded(uint64_t bytes)
{
    ADD(loads, 1);
    ADD(loaded_bytes, bytes);
}

#define HOOK(name, parameters, ...)                                                                                    \
    void name parameters                                                                                               \
    {                                                                                                                  \
        __VA_ARGS__;                                                                                                   \
    }
HOOK(cc_store, (const void *target, const void *value, uint64_t size, PLACE, uint32_t flags), stored(size))
HOOK(cc_store_word, (const void *target, uint64_t value, uint32_t size, PLACE, uint32_t flags), stored(size))
HOOK(cc_store_masked,
     (const void *target, const void *value, const unsigned char *enabled, uint32_t lanes, uint32_t lane_bytes, PLACE, uint32_t flags),
     for (uint32_t lane = 0; lane < lanes; lane++) if (enabled[lane]) stored(lane_bytes))
HOOK(cc_copy, (const void *target, const void *source, uint64_t size, PLACE), stored(size))
HOOK(cc_fill, (const void *target, uint32_t byte, uint64_t size, PLACE), stored(size))
HOOK(cc_load, (const void *source, uint64_t size, PLACE, uint32_t flags), loaded(size))
HOOK(cc_load_string, (const void *source, uint64_t most, struct cc_unit *unit, uint32_t index, uint32_t depth),
     loaded(__builtin_strlen(source) + 1))
HOOK(cc_atomic_begin, (const void *target), ADD(atomics, 1))
HOOK(cc_atomic_end, (const void *target, uint32_t size, uint32_t locked, uint32_t done, PLACE), ADD(fences, locked))
HOOK(cc_flush, (const void *address, uint64_t size, uint32_t flush_kind, struct cc_unit *unit, uint32_t index, uint32_t depth),
     ADD(flushes, 1))
HOOK(cc_fence, (uint32_t fence_kind, struct cc_unit *unit, uint32_t index, uint32_t depth), ADD(fences, 1))
HOOK(cc_compared, (const struct cc_timer *timer, uint64_t left, uint64_t right), ADD(operations, 0))
HOOK(cc_operation_enter, (void), ADD(operations, 1))
HOOK(cc_operation_leave, (void), )

__attribute__((used, visibility("hidden"))) void count_access(const struct cc_access *access, struct cc_unit *unit);
void count_access(const struct cc_access *access, struct cc_unit *unit)
{
    uint64_t bytes = access->packed >> 9;
    if (access->packed >> 1 & CC_ACCESS_WRITES)
        stored(bytes);
    else
        loaded(bytes);
}

__asm__(".text\n.globl cc_access_entry\n.type cc_access_entry,@function\n"
        "cc_access_entry: " PASS_ACCESS_TO(count_access));

__attribute__((destructor)) static void show(void)
{
    printf("%lu stores of %lu bytes, %lu loads of %lu bytes, %lu atomics, %lu flushes, %lu fences, %lu operations\n",
           counts.stores, counts.stored_bytes, counts.loads, counts.loaded_bytes, counts.atomics, counts.flushes,
           counts.fences, counts.operations);
}
