/* events serve|ask: a server of epoll with a timer's file, and a client that does not block; they count seconds together. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define PORT 7002
#define SECONDS 3

static int all;

static void watch(int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.fd = fd};
    epoll_ctl(all, EPOLL_CTL_ADD, fd, &event);
}

static int ask(void)
{
    int end = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), error = 0;
    socklen_t size = sizeof error;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = htonl(0x0a000001)};
    struct epoll_event event;
    char text[64];
    if (connect(end, (struct sockaddr *)&at, sizeof at) == 0 || errno != EINPROGRESS)
        return 1;
    watch(end, EPOLLOUT | EPOLLET);
    if (epoll_wait(all, &event, 1, -1) != 1 || getsockopt(end, SOL_SOCKET, SO_ERROR, &error, &size) != 0 || error)
        return printf("refused: %s\n", strerror(error)), 2;
    if (write(end, "count", 5) != 5)
        return 3;
    event.events = EPOLLIN;
    epoll_ctl(all, EPOLL_CTL_MOD, end, &event);
    for (;;) {
        if (epoll_wait(all, &event, 1, 10000) != 1)
            return 4;
        ssize_t got = read(end, text, sizeof text - 1);
        if (got <= 0)
            return got ? 5 : 0;
        text[got] = 0;
        printf("%s", text);
        fflush(stdout);
    }
}

static int serve(void)
{
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK), end = -1;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct itimerspec each = {{1, 0}, {1, 0}};
    struct epoll_event events[4];
    char text[64];
    uint64_t times;
    if (bind(listening, (struct sockaddr *)&at, sizeof at) != 0 || listen(listening, 8) != 0)
        return 1;
    watch(listening, EPOLLIN);
    watch(timer, EPOLLIN);
    for (int seconds = 0; seconds < SECONDS;) {
        int count = epoll_wait(all, events, 4, -1);
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listening) {
                end = accept4(listening, NULL, NULL, SOCK_NONBLOCK);
                watch(end, EPOLLIN | EPOLLRDHUP);
            } else if (events[i].data.fd == end) {
                if (read(end, text, sizeof text) != 5)
                    return 2;
                timerfd_settime(timer, 0, &each, NULL);
            } else if (read(timer, &times, sizeof times) == sizeof times) {
                int size = snprintf(text, sizeof text, "%d\n", ++seconds);
                if (write(end, text, (size_t)size) != size)
                    return 3;
            }
        }
    }
    return 0;
}

int main(int count, char **words)
{
    all = epoll_create1(0);
    return count > 1 && strcmp(words[1], "serve") == 0 ? serve() : ask();
}
