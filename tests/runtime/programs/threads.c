#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/time.h>

#include "scenes.h"

#define STORES 6000u
#define ADDS 2000u

static uint64_t *shared;

static void add(uint64_t *target)
{
    cc_atomic_begin(target);
    __atomic_fetch_add(target, 1, __ATOMIC_SEQ_CST);
    cc_atomic_end(target, 8, 1, 1, 0, &hand_unit, 20, cc_shadow.depth);
}

static void *stores(void *argument)
{
    uint64_t *mine = shared + 512 * (uintptr_t)argument;
    for (uint64_t i = 1; i <= STORES; i++)
        STORE((uint32_t)(uintptr_t)argument, mine, i);
    return NULL;
}

static void many_threads(const char *pool, char **arguments)
{
    (void)arguments;
    shared = map_file(open_file(pool, "a.db", 65536), 65536);
    pthread_t thread[4];
    for (uintptr_t i = 0; i < 4; i++)
        NEED(pthread_create(&thread[i], NULL, stores, (void *)(i + 1)) == 0);
    for (int i = 0; i < 4; i++)
        NEED(pthread_join(thread[i], NULL) == 0);
}

static void *adds(void *argument)
{
    cc_shadow.frames[0].unit = &hand_unit;
    cc_shadow.frames[0].index = (uint64_t)(uintptr_t)argument;
    cc_shadow.depth = 1;
    for (uint32_t i = 0; i < ADDS; i++)
        add(shared);
    return NULL;
}

static void atomics(const char *pool, char **arguments)
{
    (void)arguments;
    shared = map_file(open_file(pool, "a.db", 4096), 4096);
    pthread_t thread[3];
    for (uintptr_t i = 0; i < 3; i++)
        NEED(pthread_create(&thread[i], NULL, adds, (void *)(i + 30)) == 0);
    for (int i = 0; i < 3; i++)
        NEED(pthread_join(thread[i], NULL) == 0);
    NEED(*shared == 3 * ADDS);
    /* A failed exchange is a fence only, and only if there is something to order. */
    STORE(1, shared + 1, 5ul);
    cc_atomic_begin(shared);
    cc_atomic_end(shared, 8, 1, 0, 0, &hand_unit, 21, 0);
    cc_atomic_begin(shared);
    cc_atomic_end(shared, 8, 1, 0, 0, &hand_unit, 22, 0);
    /* An address in the window that is no mapping. */
    cc_atomic_begin((char *)shared + 8192);
    cc_atomic_end((char *)shared + 8192, 8, 1, 1, 0, &hand_unit, 23, 0);
}

static volatile uint64_t handled;

static void handler(int signal)
{
    (void)signal;
    int saved = errno;
    uint64_t next = handled + 1;
    STORE(40, shared + 64, next);
    add(shared + 65);
    handled = next;
    errno = saved;
}

static void signals(const char *pool, char **arguments)
{
    (void)arguments;
    shared = map_file(open_file(pool, "a.db", 4096), 4096);
    struct sigaction action = {.sa_handler = handler};
    NEED(sigaction(SIGALRM, &action, NULL) == 0);
    struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
    NEED(setitimer(ITIMER_REAL, &often, NULL) == 0);
    uint64_t done = 0;
    while (handled < 300) {
        done++;
        STORE(41, shared, done);
        add(shared + 65);
    }
    NEED(setitimer(ITIMER_REAL, &never, NULL) == 0);
    fprintf(stderr, "%lu %lu\n", (unsigned long)done, (unsigned long)handled);
}

static sigjmp_buf back;

static void leaves(int signal)
{
    (void)signal;
    siglongjmp(back, 1);
}

/* The handler of a fault inside an atomic bracket jumps away; the stripe must not stay locked. */
static void *add_once(void *argument)
{
    add(argument);
    return NULL;
}

static void faults(const char *pool, char **arguments)
{
    (void)arguments;
    shared = map_file(open_file(pool, "a.db", 4096), 8192);
    struct sigaction action = {.sa_handler = leaves};
    NEED(sigaction(SIGBUS, &action, NULL) == 0);
    uint64_t *beyond = shared + 512;
    if (sigsetjmp(back, 1) == 0)
        add(beyond);
    add(shared);
    NEED(ftruncate(open(in_pool(pool, "a.db"), O_RDWR), 8192) == 0);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, add_once, beyond) == 0);
    NEED(pthread_join(thread, NULL) == 0);
    NEED(*beyond == 1);
}

static void call(uint32_t depth, uint64_t site)
{
    cc_shadow.depth = depth + 1;
    cc_shadow.frames[depth].unit = &hand_unit;
    cc_shadow.frames[depth].index = site;
}

static void stacks(const char *pool, char **arguments)
{
    (void)arguments;
    uint64_t *at = map_file(open_file(pool, "a.db", 4096), 4096);
    STORE_AS(1, 0, 0, at, 1, 0);
    call(0, 10);
    call(1, 11);
    STORE_AS(2, 2, 0, at, 2, 0);
    STORE_AS(3, 2, 0, at, 3, 0);
    call(1, 12);
    STORE_AS(4, 2, 0, at, 4, 0);
    call(0, 13);
    call(1, 12);
    STORE_AS(5, 2, 0, at, 5, 0);
    STORE_AS(6, 1, 0, at, 6, 0);
    call(0, 10);
    call(1, 11);
    STORE_AS(7, 2, 0, at, 7, 0);
    for (uint32_t i = 0; i < CC_STACK_MAX - 1; i++)
        call(i, 50);
    STORE_AS(8, CC_STACK_MAX - 1, 0, at, 8, 0);
    cc_shadow.depth = 0;
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"threads", many_threads}, {"atomics", atomics}, {"signals", signals},
        {"faults", faults}, {"stacks", stacks}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
