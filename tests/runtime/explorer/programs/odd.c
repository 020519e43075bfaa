/* What explored runs must follow as the kernel does, or refuse: FILE HOW. Ends with 1 if the first byte is not 0. */
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static volatile unsigned char *map(const char *path, int mode, int protection, int flags, size_t from, size_t size)
{
    void *base = mmap(NULL, size, protection, flags, open(path, mode), (off_t)from);
    return base == MAP_FAILED ? NULL : base;
}

/* Another file, next to the first. */
static bool another_mapped_twice(const char *path, int flags)
{
    char other[4096];
    snprintf(other, sizeof other, "%s.other", path);
    volatile unsigned char *seen = map(other, O_RDWR, PROT_READ, flags, 0, 4096);
    volatile unsigned char *changed = map(other, O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 4096);
    changed[0] = 1;
    return seen[0] == 1;
}

/* How many names its folder has; a byte is read between two of them. */
static int names_next_to(const char *path, const volatile unsigned char *base)
{
    char folder[4096], room[64];
    long got;
    int names = 0;
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    int fd = open(folder, O_RDONLY | O_DIRECTORY);
    while ((got = syscall(SYS_getdents64, fd, room, sizeof room)) > 0)
        for (long at = 0; at < got; at += *(unsigned short *)(void *)(room + at + 16))
            names += 1 + 0 * base[0];
    return names;
}

/* Whether the name of its folder and the way back lead there. */
static bool moved_there_and_back(const char *path)
{
    char folder[4096];
    int back = open(".", O_RDONLY | O_DIRECTORY);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    return !chdir(folder) && !access(strrchr(path, '/') + 1, F_OK) && !fchdir(back) && access(strrchr(path, '/') + 1, F_OK);
}

static void handler(int number)
{
    _exit(number);
}

/* Whether the program sees its own handler of a signal. */
static bool handles(int number)
{
    struct sigaction was;
    signal(number, handler);
    return !sigaction(number, NULL, &was) && was.sa_handler == handler;
}

int main(int count, char **arguments)
{
    (void)count;
    const char *path = arguments[1], *how = arguments[2];
    if (!strcmp(how, "second-page"))
        return map(path, O_RDWR, PROT_READ, MAP_SHARED, 4096, 4096)[0] != 0;
    if (!strcmp(how, "first-page"))
        return map(path, O_RDWR, PROT_READ, MAP_SHARED, 0, 4096)[4095] != 0;
    if (!strcmp(how, "read-only") && !map(path, O_RDONLY, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 4096))
        return 0; /* as it has to be */
    if (!strcmp(how, "sync") && !map(path, O_RDWR, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, 0, 4096))
        return 0; /* not of this file system */
    volatile unsigned char *early = NULL;
    if (!strncmp(how, "early", 5)) {
        early = map(path, O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 4096);
        unsigned char seen = early[0];
        if (!strcmp(how, "early-write"))
            early[0] = 7;
        munmap((void *)early, 4096);
        volatile unsigned char *late = map(path, O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 8192);
        return late[0] == seen ? seen : 2;
    }
    volatile unsigned char *base = map(path, O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 4096);
    if (!strncmp(how, "twice", 5)) {
        volatile unsigned char *second = map(path, O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED, 0, 4096);
        if (!strcmp(how, "twice-written"))
            second[0] = 1;
        unsigned char seen[200];
        memcpy(seen, (const void *)second, sizeof seen);
        base[200] = 7;
        if (seen[0] != base[0] || seen[130] || second[200] != 7)
            return 2;
        munmap((void *)second, 4096);
    }
    if (!strcmp(how, "other") && !another_mapped_twice(path, MAP_SHARED))
        return 0;
    if (!strcmp(how, "copied") && !another_mapped_twice(path, MAP_PRIVATE))
        return 0;
    if (!strcmp(how, "hang") && base[0])
        for (;;)
            ;
    if (!strcmp(how, "kill"))
        kill(getpid(), 0);
    if (!strcmp(how, "parent") && getppid() <= 1)
        return 2;
    if (!strcmp(how, "action")) {
        struct sigaction was, plain;
        memset(&was, 0x5a, sizeof was);
        memset(&plain, 0, sizeof plain);
        sigaction(SIGSEGV, &plain, &was);
        if (was.sa_handler != SIG_DFL)
            return 0;
    }
    if (!strcmp(how, "asked")) {
        struct sigaction was;
        sigaction(SIGSEGV, NULL, &was);
        if (was.sa_handler != SIG_DFL)
            return 0;
    }
    if (!strcmp(how, "names") && names_next_to(path, base) != 4)
        return 2;
    if (!strcmp(how, "folder") && !moved_there_and_back(path))
        return 2;
    if (!strcmp(how, "handler") && !(handles(SIGUSR1) && handles(SIGSEGV)))
        return 2;
    if (!strcmp(how, "handled") && handles(SIGUSR1))
        raise(SIGUSR1);
    if (!strcmp(how, "handled-fault") && handles(SIGSEGV))
        *(volatile int *)NULL = 0;
    if (!strcmp(how, "advised"))
        for (int advice = MADV_NORMAL; advice <= MADV_WILLNEED; advice++)
            if (madvise((void *)base, 4096, advice))
                return 2;
    if (!strcmp(how, "dropped"))
        madvise((void *)base, 4096, MADV_DONTNEED);
    if (!strcmp(how, "mask"))
        syscall(SYS_rt_sigprocmask, SIG_BLOCK, base, NULL, 8);
    if (!strcmp(how, "wiped")) {
        volatile unsigned char *own = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        own[0] = 1;
        madvise((void *)own, 4096, MADV_WIPEONFORK);
        if (base[0] && !own[0])
            return 0;
    }
    return base[0] != 0;
}
