/* A clock that processes under control can read: it is memory, which a process on another processor writes.
 *
 *   node_calls FILE tick                 writes the time into FILE until it is killed
 *   node_calls FILE KIND COUNT           makes so many calls; behind the time in FILE: ns that each took */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ROOM (1u << 20)

static uint64_t now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (uint64_t)at.tv_sec * 1000000000u + (uint64_t)at.tv_nsec;
}

static void call(const char *kind, int file, int end)
{
    static char page[64];
    struct timespec at;
    if (strcmp(kind, "clock") == 0)
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &at);
    else if (strcmp(kind, "read") == 0)
        (void)!read(file, page, sizeof page);
    else if (strcmp(kind, "option") == 0)
        setsockopt(end, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    else
        (void)!write(1, page, 1);
}

int main(int count, char **words)
{
    int shared = count > 2 ? open(words[1], O_RDWR) : -1;
    _Atomic uint64_t *clock = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, shared, 0);
    if (clock == MAP_FAILED)
        return 2;
    while (strcmp(words[2], "tick") == 0)
        atomic_store_explicit(clock, now(), memory_order_relaxed);
    int file = open("/dev/zero", O_RDONLY), end = socket(AF_INET, SOCK_STREAM, 0);
    long calls = count > 3 ? atol(words[3]) : 0;
    for (long i = 1; i <= calls && i < (long)(ROOM / sizeof *clock); i++) {
        uint64_t before = atomic_load(clock);
        call(words[2], file, end);
        clock[i] = atomic_load(clock) - before;
    }
    return 0;
}
