/* A thread that training holds up at sites that a seed chooses, until another one has seen it held up. Linked with the
 * runtime's own objects. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "guard.h"

static struct cc_guard_unit unit = {.key = 10, .version = CC_GUARD_VERSION};
static long x;
static atomic_bool seen;

static void *accesses(void *unused)
{
    for (uint32_t site = 0; !seen; site++) {
        cc_guard_begin(&x, sizeof x, &unit, site);
        ++x;
        cc_guard_end();
    }
    return unused;
}

int main(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, accesses, NULL);
    while (!crashcheck_guard_stalled())
        continue;
    seen = true;
    return pthread_join(thread, NULL);
}
