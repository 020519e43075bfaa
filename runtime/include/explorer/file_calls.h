/* The system calls of an explored process that concern its descriptors and files. */
#ifndef CRASHCHECK_EXPLORER_FILE_CALLS_H
#define CRASHCHECK_EXPLORER_FILE_CALLS_H

#include <ucontext.h>

#include "recorder/base.h"

HIDDEN long cc_explore_reads(const ucontext_t *context, long number, const long *a);
HIDDEN long cc_explore_writes(long number, const long *a);
HIDDEN long cc_explore_writes_parts(long number, const long *a);
HIDDEN long cc_explore_seeks(long number, const long *a);
HIDDEN long cc_explore_lists(long number, const long *a);
HIDDEN long cc_explore_opens(long number, const long *a);
HIDDEN long cc_explore_duplicates(long number, const long *a);
HIDDEN long cc_explore_resizes(long number, const long *a);
HIDDEN long cc_explore_syncs(long number, const long *a);
HIDDEN long cc_explore_asks(long number, const long *a); /* for a file's metadata */
HIDDEN long cc_explore_controls(long number, const long *a);

#endif
