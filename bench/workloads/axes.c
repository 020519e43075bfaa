/* FOLDER CALLS FILES BYTES EVERY: so many writes of ten bytes, to so many files, one after another, spread over so many
   bytes of each; one in EVERY is synced (0: none). No part of crashcheck in it. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int fail(const char *what)
{
    perror(what);
    return 1;
}

int main(int count, char **words)
{
    if (count != 6 || chdir(words[1]) != 0)
        return 1;
    long calls = atol(words[2]), files = atol(words[3]), bytes = atol(words[4]), every = atol(words[5]);
    long each = (calls + files - 1) / files; /* writes to a file */
    for (long file = 0, done = 0; done < calls; file++) {
        char name[32];
        snprintf(name, sizeof name, "f%ld", file);
        int fd = open(name, O_WRONLY | O_CREAT, 0644);
        if (fd < 0)
            return fail(name);
        if (bytes > each * 10 && ftruncate(fd, bytes) != 0)
            return fail("ftruncate");
        for (long i = 0; i < each && done < calls; i++, done++) {
            char text[32];
            snprintf(text, sizeof text, "%09ld\n", done);
            long at = bytes > each * 10 ? bytes / each * i : i * 10;
            if (pwrite(fd, text, 10, at) != 10)
                return fail("pwrite");
            if (every && done % every == every - 1 && fsync(fd) != 0)
                return fail("fsync");
        }
        close(fd);
    }
    puts("done");
    return 0;
}
