/* Compares times as a script has it, in the ways in which programs do. Node 1 sends a message for each step to node 0, which
   makes the step: `sR` keeps the present in register R (a to d), `cRWN` compares it with register R in the way W by N ms and
   prints the outcome. Usage: elapse INDEX PEERS STEP,STEP… */
#include <arpa/inet.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct moment {
    int64_t ms;
    struct timespec spec;
    uint64_t us;
    time_t s;
};
static struct moment kept[4];

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static uint64_t now_us(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_usec;
}

static int before(const struct timespec *one, const struct timespec *other)
{
    if (one->tv_sec != other->tv_sec)
        return one->tv_sec < other->tv_sec;
    return one->tv_nsec < other->tv_nsec;
}

static int elapsed_ms(const struct moment *since)
{
    return (int)((now_us() - since->us) / 1000);
}

static void keep(struct moment *to)
{
    to->ms = now_ms();
    clock_gettime(CLOCK_MONOTONIC, &to->spec);
    to->us = now_us();
    to->s = time(NULL);
}

static int compare(const struct moment *since, char way, int ms)
{
    struct timespec now, due = since->spec;
    switch (way) {
    case 'm':
        return now_ms() > since->ms + ms;
    case 'l':
        return since->ms + ms - now_ms() <= 0;
    case 'u':
        return elapsed_ms(since) >= ms;
    case 's':
        return time(NULL) - since->s > ms / 1000;
    default:
        due.tv_nsec += ms * 1000000;
        due.tv_sec += due.tv_nsec / 1000000000;
        due.tv_nsec %= 1000000000;
        clock_gettime(CLOCK_MONOTONIC, &now);
        return !before(&now, &due);
    }
}

static void make(const char *step)
{
    while (*step) {
        struct moment *moment = &kept[step[1] - 'a'];
        if (*step == 's') {
            keep(moment);
            step += 2;
        } else {
            char *end;
            int ms = (int)strtol(step + 3, &end, 10);
            printf("%d", compare(moment, step[2], ms));
            step = end;
        }
    }
    putchar('.');
    fflush(stdout);
}

int main(int count, char **words)
{
    int receives = strcmp(words[1], "0") == 0, listener = socket(AF_INET, SOCK_STREAM, 0), end = listener;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(7000)};
    if (count != 4 || inet_pton(AF_INET, strtok(words[2], ","), &address.sin_addr) != 1)
        return 3;
    if (receives && (bind(listener, (struct sockaddr *)&address, sizeof address) != 0 || listen(listener, 1) != 0 ||
                     (end = accept(listener, NULL, NULL)) < 0))
        return 3;
    if (!receives && connect(end, (struct sockaddr *)&address, sizeof address) != 0)
        return 3;
    for (const char *step = strtok(words[3], ","); step; step = strtok(NULL, ",")) {
        char byte = 'x';
        if (receives ? read(end, &byte, 1) != 1 : write(end, &byte, 1) != 1)
            return 3;
        if (receives)
            make(step);
    }
    return 0;
}
