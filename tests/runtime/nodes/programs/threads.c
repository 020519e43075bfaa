/* Four threads take turns under a mutex and a condition; a fifth waits for a time; the main thread joins all. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define THREADS 4
#define TURNS 6

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
static int turn;
static sem_t done;

static void *take_turns(void *number)
{
    int mine = (int)(long)number;
    pthread_mutex_lock(&lock);
    while (turn < TURNS * THREADS) {
        if (turn % THREADS != mine) {
            pthread_cond_wait(&changed, &lock);
            continue;
        }
        printf("%d", mine);
        turn++;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    sem_post(&done);
    return NULL;
}

static void *wait_in_vain(void *unused)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3;
    pthread_mutex_lock(&lock);
    int error = pthread_cond_timedwait(&never, &lock, &until);
    pthread_mutex_unlock(&lock);
    printf(" %s", error == ETIMEDOUT ? "late" : "woken");
    return unused;
}

int main(void)
{
    pthread_t threads[THREADS + 1];
    sem_init(&done, 0, 0);
    for (long i = 0; i < THREADS; i++)
        pthread_create(&threads[i], NULL, take_turns, (void *)i);
    pthread_create(&threads[THREADS], NULL, wait_in_vain, NULL);
    for (int i = 0; i < THREADS; i++)
        sem_wait(&done);
    for (int i = 0; i <= THREADS; i++)
        pthread_join(threads[i], NULL);
    printf(" joined\n");
    return 0;
}
