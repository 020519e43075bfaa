/* The check that the states-a-second bench runs: `lookup read|write FOLDER` maps FOLDER/image and reads a word a page of
 * its first 64 KiB. With "write" it maps it for writing, as a program that opens its pool does, though it writes nothing. */
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    volatile uint64_t *words;
    uint64_t sum = 0;
    int fd, i, writes;

    if (argc < 3 || chdir(argv[2]) != 0)
        return 2;
    writes = strcmp(argv[1], "write") == 0;
    fd = open("image", writes ? O_RDWR : O_RDONLY);
    if (fd < 0)
        return 2;
    words = mmap(NULL, 65536, writes ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return 2;
    for (i = 0; i < 65536 / 8; i += 512)
        sum += words[i];
    return sum == 0x5eed;
}
