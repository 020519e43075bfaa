/* Whether this process records, and how that starts and ends. */
#ifndef CRASHCHECK_RECORDER_RECORDING_H
#define CRASHCHECK_RECORDER_RECORDING_H

#include "recorder/process.h"
#include "recorder/traced.h"

extern HIDDEN _Atomic uint32_t cc_started; /* 2: ready */
/* Writes out what open streams still hold when the program ends; set by the models of streams (interpose/stdio.c). */
extern HIDDEN void (*cc_flush_streams)(where at);

HIDDEN void cc_start(void);
HIDDEN void cc_process_ends(bool counts);

static inline bool cc_on(void)
{
    if (UNLIKELY(atomic_load_explicit(&cc_started, memory_order_acquire) != 2u))
        cc_start();
    return cc_recording != 0;
}

/* Whether calls are recorded here, and not by the recorder that follows this process. */
static inline bool cc_records_calls(void)
{
    return cc_on() && !cc_traced;
}

#endif
