#include "schedule.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* How many threads a guard stalls at this moment, if there is one. */
unsigned crashcheck_guard_stalled(void) __attribute__((weak));

enum { STEPS = 16 };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct {
    const char *name;
    size_t length;
    int ended;
} steps[STEPS]; /* the schedule */
static int many, status;
static int waiting; /* a thread, in a fix */
static int locked, first_is_over;
static __thread int under_way = -1;
static int sleeps;               /* no order is kept: each step begins after a random time */
static unsigned seed;
static __thread unsigned random_state, number; /* of the thread: 0 or 1 */

static void begin(const char *schedule) {
    for (; *schedule; schedule += strspn(schedule, " ")) {
        steps[many].name = schedule;
        steps[many].length = strcspn(schedule, " ");
        schedule += steps[many++].length;
    }
}

void choose(int argc, char **argv, const struct schedules *schedules) {
    const char *name = argc == 2 ? argv[1] : "";
    if (argc == 3 && strcmp(argv[1], "random") == 0) {
        sleeps = 1;
        seed = (unsigned)strtoul(argv[2], NULL, 10);
        return;
    }
    int good = 0, bad = 0;
    while (schedules->good[good])
        good++;
    while (schedules->bad[bad])
        bad++;
    if (strncmp(name, "bad", 3) == 0) {
        int number = name[3] ? atoi(name + 3) : 1;
        if (number >= 1 && number <= bad)
            begin(schedules->bad[number - 1]);
    } else if (atoi(name) >= 1) {
        begin(schedules->good[(atoi(name) - 1) % good]);
    }
    if (!many) {
        fprintf(stderr, "usage: %s NUMBER | bad%s | random SEED (%d good schedules)\n", argv[0],
                bad > 1 ? " | bad2" : "", good);
        exit(2);
    }
}

static void end_step(void) {
    if (under_way >= 0)
        steps[under_way].ended = 1;
    under_way = -1;
}

/* If a fix or a guard stops the other thread, nothing of that can happen before this one continues. */
static int may_begin(int step) {
    if (waiting || (crashcheck_guard_stalled && crashcheck_guard_stalled()))
        return 1;
    for (int before = 0; before < step; before++)
        if (!steps[before].ended)
            return 0;
    return 1;
}

static int find(const char *name) {
    for (int step = 0; step < many; step++)
        if (strlen(name) == steps[step].length && strncmp(name, steps[step].name, steps[step].length) == 0)
            return step;
    fprintf(stderr, "step %s is not in the schedule\n", name);
    exit(2);
}

static void sleep_for_a_random_time(void) {
    if (!random_state)
        random_state = (seed * 2 + number) * 2654435761u | 1;
    random_state = random_state * 1664525u + 1013904223u;
    nanosleep(&(struct timespec){0, (long)((random_state >> 16) % 1000) * 1000}, NULL);
}

void turn(const char *name) {
    if (sleeps) {
        sleep_for_a_random_time();
        return;
    }
    int step = find(name);
    pthread_mutex_lock(&mutex);
    end_step();
    while (!may_begin(step)) {
        pthread_mutex_unlock(&mutex);
        sched_yield();
        pthread_mutex_lock(&mutex);
    }
    under_way = step;
    pthread_mutex_unlock(&mutex);
}

static void wait_for_the_other(void) {
    waiting = 1;
    while (waiting) {
        pthread_mutex_unlock(&mutex);
        sched_yield();
        pthread_mutex_lock(&mutex);
    }
}

void lock(void) {
    pthread_mutex_lock(&mutex);
    if (locked)
        wait_for_the_other(); /* who hands the lock over */
    locked = 1;
    pthread_mutex_unlock(&mutex);
}

void unlock(void) {
    pthread_mutex_lock(&mutex);
    locked = waiting;
    waiting = 0;
    pthread_mutex_unlock(&mutex);
}

void await_first(void) {
    pthread_mutex_lock(&mutex);
    if (!first_is_over)
        wait_for_the_other();
    pthread_mutex_unlock(&mutex);
}

void first_happened(void) {
    pthread_mutex_lock(&mutex);
    first_is_over = 1;
    waiting = 0;
    pthread_mutex_unlock(&mutex);
}

void failed(const char *what) {
    fprintf(stderr, "%s\n", what);
    pthread_mutex_lock(&mutex);
    status = 1;
    pthread_mutex_unlock(&mutex);
}

struct body {
    void (*run)(void);
    unsigned number;
};

static void *start(void *argument) {
    struct body *body = argument;
    number = body->number;
    body->run();
    pthread_mutex_lock(&mutex);
    end_step();
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int run_two(void (*first)(void), void (*second)(void)) {
    pthread_t threads[2];
    struct body bodies[2] = {{first, 0}, {second, 1}};
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, start, &bodies[i]) != 0)
            return 2;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return status;
}
