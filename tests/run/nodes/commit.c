/* Two-phase commit: node 0 asks the others, and decides for all. A participant that voted no ends with status 1 if it
   has to commit. Usage: commit INDEX PEERS VOTES [first | stay]; `first`: it commits after the first yes, the planted
   bug; `stay`: no node ends. */
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 7000
#define MOST 8

static void send_word(int end, const char *word)
{
    if (write(end, word, strlen(word)) < 0)
        exit(3);
}

static int receive_word(int end, char *word, size_t size)
{
    ssize_t got = read(end, word, size - 1);
    word[got > 0 ? got : 0] = 0;
    return got > 0;
}

static const char *decide(const char *vote, int yes, int needed)
{
    if (strcmp(vote, "yes") != 0)
        return "abort";
    return yes >= needed ? "commit" : NULL;
}

static void coordinate(int count, int needed)
{
    int listener = socket(AF_INET, SOCK_STREAM, 0), ends[MOST], yes = 0, decided = 0;
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (bind(listener, (struct sockaddr *)&own, sizeof own) != 0 || listen(listener, MOST) != 0)
        exit(3);
    for (int i = 0; i < count; i++)
        ends[i] = accept(listener, NULL, NULL);
    for (int i = 0; i < count; i++)
        send_word(ends[i], "prepare");
    for (int left = count; left > 0;) {
        struct pollfd polled[MOST];
        for (int i = 0; i < count; i++)
            polled[i] = (struct pollfd){.fd = ends[i], .events = POLLIN};
        poll(polled, (nfds_t)count, -1);
        for (int i = 0; i < count; i++) {
            char vote[16];
            if (ends[i] < 0 || polled[i].revents == 0)
                continue;
            if (!receive_word(ends[i], vote, sizeof vote)) {
                close(ends[i]);
                ends[i] = -1;
                left--;
                continue;
            }
            yes += strcmp(vote, "yes") == 0;
            const char *decision = decide(vote, yes, needed);
            if (decision == NULL || decided)
                continue;
            decided = 1;
            puts(decision);
            for (int j = 0; j < count; j++)
                if (ends[j] >= 0)
                    send_word(ends[j], decision);
        }
    }
}

static int participate(const char *address, int yes, int stays)
{
    int end = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    char word[16];
    if (inet_pton(AF_INET, address, &to.sin_addr) != 1 || connect(end, (struct sockaddr *)&to, sizeof to) != 0)
        return 3;
    receive_word(end, word, sizeof word);
    send_word(end, yes ? "yes" : "no");
    receive_word(end, word, sizeof word);
    puts(word);
    if (stays)
        pause();
    return !yes && strcmp(word, "commit") == 0;
}

int main(int count, char **words)
{
    int index = atoi(words[1]), participants = (int)strlen(words[3]);
    setvbuf(stdout, NULL, _IONBF, 0);
    const char *option = count > 4 ? words[4] : "";
    if (index > 0)
        return participate(strtok(words[2], ","), words[3][index - 1] == 'y', strcmp(option, "stay") == 0);
    coordinate(participants, strcmp(option, "first") == 0 ? 1 : participants);
    return 0;
}
