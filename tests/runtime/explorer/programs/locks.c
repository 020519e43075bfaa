/* Recovers many lines: FILE HOW. "release": each line's lock is released, if it is held; "none": nothing is read;
 * "pwrite", "print", "fork", "again": the file is read in a way that is not followed; "spoil", "abort": ends badly if the
 * first lock is held. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINES 16

int main(int count, char **arguments)
{
    (void)count;
    const char *how = arguments[2];
    int fd = open(arguments[1], O_RDWR);
    char *base = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    volatile char *locks = base;
    if (base == MAP_FAILED)
        return 2;
    if (!strcmp(how, "release"))
        for (int i = 0; i < LINES; i++)
            if (locks[64 * i])
                locks[64 * i] = 0;
    if (!strcmp(how, "pwrite"))
        return pwrite(fd, &how, 1, 0) != 1;
    if (!strcmp(how, "print"))
        return write(1, base, 1) != 1;
    if (!strcmp(how, "fork"))
        return fork() < 0;
    if (!strcmp(how, "again"))
        return *(volatile char *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) = 1;
    if (!strcmp(how, "spoil") && locks[0])
        *(volatile char *)8 = 1;
    if (!strcmp(how, "abort") && locks[0])
        abort();
    puts("sound");
    return 0;
}
