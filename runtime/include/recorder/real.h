/* libc's own functions, which the models in interpose/ replace in the shared library. */
#ifndef CRASHCHECK_RECORDER_REAL_H
#define CRASHCHECK_RECORDER_REAL_H

#include "recorder/base.h"

#ifdef CC_SHARED
HIDDEN void *cc_real(void **slot, const char *name);
#define REAL(name)                                                                                                     \
    (__extension__({                                                                                                   \
        static void *slot_;                                                                                            \
        (__typeof__(&name))cc_real(&slot_, #name);                                                                     \
    }))
#else
#define REAL(name) (&name)
#endif

#endif
