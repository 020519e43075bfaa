/* Digests of what the pool files hold, taken while the program runs: they prove what a crash there would have left.
 *
 * Beside the trace, in <trace>.digests, one struct digest for each. Just before the event `seq` the pool files held what
 * the digest is of, and no other event had been numbered since; a thread may still have been about to execute
 * an earlier one. So a digest that equals that of the replayed files proves these; another one proves nothing. */
#ifndef CRASHCHECK_RECORDER_DIGESTS_H
#define CRASHCHECK_RECORDER_DIGESTS_H

#include "recorder/base.h"

struct digest {
    uint64_t seq, digest;
};

HIDDEN void cc_digests_start(const char *file, const char *at); /* "one_in first end": of the events from `first` on, one in so many */
HIDDEN bool cc_takes_digests(void);
HIDDEN uint64_t cc_digest(uint64_t seq, uint32_t count); /* the number of the first event to take the next one at */

#endif
