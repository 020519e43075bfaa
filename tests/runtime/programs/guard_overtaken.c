/* A stalled thread whose remote predecessor changes meanwhile, to another one that is not in the belonging set. Linked with the
 * runtime's own objects. */
#include <pthread.h>
#include <sched.h>

#include "guard.h"

static const uint64_t sites[][3] = {{1, 1, 0}, {2, 1, 9}, {3, 1, 0}, {0}}; /* id, how many predecessors, which */
static struct cc_guard_unit unit = {.key = 10, .sites = sites[0], .version = CC_GUARD_VERSION};
static long x;

static void access_by(uint32_t site)
{
    cc_guard_begin(&x, sizeof x, &unit, site * 3);
    ++x;
    cc_guard_end();
}

static void *is_stalled(void *unused)
{
    access_by(1);
    return unused;
}

int main(void)
{
    pthread_t thread;
    access_by(0);
    pthread_create(&thread, NULL, is_stalled, NULL);
    while (!crashcheck_guard_stalled())
        sched_yield();
    access_by(2);
    pthread_join(thread, NULL);
    return 0;
}
