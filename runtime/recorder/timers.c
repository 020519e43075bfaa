/* Comparisons that time decides: the controller of nodes, which gives the program its time, gets each (docs/nodes.md, Implicit timers). */
#include "recorder/base.h"

static bool unheard; /* no controller answers */

EXPORTED void cc_compared(const struct cc_timer *timer, uint64_t left, uint64_t right)
{
    struct cc_compared_call call = {.timer = *timer, .left = left, .right = right};
    if (!unheard && raw_failed(raw3(SYS_clock_gettime, CC_COMPARED_CLOCK, (long)&call, 0)))
        unheard = true;
}
