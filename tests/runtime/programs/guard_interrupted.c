/* Accesses that do not run straight from cc_guard_begin to cc_guard_end; the first argument names how. Another thread, or
 * the same one, accesses the variable afterwards. Linked with the runtime's own objects. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

static struct cc_guard_unit unit = {.key = 10, .version = CC_GUARD_VERSION};
static long x, y;
static sigjmp_buf left;
enum { THREADS = 4 };
static int jumps, forgets;
static _Atomic int begun, handled, done;

static void access_to(long *variable, uint32_t site)
{
    cc_guard_begin(variable, sizeof *variable, &unit, site);
    ++*variable;
    cc_guard_end();
}

static void handle(int number)
{
    (void)number;
    handled++;
    if (forgets) {
        cc_guard_forget(&y, sizeof y);
        return;
    }
    access_to(&y, 2);
    if (begun)
        return;
    access_to(&x, 3);
    if (jumps)
        siglongjmp(left, 1);
}

/* The access to x of site 1 is interrupted. */
static void interrupted(void)
{
    signal(SIGUSR1, handle);
    if (!sigsetjmp(left, 1)) {
        cc_guard_begin(&x, sizeof x, &unit, 1);
        raise(SIGUSR1);
        ++x;
        cc_guard_end();
    }
}

static void *ends_inside(void *unused)
{
    cc_guard_begin(&x, sizeof x, &unit, 1);
    return unused;
}

/* Waits for x, which another thread has, and is interrupted meanwhile. If that takes long, it takes x over, and is interrupted
 * afterwards. */
static void *waits(void *unused)
{
    begun = 1;
    access_to(&x, 4);
    while (!done)
        sched_yield();
    return unused;
}

static void interrupt_a_waiting_thread(void)
{
    pthread_t thread;
    signal(SIGUSR1, handle);
    cc_guard_begin(&x, sizeof x, &unit, 1);
    pthread_create(&thread, NULL, waits, NULL);
    while (!begun)
        sched_yield();
    for (int time = 1; time <= 20; time++) {
        pthread_kill(thread, SIGUSR1);
        while (handled < time)
            sched_yield();
    }
    cc_guard_end();
    done = 1;
    pthread_join(thread, NULL);
    access_to(&x, 5);
}

/* The first accesses of all threads at one time, to variables of their own. */
static void *accesses_together(void *own)
{
    static _Atomic int waiting = THREADS;
    waiting--;
    while (waiting)
        ;
    access_to(own, 6);
    return NULL;
}

static void begin_together(void)
{
    static long own[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, accesses_together, &own[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
}

static void *accesses(void *unused)
{
    access_to(&x, 4);
    return unused;
}

static void in_thread(void *(*body)(void *))
{
    pthread_t thread;
    pthread_create(&thread, NULL, body, NULL);
    pthread_join(thread, NULL);
}

int main(int count, char **words)
{
    const char *how = count > 1 ? words[1] : "";
    if (!strcmp(how, "handler") || !strcmp(how, "jump")) {
        jumps = *how == 'j';
        interrupted();
    } else if (!strcmp(how, "forget")) {
        access_to(&y, 2);
        forgets = 1;
        interrupted();
    } else if (!strcmp(how, "together")) {
        begin_together();
        return 0;
    } else if (!strcmp(how, "wait")) {
        interrupt_a_waiting_thread();
        return 0;
    } else if (!strcmp(how, "end")) {
        in_thread(ends_inside);
    } else if (!strcmp(how, "fork")) {
        cc_guard_begin(&y, sizeof y, &unit, 1);
        if (!fork()) { /* this thread has y, in the child as in the parent */
            cc_guard_end();
            access_to(&y, 5);
            in_thread(accesses);
            _exit(0);
        }
        cc_guard_end();
        wait(NULL);
    }
    in_thread(accesses);
    return 0;
}
