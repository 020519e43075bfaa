/* A recorder that prints each call of a hook by instrumented code, for exact expectations.
 *
 * Addresses are printed relative to the watched region, which the program sets with `watch`. */
#include "hooks.h"
#include "registers.h"

#include <stdio.h>
#include <string.h>

__thread struct cc_shadow cc_shadow;
uintptr_t cc_window_start;
uintptr_t cc_window_bytes;
uint8_t cc_load_on;
__thread uint32_t cc_fence_wanted;
uint32_t cc_recording;
__thread struct cc_call_site cc_call_site;

void watch(void *start, size_t bytes);
void watch_loads(void);
void unwatch(void);
void wanted(uint32_t value);

void watch(void *start, size_t bytes)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    cc_window_start = (uintptr_t)start;
    cc_window_bytes = bytes;
    cc_recording = 1;
}

void watch_loads(void)
{
    cc_load_on = 1;
}

void unwatch(void)
{
    cc_load_on = 0;
    cc_window_bytes = 0;
    cc_recording = 0;
}

void wanted(uint32_t value)
{
    cc_fence_wanted = value;
}

static long at(const void *address)
{
    return (long)((uintptr_t)address - cc_window_start);
}

static void instance_text(uint64_t instance)
{
    if (instance)
        printf(" instance=%ld", (long)(instance - cc_window_start));
}

static void tail(struct cc_unit *unit, uint32_t index, uint32_t depth)
{
    printf(" site=%016llx:%u depth=%u", (unsigned long long)unit->key, index, depth);
    for (uint32_t frame = depth; frame-- > 0;)
        if (cc_shadow.frames[frame].unit)
            printf(" <%016llx:%llu", (unsigned long long)cc_shadow.frames[frame].unit->key,
                   (unsigned long long)cc_shadow.frames[frame].index);
    printf("\n");
}

static void bytes(const void *value, uint64_t size)
{
    const unsigned char *byte = value;
    for (uint64_t index = 0; index < size; index++)
        printf("%02x", byte[index]);
}

void cc_store(const void *target, const void *value, uint64_t size, uint64_t instance, struct cc_unit *unit,
              uint32_t index, uint32_t depth, uint32_t flags)
{
    printf("store @%ld ", at(target));
    bytes(value, size);
    printf(" flags=%u", flags);
    instance_text(instance);
    tail(unit, index, depth);
}

void cc_store_word(const void *target, uint64_t value, uint32_t size, uint64_t instance, struct cc_unit *unit,
                   uint32_t index, uint32_t depth, uint32_t flags)
{
    cc_store(target, &value, size, instance, unit, index, depth, flags);
}

void cc_store_masked(const void *target, const void *value, const unsigned char *enabled, uint32_t lanes, uint32_t lane_bytes,
                     uint64_t instance, struct cc_unit *unit, uint32_t index, uint32_t depth, uint32_t flags)
{
    printf("masked @%ld", at(target));
    for (uint32_t lane = 0; lane < lanes; lane++) {
        printf(" ");
        if (enabled[lane])
            bytes((const unsigned char *)value + lane * lane_bytes, lane_bytes);
        else
            printf("-");
    }
    printf(" flags=%u", flags);
    instance_text(instance);
    tail(unit, index, depth);
}

void cc_copy(const void *target, const void *source, uint64_t size, uint64_t instance, struct cc_unit *unit,
             uint32_t index, uint32_t depth)
{
    printf("copy @%ld ", at(target));
    bytes(source, size);
    instance_text(instance);
    tail(unit, index, depth);
}

void cc_fill(const void *target, uint32_t byte, uint64_t size, uint64_t instance, struct cc_unit *unit,
             uint32_t index, uint32_t depth)
{
    printf("fill @%ld %02xx%llu", at(target), byte, (unsigned long long)size);
    instance_text(instance);
    tail(unit, index, depth);
}

