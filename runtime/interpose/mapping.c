/* mmap, munmap and mremap: which mappings are of pool files. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "interpose/model.h"
#include "recorder/addresses.h"
#include "recorder/events.h"
#include "recorder/file_ids.h"
#include "recorder/notes.h"
#include "recorder/pool_files.h"
#include "recorder/regions.h"
#include "recorder/trace.h"

static size_t pages(size_t size)
{
    return (size + PAGE - 1) & ~(PAGE - 1);
}

static void *answer(long result)
{
    if (!raw_failed(result))
        return (void *)result;
    errno = (int)-result;
    return MAP_FAILED;
}

static void map_event(where at, uint8_t kind, const struct region *region)
{
    if (cc_traced)
        return;
    uint64_t range[2] = {region->start, region->end - region->start};
    cc_event_bytes(at, (struct cc_event){.kind = kind, .file = region->file, .offset = region->offset, .aux = region->flags},
                   NULL, 0, range, sizeof range);
}

/* Records what was unmapped, and frees the list. */
static void unmap_events(where at, struct regions_gone *gone)
{
    for (size_t i = 0; i < gone->parts; i++)
        map_event(at, CC_UNMAP, &gone->part[i]);
    cc_regions_gone_free(gone);
}

/* A call of mmap, and what is known of its file. */
struct mapping {
    void *address;
    size_t length;
    int protection, flags, fd;
    off64_t offset;
    uint32_t file;             /* id, if stores to the mapping reach a pool file while recording */
    bool place;                /* in the address table */
    char relative[PATH_ROOM];  /* of a pool file, inside the pool */
};

static long map_plainly(const struct mapping *new)
{
    return raw6(SYS_mmap, (long)new->address, (long)new->length, new->protection, new->flags, new->fd, new->offset);
}

/* From here on the kernel may choose addresses. */
#define KERNELS_CHOICE 0x7e0000000000ul
#define LARGEST_ALIGNMENT (1ul << 30)

/* Whether the program wants an address of its own: not one that was only free in its process, as libpmemobj looks for
 * such an address, which may be taken where the recorder runs. The kernel's choices go downwards from one address, so
 * one below what it would choose now, with room for the alignment that a library adds, is the program's. */
static bool is_own_address(const struct mapping *new)
{
    uintptr_t wish = (uintptr_t)new->address;
    if (wish < KERNELS_CHOICE)
        return wish;
    size_t size = pages(new->length) + LARGEST_ALIGNMENT;
    if (size <= new->length)
        return false;
    long chosen = raw6(SYS_mmap, 0, (long)size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw_failed(chosen))
        return false;
    raw3(SYS_munmap, chosen, (long)size, 0);
    return wish < (uintptr_t)chosen;
}

/* A program that is not mapped where it asked to be may fail: the reason is then known. */
static void note_moved(const struct mapping *new, long result)
{
    char text[PATH_ROOM + 64], number[17];
    size_t end = raw_append(text, PATH_ROOM, new->relative);
    const uint64_t addresses[] = {(uint64_t)(uintptr_t)new->address, (uint64_t)result};
    for (size_t i = 0; i < 2; i++) {
        number[cc_write_hex(number, addresses[i])] = 0;
        end += raw_append(text + end, 32, i ? ", is at 0x" : ", asked for at 0x");
        end += raw_append(text + end, 17, number);
    }
    cc_note("moved", text);
}

static long map_in_place(const struct mapping *new)
{
    bool hinted = is_own_address(new);
    return cc_place(new->length, new->protection, new->flags, new->fd, (uint64_t)new->offset, new->relative, hinted);
}

/* Why stores to a mapping of a regular file will not be recorded. */
static void note_unrecorded(const struct mapping *new, bool shared)
{
    char path[PATH_ROOM];
    if (!(new->protection & PROT_WRITE))
        return;
    if (new->file && !shared) {
        cc_note("private", new->relative);
    } else if (cc_recording && !new->file && shared && !cc_in_pool(new->fd, path)) {
        cc_real_path(new->fd, path);
        cc_note("outside", path);
    }
}

