/* The kernel's list of this process's mappings, /proc/self/maps. */
#ifndef CRASHCHECK_RECORDER_KERNEL_MAPS_H
#define CRASHCHECK_RECORDER_KERNEL_MAPS_H

#include "recorder/base.h"

struct kernel_mapping {
    uint64_t start, end, offset;
    bool shared, writable;
    bool deleted;           /* the file has no name any more */
    const char *path;       /* absolute; not ended by a NUL */
    size_t length;          /* of the path; 0: it is of no file */
};

/* Calls `visit` with each mapping, until it returns true; whether it did. */
HIDDEN bool cc_each_mapping(bool (*visit)(const struct kernel_mapping *mapping, void *data), void *data);

#endif
