/* One part per group of system calls, chosen by the second argument; the first is the folder. No part of crashcheck in it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

static int must(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}
#define MUST(call) must((int)(call), #call)

static int make(const char *name, int flags)
{
    return MUST(open(name, O_RDWR | O_CREAT | flags, 0644));
}

static void names(void)
{
    close(make("a", 0));
    close(make("a\n\xff", 0));
    MUST(mkdir("d", 0755));
    MUST(mkdir("gone/", 0755));
    MUST(rmdir("gone"));
    MUST(link("a", "d/b"));
    MUST(symlink("no/where", "s"));
    MUST(rename("d", "e/"));
    MUST(syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "a\n\xff", RENAME_EXCHANGE));
    if (syscall(SYS_renameat2, AT_FDCWD, "a", AT_FDCWD, "s", RENAME_NOREPLACE) == 0 || errno != EEXIST)
        exit(2);
    MUST(rename("e/b", "a\n\xff")); /* two names of one file: nothing happens */
    int folder = MUST(open("e", O_RDONLY | O_DIRECTORY));
    MUST(unlinkat(folder, "b", 0));
    MUST(fsync(folder));
    MUST(mkfifo("fifo", 0600));
}

static void unnamed(void)
{
    char path[64];
    int file = MUST(open(".", O_TMPFILE | O_RDWR, 0600));
    MUST(write(file, "tmp", 3));
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    MUST(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW));
}

static void again(void)
{
    for (int i = 0; i < 50; i++) { /* inode numbers are used again */
        int file = make("x.tmp", O_EXCL);
        MUST(write(file, &i, sizeof i));
        close(file);
        MUST(rename("x.tmp", "x"));
    }
    MUST(unlink("x"));
    close(make("y", O_EXCL));
}

static void writes(void)
{
    int file = make("w", 0), more = MUST(dup(file));
    struct iovec parts[2] = {{(char[]){"ab"}, 2}, {(char[]){"cdefghijkl"}, 10}};
    MUST(write(file, "1234567890", 10));
    MUST(writev(more, parts, 2));
    MUST(pwrite(file, "P", 1, 5));
    MUST(pwritev(file, parts, 2, 100));
    int append = MUST(open("w", O_WRONLY | O_APPEND));
    MUST(write(append, "end", 3));
    MUST(pwrite(append, "END", 3, 0)); /* Linux appends */
    int synced = make("synced", O_DSYNC);
    MUST(write(synced, "s", 1));
    MUST(pwritev2(file, parts, 1, 50, RWF_SYNC));
    MUST(write(MUST(open("w2", O_WRONLY | O_CREAT | O_SYNC, 0644)), "s", 1));
    MUST(ftruncate(file, 3));
    MUST(truncate("w", 5000));
    close(make("w2", O_TRUNC));
    MUST(syncfs(file));
    sync();
    MUST(fdatasync(file));
}

static void allocations(void)
{
    char bytes[3 * 4096];
    int file = make("f", 0);
    memset(bytes, 'x', sizeof bytes);
    MUST(write(file, bytes, sizeof bytes));
    MUST(fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 100, 5000));
    MUST(fallocate(file, 0, 0, 5 * 4096));
    fallocate(file, FALLOC_FL_ZERO_RANGE, 4096, 50); /* not every file system has it */
}

static void moves(void)
{
    char bytes[3 * 4096];
    int file = make("f", 0);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)('a' + i / 4096);
    MUST(write(file, bytes, sizeof bytes));
    if (fallocate(file, FALLOC_FL_COLLAPSE_RANGE, 4096, 4096) < 0)
        exit(77); /* not every file system has it */
}

static void copies(void)
{
    char bytes[10000];
    int source = make("source", 0), target = make("target", 0), pair[2];
    loff_t from = 10, to = 20000;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i % 251);
    MUST(write(source, bytes, sizeof bytes));
    MUST(copy_file_range(source, &from, target, &to, 5000, 0));
    off_t start = 0;
    MUST(sendfile(target, source, &start, 3000));
    MUST(pipe(pair));
    MUST(write(pair[1], "through a pipe", 14));
    to = 40000;
    MUST(splice(pair[0], NULL, target, &to, 14, 0));
    ioctl(make("clone", 0), FICLONE, source); /* not every file system can */
}

static char *mapping(const char *name, size_t size)
{
    int file = make(name, 0);
    MUST(ftruncate(file, (off_t)size));
    char *at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    MUST(at == MAP_FAILED ? -1 : 0);
    close(file);
    return at;
}

