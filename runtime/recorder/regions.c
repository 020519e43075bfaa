/* Which addresses are persistent: the shared mappings of pool files, and the smallest window that holds them. */
#include <sys/mman.h>

#include "recorder/locks.h"
#include "recorder/notes.h"
#include "recorder/kernel_maps.h"
#include "recorder/process.h"
#include "recorder/regions.h"

#define REGIONS_MOST 65536u /* as many mappings as the kernel allows a process (vm.max_map_count) */

_Atomic uint64_t cc_region_version = 1; /* odd: stable; even: being changed */

/* Sorted, disjoint. Readers take no lock: they read the version before and after. */
static struct region table[REGIONS_MOST];
static _Atomic uint32_t count;
static struct quiet_lock lock;

uint64_t cc_regions_lock(void)
{
    return cc_thread.regions_held++ ? 0 : cc_lock(&lock);
}

void cc_regions_unlock(uint64_t signals)
{
    if (--cc_thread.regions_held == 0)
        cc_unlock(&lock, signals);
}

/* In a forked child: another thread of the parent may have held it. */
void cc_regions_reset_lock(void)
{
    atomic_store(&lock.held, 0);
    cc_thread.regions_held = 0;
    if (atomic_load(&cc_region_version) % 2 == 0)
        atomic_fetch_add(&cc_region_version, 1);
}

