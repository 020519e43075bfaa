/* Accesses that do not run straight from cc_guard_begin to cc_guard_end; the first argument names how. Another thread, or
 * the same one, accesses the variable afterwards. Linked with the runtime's own objects. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guard.h"

static struct cc_guard_unit unit = {.key = 10, .version = CC_GUARD_VERSION};
static long x, y;
static sigjmp_buf left;
static int jumps;

static void access_to(long *variable, uint32_t site)
{
    cc_guard_begin(variable, sizeof *variable, &unit, site);
    ++*variable;
    cc_guard_end();
}

static void handle(int number)
{
    (void)number;
    access_to(&y, 2);
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
