/* Locks that a signal handler of their holder can never meet: signals are blocked while one is held. */
#ifndef CRASHCHECK_RECORDER_LOCKS_H
#define CRASHCHECK_RECORDER_LOCKS_H

#include "recorder/base.h"

struct quiet_lock {
    _Atomic uint32_t held;
};

/* Both return the signals that were blocked before, for the call that undoes them. */
HIDDEN uint64_t cc_block_signals(void);
HIDDEN uint64_t cc_lock(struct quiet_lock *lock);

HIDDEN void cc_restore_signals(uint64_t mask);
HIDDEN void cc_unlock(struct quiet_lock *lock, uint64_t signals);

#endif
