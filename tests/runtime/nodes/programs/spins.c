/* Threads that wait in loops without a call: the first argument names how. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAR 3e8 /* takes longer than until a thread is stopped */

static atomic_int flag, locked;

static void say(char name)
{
    if (write(1, &name, 1) != 1)
        abort();
}

static void *sets(void *unused)
{
    flag = 1;
    say('s');
    return unused;
}

/* Holds a lock of its own while it sleeps; who waits for that turns around it. */
static void *locks(void *name)
{
    for (int i = 0; i < 2; i++) {
        while (atomic_exchange(&locked, 1))
            ;
        say(*(char *)name);
        usleep(10);
        locked = 0;
        usleep(10);
    }
    return NULL;
}

static void counts(void)
{
    for (volatile long times = 0; !flag; times++)
        ;
}

/* Changes nothing but a register of floating point numbers. */
static void computes(void)
{
    double sum = 0;
    while (sum < FAR)
        sum += 1;
    say(sum == FAR ? 'c' : '?');
}

int main(int count, char **words)
{
    pthread_t threads[2];
    const char *how = count > 1 ? words[1] : "";
    if (strcmp(how, "locks") == 0) {
        pthread_create(&threads[0], NULL, locks, "a");
        pthread_create(&threads[1], NULL, locks, "b");
        pthread_join(threads[1], NULL);
    } else {
        pthread_create(&threads[0], NULL, sets, NULL);
        while (strcmp(how, "flag") == 0 && !flag)
            ;
        if (strcmp(how, "counts") == 0)
            counts();
        if (strcmp(how, "computes") == 0)
            computes();
    }
    pthread_join(threads[0], NULL);
    say('\n');
    return 0;
}
