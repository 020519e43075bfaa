/* A copy of the pool files as they are just before a chosen event: what a crash of the process there would leave.
 * The event is chosen by its number, or as the one that follows the nth event of a site: numbers shift from run to run
 * if threads take turns in another order. */
#ifndef CRASHCHECK_RECORDER_SNAPSHOT_H
#define CRASHCHECK_RECORDER_SNAPSHOT_H

#include "recorder/base.h"

#define NO_SNAPSHOT UINT64_MAX

extern HIDDEN uint64_t cc_snapshot_seq; /* of the chosen event */
extern HIDDEN uint32_t cc_snapshot_site; /* of the events that are counted; UINT32_MAX: none */
/* `after`: "key site n": the nth event of a site of a unit */
HIDDEN void cc_snapshot_start(const char *seq, const char *after, const char *folder);
HIDDEN void cc_snapshot_unit(uint64_t key, uint32_t base); /* the unit's sites begin at `base` in this process */
HIDDEN void cc_snapshot_count(uint64_t seq);               /* an event of the site was recorded */
HIDDEN void cc_snapshot_child(void);                       /* after a fork: events are counted in each process apart */
HIDDEN void cc_snapshot(void);

#endif
