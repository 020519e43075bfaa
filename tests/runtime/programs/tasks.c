/* Replaces a file three times, with a log of what it did, in functions of their own. */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

static int log_file;

NOINLINE void put(int file, const char *text)
{
    if (write(file, text, 1) != 1)
        _exit(1);
}

NOINLINE void replace(const char *text, int synced)
{
    int file = open("t", O_WRONLY | O_CREAT | O_TRUNC, 0644);
    put(file, text);
    if (synced)
        fsync(file);
    close(file);
    if (rename("t", "f") != 0)
        _exit(1);
    file = open(".", O_RDONLY);
    fsync(file);
    close(file);
}

NOINLINE void append_log(const char *text)
{
    put(log_file, text);
    fdatasync(log_file);
}

int main(int count, char **words)
{
    if (count < 2 || chdir(words[1]) != 0)
        return 1;
    log_file = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644);
    for (int i = 0; i < 3; i++) {
        append_log("b");
        replace("x", i != 1);
        append_log("e");
    }
    return 0;
}