void cc_load(const void *source, uint64_t size, uint64_t instance, struct cc_unit *unit, uint32_t index,
             uint32_t depth, uint32_t flags)
{
    printf("load @%ld %llu flags=%u", at(source), (unsigned long long)size, flags);
    instance_text(instance);
    tail(unit, index, depth);
}

void cc_load_string(const void *source, uint64_t most, struct cc_unit *unit, uint32_t index, uint32_t depth)
{
    printf("string @%ld %lld", at(source), (long long)most);
    tail(unit, index, depth);
}

void cc_atomic_begin(const void *target)
{
    printf("begin @%ld\n", at(target));
}

void cc_atomic_end(const void *target, uint32_t size, uint32_t locked, uint32_t done, uint64_t instance,
                   struct cc_unit *unit, uint32_t index, uint32_t depth)
{
    printf("end @%ld ", at(target));
    bytes(target, size);
    printf(" locked=%u stored=%u", locked, done & CC_ATOMIC_STORED);
    if (cc_load_on)
        printf(" read=%u", (done & CC_ATOMIC_READ) / CC_ATOMIC_READ);
    instance_text(instance);
    tail(unit, index, depth);
}

void cc_flush(const void *address, uint64_t size, uint32_t flush_kind, struct cc_unit *unit, uint32_t index,
              uint32_t depth)
{
    static const char *const names[] = {"?", "clflush", "clflushopt", "clwb"};
    printf("flush @%ld %llu %s", at(address), (unsigned long long)size, names[flush_kind]);
    tail(unit, index, depth);
}

void cc_fence(uint32_t fence_kind, struct cc_unit *unit, uint32_t index, uint32_t depth)
{
    static const char *const names[] = {"?", "sfence", "mfence", "locked", "drain"};
    printf("fence %s", names[fence_kind]);
    tail(unit, index, depth);
}

/* Two models, enough to see that calls and addresses are renamed. */
char *cc_wrap_strcpy(char *target, const char *source);
void *cc_wrap_memcpy(void *target, const void *source, size_t bytes_copied);

char *cc_wrap_strcpy(char *target, const char *source)
{
    printf("strcpy @%ld %s", at(target), source);
    if (cc_call_site.unit)
        tail(cc_call_site.unit, cc_call_site.index, cc_call_site.depth);
    else
        printf(" no site\n");
    cc_call_site.unit = NULL;
    return strcpy(target, source);
}

void *cc_wrap_memcpy(void *target, const void *source, size_t bytes_copied)
{
    printf("memcpy @%ld %zu", at(target), bytes_copied);
    if (cc_call_site.unit)
        tail(cc_call_site.unit, cc_call_site.index, cc_call_site.depth);
    else
        printf(" no site\n");
    cc_call_site.unit = NULL;
    return memcpy(target, source, bytes_copied);
}

__attribute__((used, visibility("hidden"))) void stub_access(const struct cc_access *access, struct cc_unit *unit);
void stub_access(const struct cc_access *access, struct cc_unit *unit)
{
    if (access->address - cc_window_start >= cc_window_bytes)
        return;
    uint64_t instance = access->delta == UINT64_MAX ? 0 : access->address - access->delta;
    cc_load((const void *)access->address, access->packed >> 9, instance, unit, (uint32_t)access->site,
            cc_shadow.depth - (access->packed & 1), (uint8_t)(access->packed >> 1));
}

__asm__(".text\n.globl cc_access_entry\n.type cc_access_entry,@function\n"
        "cc_access_entry: " PASS_ACCESS_TO(stub_access));

void cc_compared(const struct cc_timer *timer, uint64_t left, uint64_t right)
{
    static const char *const directions[] = {"", "grows", "shrinks", "moves"};
    const char *line = strrchr(timer->place, ':') + 1;
    printf("line %.*s %s in %g ns, %s\n", (int)strcspn(line, ")"), line, directions[timer->directions], timer->unit_ns,
           left == right ? "equal" : "not equal");
}
