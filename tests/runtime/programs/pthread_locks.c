#include <pthread.h>
#include <semaphore.h>
#include <time.h>

#include "scenes.h"

#define ROUNDS 200

struct shared {
    pthread_mutex_t mutex, recursive;
    pthread_rwlock_t rwlock;
    pthread_spinlock_t spinlock;
    pthread_cond_t turned;
    sem_t full, taken;
    uint64_t turn, sum;
};

static struct shared *shared;

static void *takes_turns(void *argument)
{
    uint64_t mine = (uintptr_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_lock(&shared->mutex);
        while (shared->turn != mine)
            pthread_cond_wait(&shared->turned, &shared->mutex);
        STORE(1, &shared->turn, 1 - mine);
        pthread_cond_broadcast(&shared->turned);
        pthread_mutex_unlock(&shared->mutex);
        pthread_rwlock_rdlock(&shared->rwlock);
        pthread_rwlock_unlock(&shared->rwlock);
        pthread_rwlock_wrlock(&shared->rwlock);
        STORE(2, &shared->sum, shared->sum + 1);
        pthread_rwlock_unlock(&shared->rwlock);
        pthread_spin_lock(&shared->spinlock);
        pthread_spin_unlock(&shared->spinlock);
    }
    return NULL;
}

static void *takes(void *argument)
{
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&shared->full);
        sem_post(&shared->taken);
    }
    return argument;
}

static void make(const char *pool)
{
    pthread_mutexattr_t kind;
    shared = map_file(open_file(pool, "a.db", 4096), 4096);
    NEED(pthread_mutexattr_init(&kind) == 0 && pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_RECURSIVE) == 0);
    NEED(pthread_mutex_init(&shared->mutex, NULL) == 0 && pthread_mutex_init(&shared->recursive, &kind) == 0);
    NEED(pthread_rwlock_init(&shared->rwlock, NULL) == 0 && pthread_cond_init(&shared->turned, NULL) == 0);
    NEED(pthread_spin_init(&shared->spinlock, PTHREAD_PROCESS_PRIVATE) == 0);
    NEED(sem_init(&shared->full, 0, 0) == 0 && sem_init(&shared->taken, 0, 1) == 0);
}

static void many_threads(const char *pool, char **arguments)
{
    (void)arguments;
    make(pool);
    pthread_t thread[3];
    NEED(pthread_create(&thread[0], NULL, takes_turns, (void *)0) == 0);
    NEED(pthread_create(&thread[1], NULL, takes_turns, (void *)1) == 0);
    NEED(pthread_create(&thread[2], NULL, takes, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        sem_wait(&shared->taken);
        sem_post(&shared->full);
    }
    for (int i = 0; i < 3; i++)
        NEED(pthread_join(thread[i], NULL) == 0);
    NEED(shared->sum == 2 * ROUNDS);
}

/* What each call leaves. */
static void one_thread(const char *pool, char **arguments)
{
    (void)arguments;
    struct timespec past = {0, 0};
    make(pool);
    NEED(pthread_mutex_lock(&shared->recursive) == 0);
    NEED(pthread_mutex_timedlock(&shared->recursive, &past) == 0);
    NEED(pthread_mutex_unlock(&shared->recursive) == 0);
    NEED(pthread_mutex_trylock(&shared->mutex) == 0);
    NEED(pthread_mutex_trylock(&shared->mutex) != 0); /* records nothing */
    NEED(pthread_cond_timedwait(&shared->turned, &shared->mutex, &past) != 0);
    NEED(sem_trywait(&shared->full) != 0 && sem_trywait(&shared->taken) == 0);
    NEED(pthread_rwlock_tryrdlock(&shared->rwlock) == 0 && pthread_rwlock_trywrlock(&shared->rwlock) != 0);
    NEED(pthread_spin_trylock(&shared->spinlock) == 0);
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"many-threads", many_threads}, {"one-thread", one_thread}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
