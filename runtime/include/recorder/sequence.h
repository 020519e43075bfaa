/* The one order of all events of the run: each takes the next number from the trace's header. */
#ifndef CRASHCHECK_RECORDER_SEQUENCE_H
#define CRASHCHECK_RECORDER_SEQUENCE_H

#include "recorder/process.h"
#include "recorder/snapshot.h"

#define SEVERAL UINT32_MAX /* value of cc_header->sole once more than one thread takes numbers */

HIDDEN void cc_sequence_start(void);
HIDDEN void cc_sequence_settle(void); /* decides whether this thread is the only one that takes numbers */
HIDDEN uint64_t cc_number_slow(uint32_t count);

/* From the number cc_snapshot_seq on, whoever takes one first examines the files: for a copy or a digest of them. */
HIDDEN void cc_examine(uint64_t seq, uint32_t count);  /* by the owner of these numbers */
HIDDEN uint64_t cc_number_and_examine(uint32_t count); /* takes them while other threads wait that would do so, too */
HIDDEN void cc_examine_reset_lock(void);

/* The number that the next event of the run will have; a load does not take it. */
static inline uint64_t cc_load_seq(void)
{
    return __atomic_load_n(&cc_header->next_seq, __ATOMIC_RELAXED);
}

/* The next `count` numbers. A locked addition waits for all earlier stores of its core, which costs more than the rest of
 * a record; while only one thread takes numbers, it does without. */
static inline uint64_t cc_number(uint32_t count)
{
    struct cc_trace_header *header = cc_header;
    struct thread *thread = &cc_thread;
    uint64_t seq = count;
    if (UNLIKELY(*cc_alive == 0))
        cc_child();
    if (LIKELY(thread->sole)) {
        __asm__ volatile("incl %0" : "+m"(header->numbering) : : "memory", "cc");
        bool sole = __atomic_load_n(&header->sole, __ATOMIC_RELAXED) == thread->sole;
        if (LIKELY(sole))
            __asm__ volatile("xaddq %0, %1" : "+r"(seq), "+m"(header->next_seq) : : "memory", "cc");
        __asm__ volatile("decl %0" : "+m"(header->numbering) : : "memory", "cc");
        if (LIKELY(sole)) {
            if (UNLIKELY(seq + count > cc_snapshot_seq))
                cc_examine(seq, count);
            return seq;
        }
    }
    if (UNLIKELY(__atomic_load_n(&header->sole, __ATOMIC_ACQUIRE) != SEVERAL)) {
        cc_sequence_settle();
        return cc_number_slow(count);
    }
    if (UNLIKELY(cc_load_seq() + count > cc_snapshot_seq))
        return cc_number_and_examine(count);
    seq = __atomic_fetch_add(&header->next_seq, count, __ATOMIC_RELAXED);
    if (UNLIKELY(seq + count > cc_snapshot_seq))
        cc_examine(seq, count);
    return seq;
}

#endif