/* Memory that needs no sync is the model's: what asks for it gets it also of a file system without DAX. */
static void allow_sync(struct mapping *new)
{
    if (!cc_has_dax || (new->flags & (MAP_TYPE | MAP_SYNC)) != (MAP_SHARED_VALIDATE | MAP_SYNC))
        return;
    int anywhere = new->flags & ~(MAP_FIXED | MAP_FIXED_NOREPLACE);
    long tried = raw6(SYS_mmap, 0, (long)new->length, new->protection, anywhere, new->fd, new->offset);
    if (tried == -EOPNOTSUPP)
        new->flags = (new->flags & ~(MAP_TYPE | MAP_SYNC)) | MAP_SHARED;
    else if (!raw_failed(tried))
        raw3(SYS_munmap, tried, (long)new->length, 0);
}

static void identify(struct mapping *new)
{
    struct file_state state;
    bool shared = (new->flags & MAP_TYPE) != MAP_PRIVATE, fixed = new->flags & (MAP_FIXED | MAP_FIXED_NOREPLACE);
    if ((new->flags & MAP_ANONYMOUS) || !cc_state_of_fd(new->fd, &state) || (state.mode & S_IFMT) != S_IFREG)
        return;
    if (cc_recording)
        new->file = cc_traced ? cc_traced_file(new->fd) : cc_pool_file_of(new->fd, &state, true, state.size);
    bool of_pool = (new->file || !cc_recording) && cc_in_pool(new->fd, new->relative) && cc_matches(new->relative);
    if (!cc_traced)
        note_unrecorded(new, shared);
    if (!shared)
        new->file = 0;
    if (of_pool && shared)
        allow_sync(new);
    new->place = of_pool && shared && cc_places_files && !fixed && !(new->flags & MAP_32BIT);
}

/* Puts back what was not unmapped after all, and frees the list. */
static void restore(struct regions_gone *gone)
{
    for (size_t i = 0; i < gone->parts; i++)
        cc_region_add(&gone->part[i]);
    cc_regions_gone_free(gone);
    gone->parts = 0;
}

/* Maps a file that is not recorded, over no region. */
static long map_unrecorded(const struct mapping *new)
{
    long placed = new->place ? map_in_place(new) : -ENOMEM;
    if (!raw_failed(placed))
        return placed;
    long result = map_plainly(new);
    if (new->place && cc_learns_places && !raw_failed(result))
        cc_placed((uintptr_t)result, new->length, (uint64_t)new->offset, new->relative);
    return result;
}

/* The mapping and what is known of it change together, so that a store by another thread to the new mapping
 * of an old address is never taken for the old file's. */
static long map_recorded(where at, const struct mapping *new, bool replaces)
{
    struct regions_gone gone = {.parts = 0};
    uintptr_t start = (uintptr_t)new->address;
    uint64_t signals = cc_regions_lock();
    if (replaces)
        cc_region_cut(start, start + pages(new->length), &gone);
    long result = new->place ? map_in_place(new) : -ENOMEM;
    bool placed = new->place && !raw_failed(result);
    if (!placed)
        result = map_plainly(new);
    struct region region = {.start = (uintptr_t)result,
                            .end = (uintptr_t)result + pages(new->length),
                            .offset = (uint64_t)new->offset,
                            .file = new->file,
                            .flags = (uint8_t)(CC_MAP_SHARED | (new->protection & PROT_WRITE ? CC_MAP_WRITE : 0))};
    if (raw_failed(result)) {
        restore(&gone);
    } else if (new->file) {
        if (new->place && new->address && result != (long)new->address)
            note_moved(new, result);
        if (!placed && cc_places_files)
            cc_placed(region.start, new->length, region.offset, new->relative);
        cc_region_add(&region);
    }
    cc_regions_unlock(signals);
    unmap_events(at, &gone);
    if (new->file && !raw_failed(result))
        map_event(at, CC_MAP, &region);
    return result;
}

static long map(where at, void *address, size_t length, int protection, int flags, int fd, off64_t offset)
{
    struct mapping new;
    new.address = address;
    new.length = length;
    new.protection = protection;
    new.flags = flags;
    new.fd = fd;
    new.offset = offset;
    new.file = 0;
    new.place = false;
    identify(&new);
    bool replaces = (flags & MAP_FIXED) && cc_region_overlaps((uintptr_t)address, (uintptr_t)address + pages(length));
    return new.file || replaces ? map_recorded(at, &new, replaces) : map_unrecorded(&new);
}