static uint32_t first_ending_after(uintptr_t address, uint32_t used)
{
    uint32_t low = 0, high = used;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (__atomic_load_n(&table[middle].end, __ATOMIC_RELAXED) <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void read_region(uint32_t index, struct region *to)
{
    to->start = __atomic_load_n(&table[index].start, __ATOMIC_RELAXED);
    to->end = __atomic_load_n(&table[index].end, __ATOMIC_RELAXED);
    to->offset = __atomic_load_n(&table[index].offset, __ATOMIC_RELAXED);
    to->file = __atomic_load_n(&table[index].file, __ATOMIC_RELAXED);
    to->flags = __atomic_load_n(&table[index].flags, __ATOMIC_RELAXED);
}

static void write_region(uint32_t index, const struct region *from)
{
    __atomic_store_n(&table[index].start, from->start, __ATOMIC_RELAXED);
    __atomic_store_n(&table[index].end, from->end, __ATOMIC_RELAXED);
    __atomic_store_n(&table[index].offset, from->offset, __ATOMIC_RELAXED);
    __atomic_store_n(&table[index].file, from->file, __ATOMIC_RELAXED);
    __atomic_store_n(&table[index].flags, from->flags, __ATOMIC_RELAXED);
}

bool cc_region_find(uintptr_t address, struct region *found, uint64_t *valid_at, uintptr_t *next)
{
    for (;;) {
        uint64_t version = atomic_load_explicit(&cc_region_version, memory_order_acquire);
        if (version % 2 == 0) {
            raw3(SYS_sched_yield, 0, 0, 0);
            continue;
        }
        uint32_t used = atomic_load_explicit(&count, memory_order_relaxed);
        uint32_t index = first_ending_after(address, used);
        struct region nearest = {0};
        if (index < used)
            read_region(index, &nearest);
        atomic_thread_fence(memory_order_acquire);
        if (atomic_load_explicit(&cc_region_version, memory_order_relaxed) != version)
            continue;
        if (index < used && nearest.start <= address) {
            *found = nearest;
            *valid_at = version;
            return true;
        }
        if (next)
            *next = index < used ? nearest.start : 0;
        return false;
    }
}

bool cc_region_overlaps(uintptr_t start, uintptr_t end)
{
    struct region at_start;
    uint64_t version;
    uintptr_t above;
    return cc_region_find(start, &at_start, &version, &above) || (above && above < end);
}

static void begin_change(void)
{
    atomic_fetch_add_explicit(&cc_region_version, 1, memory_order_acq_rel);
    atomic_thread_fence(memory_order_release);
}

static void end_change(void)
{
    atomic_fetch_add_explicit(&cc_region_version, 1, memory_order_release);
}

/* Instrumented code reads start and bytes apart, so at each moment the pair must cover all regions: grow
 * upwards first. The window never shrinks. */
static void widen(uintptr_t *window, uintptr_t *bytes, uintptr_t start, uintptr_t end)
{
    uintptr_t old_start = *window, old_end = old_start + *bytes;
    if (old_start == old_end) {
        __atomic_store_n(window, start, __ATOMIC_RELEASE);
        __atomic_store_n(bytes, end - start, __ATOMIC_RELEASE);
        return;
    }
    uintptr_t new_start = start < old_start ? start : old_start, new_end = end > old_end ? end : old_end;
    __atomic_store_n(bytes, new_end - new_start, __ATOMIC_RELEASE);
    __atomic_store_n(window, new_start, __ATOMIC_RELEASE);
}

void cc_region_add(const struct region *region)
{
    uint32_t used = atomic_load(&count);
    if (used == REGIONS_MOST) {
        cc_note("regions", "more mappings at a time than can be recorded");
        cc_stop(CC_STATUS_TOO_MANY);
        return;
    }
    uint32_t at = first_ending_after(region->start, used);
    begin_change();
    for (uint32_t i = used; i > at; i--)
        write_region(i, &table[i - 1]);
    write_region(at, region);
    atomic_store(&count, used + 1);
    end_change();
    widen(&cc_mapped_start, &cc_mapped_bytes, region->start, region->end);
    /* A store may begin below, in a mapping that is not watched, and continue in this one. */
    widen(&cc_window_start, &cc_window_bytes, region->start - PAGE, region->end);
    if (cc_loads) {
        widen(&cc_load_window_start, &cc_load_window_bytes, region->start, region->end);
        __atomic_store_n(&cc_load_on, 1, __ATOMIC_RELEASE);
    }
}

void *cc_scratch(size_t count, size_t size)
{
    long memory = raw6(SYS_mmap, 0, (long)(count * size), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!raw_failed(memory))
        return (void *)memory;
    cc_note("memory", "no memory for a list of mappings");
    cc_stop(CC_STATUS_TOO_MANY);
    return NULL;
}

void cc_scratch_free(void *memory, size_t count, size_t size)
{
    raw3(SYS_munmap, (long)memory, (long)(count * size), 0);
}

static size_t overlapping(uintptr_t start, uintptr_t end)
{
    uint32_t used = atomic_load(&count), first = first_ending_after(start, used), at = first;
    while (at < used && table[at].start < end)
        at++;
    return at - first;
}

/* Takes [start, end) out of the region `at`, which it overlaps; the part that it was. */
static struct region cut_one(uint32_t at, uintptr_t start, uintptr_t end)
{
    uint32_t used = atomic_load(&count);
    struct region old = table[at], part = old;
    if (part.start < start) {
        part.offset += start - part.start;
        part.start = start;
    }
    if (part.end > end)
        part.end = end;
    bool left = old.start < part.start, right = old.end > part.end;
    struct region after = old;
    after.start = part.end;
    after.offset = part.offset + (part.end - part.start);
    begin_change();
    if (left) {
        __atomic_store_n(&table[at].end, part.start, __ATOMIC_RELAXED);
    } else if (right) {
        write_region(at, &after);
    } else {
        for (uint32_t i = at; i + 1 < used; i++)
            write_region(i, &table[i + 1]);
        atomic_store(&count, used - 1);
    }
    end_change();
    if (left && right)
        cc_region_add(&after);
    return part;
}

/* Takes [start, end) out of all regions. */
void cc_region_cut(uintptr_t start, uintptr_t end, struct regions_gone *gone)
{
    size_t parts = overlapping(start, end);
    gone->parts = 0;
    gone->part = parts <= sizeof gone->few / sizeof *gone->few ? gone->few : cc_scratch(parts, sizeof *gone->part);
    while (gone->part && gone->parts < parts) {
        uint32_t at = first_ending_after(start, atomic_load(&count));
        gone->part[gone->parts++] = cut_one(at, start, end);
    }
}

void cc_regions_gone_free(struct regions_gone *gone)
{
    if (gone->part && gone->part != gone->few)
        cc_scratch_free(gone->part, gone->parts, sizeof *gone->part);
}

void cc_regions_rename(uint16_t from, uint16_t to)
{
    uint64_t signals = cc_regions_lock();
    uint32_t used = atomic_load(&count), kept = 0;
    begin_change();
    for (uint32_t i = 0; i < used; i++) {
        struct region region = table[i];
        if (region.file == from)
            region.file = to;
        if (region.file)
            write_region(kept++, &region);
    }
    atomic_store(&count, kept);
    end_change();
    cc_regions_unlock(signals);
}

struct adoption {
    uint16_t file;
    const char *path;
    size_t length;
};

static bool adopt(const struct kernel_mapping *mapping, void *data)
{
    const struct adoption *wanted = data;
    if (mapping->shared && !mapping->deleted && mapping->length == wanted->length &&
        raw_same(mapping->path, wanted->path, wanted->length) && !overlapping(mapping->start, mapping->end))
        cc_region_add(&(struct region){.start = mapping->start,
                                       .end = mapping->end,
                                       .offset = mapping->offset,
                                       .file = wanted->file,
                                       .flags = (uint8_t)(CC_MAP_SHARED | (mapping->writable ? CC_MAP_WRITE : 0))});
    return false;
}

void cc_regions_adopt(uint16_t file, const char *path)
{
    uint64_t signals = cc_regions_lock();
    cc_each_mapping(adopt, &(struct adoption){file, path, raw_length(path)});
    cc_regions_unlock(signals);
}
