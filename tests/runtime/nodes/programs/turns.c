/* Threads whose order after a wait decides what is printed: the scenario is the first argument. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 4

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int ends[MOST][2], there;
static volatile int flag;

static void say(char name)
{
    if (write(1, &name, 1) != 1)
        abort();
}

/* Those that wait for a lock, once it is released. */
static void *locks(void *name)
{
    pthread_mutex_lock(&lock);
    say(*(char *)name);
    pthread_mutex_unlock(&lock);
    return NULL;
}

/* Those that wait for a condition, once all may continue. */
static void *conditions(void *name)
{
    pthread_mutex_lock(&lock);
    while (!there)
        pthread_cond_wait(&turn, &lock);
    pthread_mutex_unlock(&lock);
    say(*(char *)name);
    return NULL;
}

/* Those that read pipes of their own. */
static void *pipes(void *name)
{
    char byte;
    if (read(ends[*(char *)name - 'a'][0], &byte, 1) != 1)
        abort();
    say(*(char *)name);
    return NULL;
}

/* Those that read one pipe, which has a byte for one of them. */
static void *one_pipe(void *name)
{
    char byte;
    if (read(ends[0][0], &byte, 1) == 1)
        say(*(char *)name);
    return NULL;
}

/* One that waits in a loop, for what another does. */
static void *loops(void *name)
{
    if (*(char *)name == 'a')
        while (!flag)
            sched_yield();
    flag = 1;
    say(*(char *)name);
    return NULL;
}

/* Two steps of each, with a wait between. */
static void *steps(void *name)
{
    for (int i = 0; i < 2; i++) {
        say(*(char *)name);
        sched_yield();
    }
    return NULL;
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void *(*run)(void *);
    } all[] = {{"locks", locks}, {"conditions", conditions}, {"pipes", pipes}, {"one-pipe", one_pipe}, {"loops", loops}, {"steps", steps}};
    static char names[] = "abcd";
    pthread_t threads[MOST];
    int number = count > 2 ? atoi(words[2]) : 2;
    void *(*run)(void *) = NULL;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (count > 1 && strcmp(all[i].name, words[1]) == 0)
            run = all[i].run;
    if (!run)
        return 2;
    for (int i = 0; i < MOST; i++)
        if (pipe(ends[i]) != 0)
            return 2;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < number; i++)
        pthread_create(&threads[i], NULL, run, &names[i]);
    if (run != loops && run != steps)
        usleep(1); /* all of them wait */
    there = 1;
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&lock);
    if (run == one_pipe && write(ends[0][1], "x", 1) == 1) {
        usleep(1);
        close(ends[0][1]);
    }
    for (int i = 0; run == pipes && i < number; i++)
        if (write(ends[i][1], "x", 1) != 1)
            return 2;
    for (int i = 0; i < number; i++)
        pthread_join(threads[i], NULL);
    say('\n');
    return 0;
}
