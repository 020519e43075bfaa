/* The system calls of an explored process that concern its mappings. */
#ifndef CRASHCHECK_EXPLORER_MAPPING_CALLS_H
#define CRASHCHECK_EXPLORER_MAPPING_CALLS_H

#include "recorder/base.h"

HIDDEN bool cc_explore_is_ours(long fd); /* whether bytes of its file are open granules or in a mapping, and not in the file */
HIDDEN bool cc_explore_is_copied(long fd); /* whether its file was mapped privately: that may show what is written to it */
HIDDEN long cc_explore_maps(long number, const long *a);
HIDDEN long cc_explore_unmaps(long number, const long *a);
HIDDEN long cc_explore_remaps(long number, const long *a);
HIDDEN long cc_explore_protects(long number, const long *a);
HIDDEN long cc_explore_advises(long number, const long *a);

#endif
