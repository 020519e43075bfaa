/* The signal handlers of an explored process. */
#ifndef CRASHCHECK_EXPLORER_HANDLERS_H
#define CRASHCHECK_EXPLORER_HANDLERS_H

#include <signal.h>

#include "recorder/base.h"

HIDDEN void cc_explore_touched(int number, siginfo_t *info, void *given); /* an instruction met a closed page */
HIDDEN void cc_explore_stepped(int number, siginfo_t *info, void *given); /* it has executed */
HIDDEN void cc_explore_asked(int number, siginfo_t *info, void *given);   /* the program made a system call */

#endif
