/* Knows nothing of crashcheck: stores through a mapping, unseen. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", argv[1], argc > 2 ? argv[2] : "a.db");
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (argc > 3)
        return ftruncate(fd, 4096);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return 1;
    at[0] = 'x';
    return 0;
}
