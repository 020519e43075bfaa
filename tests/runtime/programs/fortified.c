#include <sys/random.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <wchar.h>

#include "scenes.h"

void __explicit_bzero_chk(void *, size_t, size_t);
size_t __fread_unlocked_chk(void *, size_t, size_t, size_t, FILE *);
ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);

int main(int argc, char **argv)
{
    (void)argc;
    char *at = map_file(open_file(argv[1], "a.db", 4096), 4096);
    int from = open_file(argv[1], "source", 0);
    NEED(write(from, "0123456789", 10) == 10);
    NEED(getentropy(at + 1000, 64) == 0);
    for (int i = 0; i < 64; i++)
        STORE(1, at + i, 'x');
    __explicit_bzero_chk(at, 16, 16);
    FILE *stream = fopen(in_pool(argv[1], "source"), "r");
    NEED(__fread_unlocked_chk(at + 100, 100, 1, 5, stream) == 5);
    fclose(stream);
    int pair[2];
    NEED(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    NEED(send(pair[0], "datagram!", 9, 0) == 9);
    NEED(__recvfrom_chk(pair[1], at + 200, 50, 50, 0, NULL, NULL) == 9);
    struct iovec parts[2] = {{at + 300, 4}, {at + 310, 5}};
    NEED(preadv(from, parts, 2, 1) == 9);
    NEED(send(pair[0], "abcdef", 6, 0) == 6);
    struct iovec part = {at + 400, 100};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    NEED(recvmsg(pair[1], &message, 0) == 6);
    NEED(memccpy(at + 500, "ab,cd", ',', 5) == at + 503);
    NEED(wmemcpy((wchar_t *)(void *)(at + 600), L"ab", 2) != NULL);
    return 0;
}