static long unmap(where at, void *address, size_t length)
{
    uintptr_t start = (uintptr_t)address, end = start + pages(length);
    if (end <= start || !cc_region_overlaps(start, end))
        return raw3(SYS_munmap, (long)address, (long)length, 0);
    struct regions_gone gone;
    uint64_t signals = cc_regions_lock();
    cc_region_cut(start, end, &gone);
    long result = raw3(SYS_munmap, (long)address, (long)length, 0);
    if (raw_failed(result))
        restore(&gone);
    cc_regions_unlock(signals);
    unmap_events(at, &gone);
    return result;
}

static long remap(where at, void *old, size_t old_length, size_t new_length, int flags, void *target)
{
    uintptr_t start = (uintptr_t)old, end = start + pages(old_length);
    uintptr_t to = (uintptr_t)target, to_end = to + pages(new_length);
    bool onto = (flags & MREMAP_FIXED) && cc_region_overlaps(to, to_end);
    if (!onto && !cc_region_overlaps(start, end > start ? end : start + PAGE))
        return raw6(SYS_mremap, (long)old, (long)old_length, (long)new_length, flags, (long)target, 0);
    struct regions_gone gone, over = {.parts = 0};
    uint64_t signals = cc_regions_lock();
    if (onto)
        cc_region_cut(to, to_end, &over);
    /* Length 0 of a shared mapping makes a second mapping and leaves the first. */
    cc_region_cut(start, end > start ? end : start + PAGE, &gone);
    long result = raw6(SYS_mremap, (long)old, (long)old_length, (long)new_length, flags, (long)target, 0);
    struct region moved = {0};
    if (!raw_failed(result) && gone.parts) {
        moved = gone.part[0];
        moved.start = (uintptr_t)result;
        moved.end = moved.start + pages(new_length);
    }
    if (raw_failed(result))
        restore(&over);
    if (raw_failed(result) || end == start)
        restore(&gone);
    if (moved.end)
        cc_region_add(&moved);
    cc_regions_unlock(signals);
    unmap_events(at, &gone);
    unmap_events(at, &over);
    if (moved.end)
        map_event(at, CC_MAP, &moved);
    return result;
}

static bool maps_files(void)
{
    return cc_on() || cc_places_files;
}

EXPORTED void *cc_wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset);
EXPORTED void *cc_wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    where at = cc_from_wrapper();
    if (!maps_files())
        return answer(raw6(SYS_mmap, (long)address, (long)length, protection, flags, fd, offset));
    return answer(map(at, address, length, protection, flags, fd, offset));
}
OUTSIDE(void *, mmap, (void *address, size_t length, int protection, int flags, int fd, off_t offset), {
    if (!maps_files())
        return answer(raw6(SYS_mmap, (long)address, (long)length, protection, flags, fd, offset));
    return answer(map(cc_from_outside(), address, length, protection, flags, fd, offset));
})
EXPORTED void *cc_wrap_mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
    __attribute__((alias("cc_wrap_mmap")));
#ifdef CC_SHARED
EXPORTED void *mmap64(void *address, size_t length, int protection, int flags, int fd, off64_t offset)
    __attribute__((alias("mmap")));
#endif

static int small_answer(long result)
{
    if (!raw_failed(result))
        return (int)result;
    errno = (int)-result;
    return -1;
}

MODEL(int, munmap, (void *address, size_t length), small_answer(raw3(SYS_munmap, (long)address, (long)length, 0)),
      small_answer(unmap(at, address, length)))

static void *remap_with(bool modelled, where at, void *old, size_t old_length, size_t new_length, int flags, void *target)
{
    if (!modelled)
        return answer(raw6(SYS_mremap, (long)old, (long)old_length, (long)new_length, flags, (long)target, 0));
    return answer(remap(at, old, old_length, new_length, flags, target));
}

#define REMAP_BODY(modelled, from)                                                                                     \
    {                                                                                                                  \
        where at = from;                                                                                               \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        void *target = flags & MREMAP_FIXED ? va_arg(rest, void *) : NULL;                                             \
        va_end(rest);                                                                                                  \
        return remap_with(modelled, at, old, old_length, new_length, flags, target);                                   \
    }
EXPORTED void *cc_wrap_mremap(void *old, size_t old_length, size_t new_length, int flags, ...);
EXPORTED void *cc_wrap_mremap(void *old, size_t old_length, size_t new_length, int flags, ...)
    REMAP_BODY(cc_on(), cc_from_wrapper())
OUTSIDE(void *, mremap, (void *old, size_t old_length, size_t new_length, int flags, ...),
        REMAP_BODY(cc_on() && !cc_thread.inside, cc_from_outside()))
