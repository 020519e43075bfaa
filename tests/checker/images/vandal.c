/* Changes the pool folder, or the system, in the way that its first argument names. For tests of what is restored. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/stat.h>
#include <unistd.h>

static char path[4096];

static const char *at(const char *pool, const char *name) {
    snprintf(path, sizeof path, "%s/%s", pool, name);
    return path;
}

static int opened(const char *pool, int flags) {
    int fd = open(at(pool, "p"), flags, 0600);
    if (fd < 0)
        exit(80);
    return fd;
}

static char *mapped(const char *pool) {
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, opened(pool, O_RDWR), 0);
    if (map == MAP_FAILED)
        exit(81);
    return map;
}

int main(int argc, char **argv) {
    if (argc < 3)
        return 82;
    const char *how = argv[1], *pool = argv[2];
    if (!strcmp(how, "nothing"))
        return 0;
    if (!strcmp(how, "read"))
        return mapped(pool)[0] & 0;
    if (!strcmp(how, "mmap"))
        return (mapped(pool)[2048] = 77) & 0;
    if (!strcmp(how, "mmap-killed")) {
        mapped(pool)[100] = 77;
        raise(SIGKILL);
    }
    if (!strcmp(how, "pwrite"))
        return pwrite(opened(pool, O_RDWR), "vandal", 6, 4000) == 6 ? 0 : 1;
    if (!strcmp(how, "cut"))
        return ftruncate(opened(pool, O_RDWR), 10);
    if (!strcmp(how, "cut-and-grow"))
        return truncate(at(pool, "p"), 0) || truncate(path, 4096);
    if (!strcmp(how, "grow"))
        return pwrite(opened(pool, O_RDWR), "x", 1, 1 << 20) == 1 ? 0 : 1;
    if (!strcmp(how, "unlink"))
        return unlink(at(pool, "p"));
    if (!strcmp(how, "replace"))
        return unlink(at(pool, "p")) || write(opened(pool, O_RDWR | O_CREAT), "new", 3) != 3;
    if (!strcmp(how, "rename"))
        return rename(strdup(at(pool, "p")), at(pool, "q"));
    if (!strcmp(how, "swap"))
        return renameat2(AT_FDCWD, strdup(at(pool, "p")), AT_FDCWD, at(pool, "log/a"), RENAME_EXCHANGE);
    if (!strcmp(how, "link"))
        return link(strdup(at(pool, "p")), at(pool, "other"));
    if (!strcmp(how, "symlink"))
        return unlink(at(pool, "p")) || symlink("/etc/passwd", path);
    if (!strcmp(how, "folder"))
        return unlink(at(pool, "p")) || mkdir(path, 0) || mkdir(at(pool, "deep"), 0700) ||
               mkdir(at(pool, "deep/er"), 0500);
    if (!strcmp(how, "mode"))
        return chmod(at(pool, "p"), 0) || chmod(at(pool, "log"), 0500);
    if (!strcmp(how, "remove-all"))
        return execlp("rm", "rm", "-rf", pool, NULL);
    if (!strcmp(how, "fifo"))
        return mkfifo(at(pool, "fifo"), 0600);
    if (!strcmp(how, "hog"))
        for (;;) {
            char *volatile more = malloc(1 << 20); /* volatile: clang 22 leaves out what nobody reads */
            if (!more)
                abort();
            memset(more, 1, 1 << 20);
        }
    if (!strcmp(how, "flood"))
        for (;;)
            printf("all work and no play\n");
    if (!strcmp(how, "fill"))
        for (int fd = opened(pool, O_RDWR | O_APPEND);;)
            if (write(fd, path, sizeof path) < 0)
                return 1;
    if (!strcmp(how, "randomised"))
        return !(personality(0xffffffff) & ADDR_NO_RANDOMIZE);
    return 83;
}
