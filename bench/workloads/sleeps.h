/* Random sleeps in a program whose bug needs one. They depend on $RUN. */
#include <stdlib.h>
#include <unistd.h>

static void sleep_below(unsigned milliseconds)
{
    static unsigned calls;
    const char *run = getenv("RUN");
    unsigned long random = (run ? strtoul(run, NULL, 10) : 0) * 2654435761ul;
    random += __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) * 40503ul + 12345;
    random = (random ^ random >> 15) * 2246822519ul;
    random ^= random >> 13;
    usleep(random % (milliseconds * 1000ul));
}
