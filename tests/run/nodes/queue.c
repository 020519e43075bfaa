/* A server whose two workers continue at a message: one stores, the other answers. Wrong if the one that answers is first. */
#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int arrived, stored;

static void wait_turn(const char *name)
{
    prctl(PR_SET_NAME, name);
    pthread_mutex_lock(&lock);
    while (!arrived)
        pthread_cond_wait(&turn, &lock);
    pthread_mutex_unlock(&lock);
}

static void *store(void *unused)
{
    wait_turn("store");
    stored = 1;
    return unused;
}

static void *answer(void *unused)
{
    wait_turn("answer");
    if (!stored)
        abort();
    return unused;
}

int main(int count, char **words)
{
    struct sockaddr_in server = {.sin_family = AF_INET, .sin_port = htons(7000)};
    int end = socket(AF_INET, SOCK_DGRAM, 0);
    pthread_t threads[2];
    char byte = 'x';
    if (count > 1 && atoi(words[1]) == 1) {
        inet_pton(AF_INET, "10.0.0.1", &server.sin_addr);
        return sendto(end, &byte, 1, 0, (struct sockaddr *)&server, sizeof server) != 1;
    }
    if (bind(end, (struct sockaddr *)&server, sizeof server) != 0)
        return 2;
    pthread_create(&threads[0], NULL, store, NULL);
    pthread_create(&threads[1], NULL, answer, NULL);
    if (recv(end, &byte, 1, 0) != 1)
        return 2;
    pthread_mutex_lock(&lock);
    arrived = 1;
    pthread_cond_broadcast(&turn);
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
