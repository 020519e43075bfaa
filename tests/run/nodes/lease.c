/* A lease: node 0 grants it for SECONDS to one of the others at a time, and again only when that time is over. Who has a lease
   asks the other one; who is asked and still has a lease by its own clock ends with status 1. No timer is armed: whether a
   lease is over is seen only by comparisons of times. Usage: lease INDEX PEERS SECONDS */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 7000

int64_t now_ms(void); /* in another unit */

struct lease {
    int64_t end_ms;
};
static char *addresses[3];

static void send_word(int end, int to, char word)
{
    struct sockaddr_in peer = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (inet_pton(AF_INET, addresses[to], &peer.sin_addr) != 1 ||
        sendto(end, &word, 1, 0, (struct sockaddr *)&peer, sizeof peer) != 1)
        exit(3);
}

static char receive_word(int end, int *from)
{
    struct sockaddr_in peer;
    socklen_t size = sizeof peer;
    char word, text[INET_ADDRSTRLEN];
    if (recvfrom(end, &word, 1, 0, (struct sockaddr *)&peer, &size) != 1 ||
        !inet_ntop(AF_INET, &peer.sin_addr, text, sizeof text))
        exit(3);
    for (*from = 0; *from < 2 && strcmp(addresses[*from], text) != 0;)
        ++*from;
    return word;
}

static void grant(int end, int64_t length_ms)
{
    struct lease given = {0};
    for (int from;;) {
        receive_word(end, &from);
        int64_t now = now_ms();
        if (now <= given.end_ms)
            continue;
        given.end_ms = now + length_ms;
        send_word(end, from, 'y');
    }
}

static int hold(int end, int index, int64_t length_ms)
{
    struct lease own = {now_ms() + length_ms}; /* if it is granted */
    int granted = 0, from;
    send_word(end, 0, 'l');
    for (;;) {
        if (receive_word(end, &from) == 'y') {
            granted = 1;
            send_word(end, 3 - index, 'h');
        } else if (granted && now_ms() < own.end_ms) {
            return 1;
        }
    }
}

int main(int count, char **words)
{
    int index = atoi(words[1]), end = socket(AF_INET, SOCK_DGRAM, 0);
    int64_t length_ms = atoi(words[count - 1]) * 1000;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (bind(end, (struct sockaddr *)&own, sizeof own) != 0)
        return 3;
    for (int i = 0; i < 3; i++)
        addresses[i] = strtok(i ? NULL : words[2], ",");
    if (index > 0)
        return hold(end, index, length_ms);
    grant(end, length_ms);
}
