/* datagrams INDEX NODES [COUNT]: sends so many datagrams to each of the other nodes, and prints which arrive. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PORT 7000

int main(int count, char **words)
{
    int index = atoi(words[1]), nodes = atoi(words[2]), end = socket(AF_INET, SOCK_DGRAM, 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(PORT)}, from;
    char text[64], line[96];
    if (bind(end, (struct sockaddr *)&at, sizeof at) != 0)
        return 1;
    for (int node = 0; node < nodes; node++) {
        if (node == index)
            continue;
        at.sin_addr.s_addr = htonl(0x0a000001u + (unsigned)node);
        for (int number = 0; number < (count > 3 ? atoi(words[3]) : 1); number++) {
            int size = snprintf(text, sizeof text, "%d", number);
            if (sendto(end, text, (size_t)size, 0, (struct sockaddr *)&at, sizeof at) != size)
                return 2;
        }
    }
    for (;;) {
        socklen_t size = sizeof from;
        ssize_t got = recvfrom(end, text, sizeof text - 1, 0, (struct sockaddr *)&from, &size);
        if (got < 0)
            return 3;
        text[got] = 0;
        int length = snprintf(line, sizeof line, "%s from %s:%d\n", text, inet_ntoa(from.sin_addr), ntohs(from.sin_port));
        if (write(1, line, (size_t)length) != length)
            return 4;
    }
}
