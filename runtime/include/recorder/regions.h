/* Regions: the address ranges that hold pool files, and the smallest window around all of them. */
#ifndef CRASHCHECK_RECORDER_REGIONS_H
#define CRASHCHECK_RECORDER_REGIONS_H

#include "recorder/base.h"

struct region {
    uintptr_t start, end;
    uint64_t offset;        /* of `start` in the file */
    uint16_t file;
    uint8_t flags;          /* cc_map_flags */
};

extern HIDDEN _Atomic uint64_t cc_region_version; /* changes with the regions */
extern HIDDEN uintptr_t cc_mapped_start, cc_mapped_bytes; /* the window, whatever instrumented code reports */
extern HIDDEN uintptr_t cc_load_window_start, cc_load_window_bytes; /* the window of reads that may be recorded */

HIDDEN uint64_t cc_regions_lock(void);
HIDDEN void cc_regions_unlock(uint64_t signals);
HIDDEN void cc_regions_reset_lock(void);
HIDDEN void cc_region_add(const struct region *region);                     /* lock held */
HIDDEN size_t cc_region_cut(uintptr_t start, uintptr_t end, struct region *gone, size_t room); /* lock held */
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