static void maps(void)
{
    char *at = mapping("m", 3 * 4096);
    memcpy(at + 10, "first", 5);
    MUST(msync(at, 4096, MS_SYNC));
    memcpy(at + 4090, "second over two pages", 21);
    int file = make("m", 0);
    MUST(pwrite(file, "by a call", 9, 8192));
    MUST(rename("m", "n"));
    at[0] = 'r';
    MUST(write(1, "seen\n", 5));
    pid_t child = MUST(fork());
    if (child == 0) {
        at[100] = 'c';
        _exit(0);
    }
    MUST(waitpid(child, NULL, 0));
    char *other = mapping("o", 8192);
    other[5] = 'o';
    MUST(munmap(other, 8192));
    at[200] = 'e';
    at[240] = 'f';
}

static void *work(void *which)
{
    char name[16], line[32];
    int own, shared = MUST(open("shared", O_WRONLY | O_CREAT | O_APPEND, 0644));
    snprintf(name, sizeof name, "own%d", (int)(intptr_t)which);
    own = make(name, 0);
    for (int i = 0; i < 40; i++) {
        int length = snprintf(line, sizeof line, "%s %d\n", name, i);
        MUST(write(own, line, (size_t)length));
        MUST(write(shared, line, (size_t)length));
        if (i % 10 == 0)
            MUST(fsync(own));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t all[4];
    for (intptr_t i = 0; i < 4; i++)
        pthread_create(&all[i], NULL, work, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(all[i], NULL);
}

static void forks(void)
{
    int inherited = make("inherited", 0);
    for (int i = 0; i < 3; i++) {
        pid_t child = MUST(fork());
        if (child == 0) {
            MUST(write(inherited, "child\n", 6)); /* the position is shared */
            if (i == 2)
                execlp("sh", "sh", "-c", "echo executed >> inherited", (char *)NULL);
            _exit(0);
        }
        MUST(waitpid(child, NULL, 0));
    }
    int pair[2];
    char payload = 'x';
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    memset(&control, 0, sizeof control);
    struct iovec part = {&payload, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    if (MUST(fork()) == 0) {
        MUST(recvmsg(pair[0], &message, 0));
        MUST(pwrite(*(int *)(void *)CMSG_DATA(&control.head), "passed", 6, 100));
        _exit(0);
    }
    control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    *(int *)(void *)CMSG_DATA(&control.head) = make("passed", 0);
    MUST(sendmsg(pair[1], &message, 0));
    MUST(wait(NULL));
    MUST(write(1, "done\n", 5));
}

static void unmodelled(void)
{
    unsigned long context = 0;
    int self = MUST(syscall(SYS_pidfd_open, getpid(), 0));
    syscall(SYS_io_uring_setup, 4, NULL); /* fails: nothing can be written by it */
    for (int i = 0; i < 2; i++)
        MUST(syscall(SYS_pidfd_getfd, self, self, 0));
    MUST(syscall(SYS_io_setup, 1, &context));
    MUST(syscall(SYS_io_submit, context, 0, NULL));
    close(make("a", 0));
}

static void daemon_stays(void)
{
    char *at = mapping("d", 4096);
    int ready[2];
    MUST(pipe(ready));
    if (MUST(fork()) == 0) {
        setsid();
        strcpy(at, "by the daemon");
        MUST(write(ready[1], "", 1));
        for (;;)
            pause();
    }
    char byte;
    MUST(read(ready[0], &byte, 1));
}

static void killed(void)
{
    MUST(write(make("a", 0), "a", 1));
    raise(SIGKILL);
}

static void outward(void)
{
    /* `out` is a link to a folder outside */
    MUST(write(make("out/f", 0), "outside", 7));
    MUST(rename("out/f", "in"));
    MUST(rename("out/tree", "tree"));
    MUST(write(make("tree/d/f", O_APPEND), "more", 4));
    MUST(rename("in", "out/back"));
    MUST(unlink("out/back"));
    MUST(unlink("out/old"));
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"names", names},   {"unnamed", unnamed}, {"again", again},           {"writes", writes},
                 {"allocations", allocations}, {"moves", moves}, {"copies", copies}, {"maps", maps}, {"threads", threads},
                 {"forks", forks},   {"unmodelled", unmodelled}, {"daemon", daemon_stays}, {"killed", killed},
                 {"outward", outward}};
    MUST(count == 3 ? 0 : -1);
    MUST(chdir(words[1]));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, words[2]) == 0) {
            parts[i].run();
            return 0;
        }
    }
    return 3;
}
