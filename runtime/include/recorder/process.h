/* A recorded process: how it notices that it was forked, and what each thread keeps. */
#ifndef CRASHCHECK_RECORDER_PROCESS_H
#define CRASHCHECK_RECORDER_PROCESS_H

#include "recorder/base.h"

/* The recorder may be interrupted by a signal handler that records as well; each level of interruption has a
 * writer of its own, so that a half-written record is never disturbed. */
#define LEVELS 4u
#define OPERATIONS_NESTED 16u

struct writer;
struct load_writer;

struct thread {
    uint32_t id;
    uint32_t level;         /* writers in use */
    uint32_t inside;        /* > 0: a modelled library function runs, interposed calls are its own */
    uint32_t sole;          /* its kernel thread id if it may take numbers without a locked instruction */
    uint32_t regions_held;  /* by this thread, possibly several times: fork runs handlers while it holds it */
    uint32_t touched;       /* an update or flush since this thread's last recorded fence */
    struct writer *writers[LEVELS];
    struct load_writer *loads[LEVELS];
    uint32_t load_id;       /* its number in chunks of loads */
    uint32_t load_known;    /* the `id` that chunks of loads give it */
    uint32_t load_disturbed; /* a load was recorded while another was being recorded */
    uint32_t load_count;    /* reads since recording them began, or began again */
    uint32_t load_gaps;     /* how often they were left out for a while */
    uint32_t load_gap;      /* they are, and CC_LOAD_GAP records it */
    const void *load_covered; /* like `covered`, for what a copy read */
    uint64_t load_covered_bytes;
    const void *covered;    /* cc_copy or cc_fill just recorded this target and size: the call of memcpy that the */
    uint64_t covered_bytes; /* compiler may have made of the intrinsic is the same update */
    uint32_t operations[OPERATIONS_NESTED];
    uint32_t operation_depth;
    uint32_t named_depth;   /* functions under way that are operations by name */
    uint32_t atomic_stripe; /* stripe + 1 that this thread's open atomic bracket holds */
    uint64_t atomic_seq;    /* first of the numbers it reserved; 0: target not persistent */
    uint64_t atomic_signals;
    struct cc_called called; /* of a process that the recorder of system calls follows */
};

extern HIDDEN __thread struct thread cc_thread TLS_MODEL;
extern HIDDEN volatile uint64_t *cc_alive; /* wiped to 0 by the kernel in a forked child */
extern HIDDEN uint32_t cc_pid;
extern HIDDEN bool cc_loads;               /* reads of pool files are recorded */
extern HIDDEN bool cc_executed;            /* this process runs a program of its own, not its parent's */

/* Whoever needs a writer or a number in a forked child calls it first: the parts above have nothing of the parent's then. */
extern HIDDEN void (*cc_child)(void);

HIDDEN bool cc_process_start(void (*child)(void), void (*thread_ends)(void *));
HIDDEN void cc_uses_pool_file(void);
HIDDEN void cc_stop(uint32_t status); /* recording ends for this process; `status`: cc_trace_status */
HIDDEN void cc_thread_begins(void); /* so that `thread_ends` frees its mappings */
HIDDEN bool cc_notices_forks(void); /* `cc_alive` works on this kernel */

#endif
