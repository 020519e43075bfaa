/* A child of a program with two threads: its thread accesses a variable as no training run did, alone and then beside a thread of
 * its own. Linked with the runtime's own objects. */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

/* Site 2 is right after site 3, site 3 after site 1, and site 4 after no access. */
static const uint64_t sites[][3] = {{1, 1, 0}, {2, 1, 3}, {3, 1, 1}, {4, 1, 0}, {0}};
static struct cc_guard_unit unit = {.key = 10, .sites = sites[0], .version = CC_GUARD_VERSION};
static long x, y;

static void access_to(long *variable, uint32_t site)
{
    cc_guard_begin(variable, sizeof *variable, &unit, (site - 1) * 3);
    ++*variable;
    cc_guard_end();
}

static void *first(void *variable)
{
    access_to(variable, 1);
    return NULL;
}

/* Resolves the stall of the thread that began this one. */
static void *second(void *unused)
{
    while (!crashcheck_guard_stalled())
        sched_yield();
    access_to(&y, 3);
    return unused;
}

static pthread_t started(void *(*body)(void *), void *argument)
{
    pthread_t thread;
    pthread_create(&thread, NULL, body, argument);
    return thread;
}

int main(void)
{
    int status = 1;
    pthread_join(started(first, &x), NULL);
    pthread_join(started(first, &y), NULL);
    if (!fork()) {
        access_to(&x, 4); /* after site 1, whose thread is not here */
        pthread_t thread = started(second, NULL);
        access_to(&y, 2); /* the same, and the other thread makes it right */
        pthread_join(thread, NULL);
        _exit(0);
    }
    wait(&status);
    return status != 0;
}
