/* A copy of the pool files as they are just before a chosen event: what a crash of the process there would leave. */
#ifndef CRASHCHECK_RECORDER_SNAPSHOT_H
#define CRASHCHECK_RECORDER_SNAPSHOT_H

#include "recorder/base.h"

#define NO_SNAPSHOT UINT64_MAX

extern HIDDEN uint64_t cc_snapshot_seq; /* of the chosen event */
HIDDEN void cc_snapshot_start(const char *seq, const char *folder);
HIDDEN void cc_snapshot(void);

#endif
