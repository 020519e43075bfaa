/* Regions: the address ranges that hold pool files, and the smallest window around all of them. */
#ifndef CRASHCHECK_RECORDER_REGIONS_H
#define CRASHCHECK_RECORDER_REGIONS_H

#include "recorder/base.h"

struct region {
    uintptr_t start, end;
    uint64_t offset;        /* of `start` in the file */
    uint32_t file;
    uint8_t flags;          /* cc_map_flags */
};

extern HIDDEN _Atomic uint64_t cc_region_version; /* changes with the regions */

HIDDEN uint64_t cc_regions_lock(void);
HIDDEN void cc_regions_unlock(uint64_t signals);
HIDDEN void cc_regions_reset_lock(void);
HIDDEN void cc_region_add(const struct region *region);                     /* lock held */

/* What was taken out of the regions; as many as there were. */
struct regions_gone {
    size_t parts;
    struct region *part;    /* `few`, or a mapping of their own */
    struct region few[8];
};
HIDDEN void cc_region_cut(uintptr_t start, uintptr_t end, struct regions_gone *gone); /* lock held */
HIDDEN void cc_regions_gone_free(struct regions_gone *gone);

/* Room for `count` things of `size` bytes; NULL stops recording. */
HIDDEN void *cc_scratch(size_t count, size_t size);
HIDDEN void cc_scratch_free(void *memory, size_t count, size_t size);

HIDDEN void cc_regions_rename(uint16_t from, uint16_t to);       /* mappings of one file are now of a different file, or of none: 0 */
/* Mappings of the file at `path`, made while it was no pool file, are regions of `file` from now on. */
HIDDEN void cc_regions_adopt(uint16_t file, const char *path);
HIDDEN bool cc_region_overlaps(uintptr_t start, uintptr_t end);

/* Finds the region of `address` and the version at which it is valid; else `next`, unless NULL, becomes the start of the
 * next region above, or 0. */
HIDDEN bool cc_region_find(uintptr_t address, struct region *found, uint64_t *version, uintptr_t *next);

static inline bool cc_range_in_window(const void *address, uint64_t size)
{
    return size && (uintptr_t)address < cc_mapped_start + cc_mapped_bytes &&
           (uintptr_t)address + size > cc_mapped_start && cc_mapped_bytes;
}

#endif
