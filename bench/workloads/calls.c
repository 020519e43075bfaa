/* FOLDER WHAT COUNT: that many bare system calls. No part of crashcheck in it. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(int count, char **words)
{
    static char page[4096];
    if (count != 4 || chdir(words[1]) != 0)
        return 1;
    int file = open("f", O_RDWR | O_CREAT, 0644), outside = open("/dev/zero", O_RDONLY);
    long many = atol(words[3]);
    for (long i = 0; i < many; i++) {
        page[0] = (char)i;
        if (strcmp(words[2], "writes") == 0 ? pwrite(file, page, sizeof page, i % 256 * 4096) < 0
                                            : read(outside, page, sizeof page) < 0)
            return 1;
    }
    return write(file, "", 1) == 1 ? 0 : 1;
}
