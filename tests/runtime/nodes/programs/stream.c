/* stream serve|connect COUNT: one connection, on which both sides write COUNT messages and print what they read. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 7001

static void print(const char *text)
{
    if (write(1, text, strlen(text)) < 0)
        _exit(9);
}

int main(int words_count, char **words)
{
    int end = socket(AF_INET, SOCK_STREAM, 0), count = words_count > 2 ? atoi(words[2]) : 3;
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    char text[256];
    if (strcmp(words[1], "serve") == 0) {
        int listening = end;
        socklen_t size = sizeof at;
        if (bind(listening, (struct sockaddr *)&at, sizeof at) != 0 || listen(listening, 8) != 0)
            return 1;
        end = accept(listening, (struct sockaddr *)&at, &size);
        snprintf(text, sizeof text, "accepted %s\n", inet_ntoa(at.sin_addr));
        print(text);
    } else {
        at.sin_addr.s_addr = htonl(0x0a000001);
        if (connect(end, (struct sockaddr *)&at, sizeof at) != 0) {
            perror("connect");
            return 2;
        }
    }
    for (int i = 0; i < count; i++) {
        int size = snprintf(text, sizeof text, "%c%d", words[1][0], i);
        if (write(end, text, (size_t)size) != size)
            return 3;
    }
    for (;;) {
        ssize_t got = read(end, text, sizeof text - 2);
        if (got <= 0) {
            print(got ? "reset\n" : "end\n");
            return got ? 4 : 0;
        }
        text[got] = '\n';
        text[got + 1] = 0;
        print(text);
    }
}
