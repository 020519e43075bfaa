/* A process that the recorder of system calls follows: it records the calls, this one the stores, both in one trace. */
#ifndef CRASHCHECK_RECORDER_TRACED_H
#define CRASHCHECK_RECORDER_TRACED_H

#include "recorder/process.h"

extern HIDDEN bool cc_traced;
extern HIDDEN bool cc_marks_by_call; /* there is no trace of ours, and operations are marked by a call */

/* Ids that only the other recorder knows; 0 if it has none. */
HIDDEN uint32_t cc_traced_thread(void);
HIDDEN uint32_t cc_traced_file(int fd);

#endif
