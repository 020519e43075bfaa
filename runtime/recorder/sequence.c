/* The one order of all events: which thread may take the next number, and how. */
#include <linux/membarrier.h>

#include "recorder/process.h"
#include "recorder/sequence.h"

/* Between one owner and several: whoever needs a number waits until the owner is known to have stopped. */
#define SETTLING (UINT32_MAX - 1)
#define TURNS 100000u

static bool may_own; /* both needed kernel services are there */

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

uint64_t cc_number_slow(uint32_t count)
{
    return cc_number(count);
}
