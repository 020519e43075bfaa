#include "schedule.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;
static const char *next; /* the rest of the schedule: a step under way stays in it until it ends */
static int status;
static __thread int under_way;

void choose(int argc, char **argv, const struct schedules *schedules) {
    const char *name = argc == 2 ? argv[1] : "";
    int good = 0, bad = 0;
    while (schedules->good[good])
        good++;
    while (schedules->bad[bad])
        bad++;
    if (strncmp(name, "bad", 3) == 0) {
        int number = name[3] ? atoi(name + 3) : 1;
        if (number >= 1 && number <= bad)
            next = schedules->bad[number - 1];
    } else if (atoi(name) >= 1) {
        next = schedules->good[(atoi(name) - 1) % good];
    }
    if (!next) {
        fprintf(stderr, "usage: %s NUMBER | bad%s (%d good schedules)\n", argv[0], bad > 1 ? " | bad2" : "", good);
        exit(2);
    }
}

static void end_step(void) {
    if (!under_way)
        return;
    under_way = 0;
    next += strcspn(next, " ");
    next += strspn(next, " ");
    pthread_cond_broadcast(&moved);
}

void turn(const char *step) {
    size_t length = strlen(step);
    pthread_mutex_lock(&mutex);
    end_step();
    while (strcspn(next, " ") != length || strncmp(next, step, length) != 0) {
        if (!*next) {
            fprintf(stderr, "step %s is not in the schedule\n", step);
            exit(2);
        }
        pthread_cond_wait(&moved, &mutex);
    }
    under_way = 1;
    pthread_mutex_unlock(&mutex);
}

void failed(const char *what) {
    fprintf(stderr, "%s\n", what);
    pthread_mutex_lock(&mutex);
    status = 1;
    pthread_mutex_unlock(&mutex);
}

static void *start(void *body) {
    (*(void (**)(void))body)();
    pthread_mutex_lock(&mutex);
    end_step();
    pthread_mutex_unlock(&mutex);
    return NULL;
}

int run_two(void (*first)(void), void (*second)(void)) {
    pthread_t threads[2];
    void (*bodies[2])(void) = {first, second};
    for (int i = 0; i < 2; i++)
        if (pthread_create(&threads[i], NULL, start, &bodies[i]) != 0)
            return 2;
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return status;
}
