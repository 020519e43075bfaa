/* What the program is about to read: where it differs between crash images, the process forks (explorer/explore_decisions.c). */
#ifndef CRASHCHECK_EXPLORER_DECISIONS_H
#define CRASHCHECK_EXPLORER_DECISIONS_H

#include "explorer/exploration.h"

struct file_range {
    uint64_t device, inode, start, end;
};

HIDDEN void cc_explore_accesses(const ucontext_t *context, const struct mapping *in, uintptr_t start, uintptr_t end, bool writes);
HIDDEN void cc_explore_reads_file(const ucontext_t *context, const struct file_range *range, char *into);

#endif
