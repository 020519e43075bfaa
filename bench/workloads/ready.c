/* A check that the bench of crashcheck_ready() runs: `ready FOLDER` maps FOLDER/image and reads a word a page of its first
 * 64 KiB. */
#include "include/crashcheck.h"
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    volatile uint64_t *words;
    uint64_t sum = 0;
    int fd, i;

    CRASHCHECK_READY();
    if (argc < 2 || chdir(argv[1]) != 0 || (fd = open("image", O_RDONLY)) < 0)
        return 2;
    words = mmap(NULL, 65536, PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return 2;
    for (i = 0; i < 65536 / 8; i += 512)
        sum += words[i];
    return sum == 0x5eed;
}
