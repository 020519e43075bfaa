/* The one order of all events: which thread may take the next number, and how. */
#include <linux/membarrier.h>
#include <linux/sched.h>
#include <linux/wait.h>
#include <time.h>

#include "recorder/digests.h"
#include "recorder/locks.h"
#include "recorder/process.h"
#include "recorder/sequence.h"
#include "recorder/snapshot.h"

/* Between one owner and several: whoever needs a number waits until the owner is known to have stopped. */
#define SETTLING (UINT32_MAX - 1)
#define TURNS 100000u

static bool may_own; /* both needed kernel services are there */
static struct quiet_lock examining;
#define MOST_NS 2000000000ul /* that all digests of a process may take */

/* An owner is sound only if the kernel can make it notice others (membarrier) and a child can notice that it is
 * not its parent (the page that fork wipes). */
void cc_sequence_start(void)
{
    may_own = cc_notices_forks() && !raw_failed(raw3(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0));
}

/* The first thread of the run owns the order; exec keeps its id, and so its ownership. Any other thread ends that
 * for good: `sole` is changed first, then a barrier is forced on every core, so that the owner either sees
 * the change before it takes its next number or is seen taking one. (Dekker's protocol, with all of the cost on
 * the rare side.) An owner that was killed halfway never stops, hence the bound. */
void cc_sequence_settle(void)
{
    struct cc_trace_header *header = cc_header;
    struct thread *thread = &cc_thread;
    uint32_t id = (uint32_t)raw3(SYS_gettid, 0, 0, 0), none = 0;
    thread->sole = 0;
    if (may_own && (__atomic_load_n(&header->sole, __ATOMIC_ACQUIRE) == id ||
                    __atomic_compare_exchange_n(&header->sole, &none, id, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))) {
        thread->sole = id;
        return;
    }
    uint32_t owner = __atomic_load_n(&header->sole, __ATOMIC_ACQUIRE);
    while (owner != SEVERAL && owner != SETTLING &&
           !__atomic_compare_exchange_n(&header->sole, &owner, SETTLING, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
        continue;
    if (owner == SEVERAL)
        return;
    raw3(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
    for (uint32_t turn = 0; turn < TURNS && __atomic_load_n(&header->numbering, __ATOMIC_ACQUIRE); turn++)
        raw3(SYS_sched_yield, 0, 0, 0);
    __atomic_store_n(&header->sole, SEVERAL, __ATOMIC_RELEASE);
}

/* In a forked child: whoever held it is not there. */
void cc_examine_reset_lock(void)
{
    atomic_store(&examining.held, 0);
}

static uint64_t now_ns(void)
{
    struct timespec now = {0, 0};
    raw3(SYS_clock_gettime, CLOCK_MONOTONIC, (long)&now, 0);
    return (uint64_t)now.tv_sec * 1000000000ul + (uint64_t)now.tv_nsec;
}

/* In a process of its own, which shares this one's memory but not its descriptors: to close a file here would release
 * the locks (fcntl) that the program has on it. No exit signal, so that the program cannot wait for it by mistake. */
__attribute__((noinline)) static void examine(uint64_t seq, uint32_t count)
{
    static uint64_t next, spent_ns;
    uint64_t begun_ns = now_ns();
    next = NO_SNAPSHOT;
    long child = raw3(SYS_clone, CLONE_VM | CLONE_VFORK, 0, 0);
    if (child == 0) {
        if (cc_takes_digests())
            next = cc_digest(seq, count);
        else
            cc_snapshot();
        for (;;)
            raw3(SYS_exit, 0, 0, 0);
    }
    if (!raw_failed(child))
        raw4(SYS_wait4, child, 0, __WCLONE, 0);
    spent_ns += now_ns() - begun_ns; /* with the time until the kernel ran it */
    cc_snapshot_seq = spent_ns < MOST_NS ? next : NO_SNAPSHOT;
}

void cc_examine(uint64_t seq, uint32_t count)
{
    uint64_t signals = cc_lock(&examining);
    if (seq + count > cc_snapshot_seq)
        examine(seq, count);
    cc_unlock(&examining, signals);
}

uint64_t cc_number_and_examine(uint32_t count)
{
    uint64_t signals = cc_lock(&examining);
    uint64_t seq = __atomic_fetch_add(&cc_header->next_seq, count, __ATOMIC_RELAXED);
    if (seq + count > cc_snapshot_seq)
        examine(seq, count);
    cc_unlock(&examining, signals);
    return seq;
}

uint64_t cc_number_slow(uint32_t count)
{
    return cc_number(count);
}
