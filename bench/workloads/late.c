/* One thread sets what the other one reads: before that, or with the word "late" after it. Both are right. */
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

static int ready;
static sem_t is_set, is_read;

static void *reader(void *late)
{
    if (!late)
        sem_wait(&is_set);
    int seen = ready;
    sem_post(&is_read);
    return late && seen ? late : NULL;
}

int main(int words, char **word)
{
    pthread_t thread;
    void *wrong;
    sem_init(&is_set, 0, 0);
    sem_init(&is_read, 0, 0);
    pthread_create(&thread, NULL, reader, words > 1 ? word : NULL);
    if (words > 1)
        sem_wait(&is_read);
    ready = 1;
    sem_post(&is_set);
    pthread_join(thread, &wrong);
    printf("%d\n", ready);
    return wrong != NULL;
}
