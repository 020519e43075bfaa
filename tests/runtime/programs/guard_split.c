/* Four threads access the same words in parts of several sizes, and signals interrupt them all the time, whose handler
 * accesses memory, too: a thread loses the word that it is splitting, to one that splits it otherwise. Linked with the
 * runtime's own objects. Exits with 0 if it gets to its end. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "guard.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif

enum { THREADS = 4, WORDS = 1 << 14, ROUNDS = 2, EVERY_NS = 20000 };
static struct cc_guard_unit unit = {.key = 10, .version = CC_GUARD_VERSION};
static pthread_barrier_t together;
static char *memory;
static long handled;

static void access_to(void *variable, uint64_t size, uint32_t site)
{
    cc_guard_begin(variable, size, &unit, site);
    cc_guard_end();
}

static void handle(int number)
{
    access_to(&handled, sizeof handled, (uint32_t)number);
}

static void *body(void *number)
{
    static const struct {
        unsigned offset, size;
    } parts[] = {{0, 8}, {4, 4}, {3, 1}, {0, 1}};
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    struct itimerspec often = {{0, EVERY_NS}, {0, EVERY_NS}};
    timer_t timer;
    if (timer_create(CLOCK_MONOTONIC, &event, &timer) != 0 || timer_settime(timer, 0, &often, NULL) != 0)
        exit(2);
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&together);
        for (unsigned i = 0; i < WORDS; i++) {
            unsigned part = (unsigned)((i + (unsigned long)number) % 4);
            access_to(memory + 8 * (round * WORDS + i) + parts[part].offset, parts[part].size, part);
        }
    }
    timer_delete(timer);
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    memory = aligned_alloc(8, 8ul * WORDS * ROUNDS);
    signal(SIGUSR1, handle);
    pthread_barrier_init(&together, NULL, THREADS);
    for (unsigned long i = 0; i < THREADS; i++)
        if (!memory || pthread_create(&threads[i], NULL, body, (void *)i) != 0)
            return 2;
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
