#include <dlfcn.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "scenes.h"

static char *mapped(const char *pool)
{
    return map_file(open_file(pool, "a.db", 4096), 4096);
}

static void waits(pid_t child)
{
    int status = -1;
    NEED(waitpid(child, &status, 0) == child && status == 0);
}

static void forks(const char *pool, char **arguments)
{
    (void)arguments;
    char *at = mapped(pool);
    STORE(1, at, 'a');
    crashcheck_op_begin();
    pid_t child = fork();
    NEED(child >= 0);
    if (child == 0) {
        STORE(2, at + 1, 'b');
        crashcheck_op_begin();
        crashcheck_op_end();
        exit(0);
    }
    waits(child);
    crashcheck_op_end();
    STORE(3, at + 2, 'c');
    /* A fork that libc knows nothing of. */
    child = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    NEED(child >= 0);
    if (child == 0) {
        STORE(4, at + 3, 'd');
        _exit(0);
    }
    waits(child);
    STORE(5, at + 4, 'e');
}

static void becomes(const char *pool, char **arguments)
{
    char *at = mapped(pool);
    if (*arguments) {
        STORE(2, at + 1, 'b');
        char *other = map_file(open_file(pool, "b.db", 4096), 4096);
        STORE(3, other, 'c');
        return;
    }
    STORE(1, at, 'a');
    char self[4096] = "";
    NEED(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    char *command[] = {self, (char *)(uintptr_t)pool, "exec", "again", NULL};
    execv(self, command);
    NEED(0);
}

static void spawns(const char *pool, char **arguments)
{
    (void)arguments;
    char *at = mapped(pool);
    STORE(1, at, 'a');
    extern char **environ;
    char self[4096] = "";
    NEED(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    char *command[] = {self, (char *)(uintptr_t)pool, "exec", "again", NULL};
    pid_t child;
    NEED(posix_spawn(&child, self, NULL, NULL, command, environ) == 0);
    waits(child);
    child = vfork();
    if (child == 0) {
        execve(self, command, environ);
        _exit(1);
    }
    waits(child);
    STORE(4, at, 'z');
}

/* Two processes record at once; the second begins while the first, until then alone, is in the middle of it. */
static void races(const char *pool, char **arguments)
{
    uint64_t *at = map_file(open_file(pool, "a.db", 8192), 8192);
    if (*arguments) {
        for (uint64_t i = 1; i <= 10000; i++)
            STORE(2, at + 512, i);
        return;
    }
    extern char **environ;
    char self[4096] = "";
    NEED(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    char *command[] = {self, (char *)(uintptr_t)pool, "race", "again", NULL};
    STORE(1, at, 1ul);
    pid_t child;
    int status = -1;
    NEED(posix_spawn(&child, self, NULL, NULL, command, environ) == 0);
    uint64_t i = 1;
    while (waitpid(child, &status, WNOHANG) == 0)
        for (int j = 0; j < 1000; j++) {
            i++;
            STORE(1, at, i);
        }
    NEED(status == 0);
    fprintf(stderr, "%lu\n", (unsigned long)i);
}

static void loads(const char *pool, char **arguments)
{
    char *at = mapped(pool);
    STORE(1, at, 'a');
    for (int round = 0; round < 2; round++) {
        void *library = dlopen(arguments[0], RTLD_NOW);
        NEED(library);
        void (*write_one)(char *) = (void (*)(char *))dlsym(library, "write_one");
        NEED(write_one);
        write_one(at + 1 + round);
        NEED(dlclose(library) == 0);
    }
    NEED(dlopen("libnowhere-to-be-found.so", RTLD_NOW) == NULL);
}

static void killed(const char *pool, char **arguments)
{
    (void)arguments;
    uint64_t *at = (uint64_t *)(void *)mapped(pool);
    for (uint64_t i = 1; i <= 12345; i++)
        STORE(1, at, i);
    raise(SIGKILL);
}

/* Leaves a process behind that has a session of its own and holds the output open. */
static void leaves_a_daemon(const char *pool, char **arguments)
{
    (void)arguments;
    char *at = mapped(pool);
    STORE(1, at, 'a');
    int ready[2];
    NEED(pipe(ready) == 0);
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork())
            _exit(0);
        int fd = open_file(pool, "daemon.pid", 0);
        dprintf(fd, "%d", getpid());
        NEED(write(ready[1], "x", 1) == 1);
        for (;;)
            pause();
    }
    waits(child);
    char byte;
    NEED(read(ready[0], &byte, 1) == 1);
}

static void hangs(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "main.pid", 0);
    dprintf(fd, "%d", getpid());
    close(fd);
    fprintf(stderr, "about to hang\n");
    for (;;)
        pause();
}

static void fails(const char *pool, char **arguments)
{
    (void)pool;
    fprintf(stderr, "this went wrong\n");
    exit(atoi(arguments[0]));
}

static void says_what_it_has(const char *pool, char **arguments)
{
    (void)arguments;
    (void)pool;
    printf("%d %s\n", (int)lseek(dup(2), 0, SEEK_CUR) >= 0, "descriptors");
    printf("%d\n", dup(0));
    fflush(stdout);
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"fork", forks}, {"exec", becomes}, {"spawn", spawns}, {"dlopen", loads},
        {"killed", killed}, {"race", races},
        {"daemon", leaves_a_daemon}, {"hangs", hangs}, {"fails", fails},
        {"descriptors", says_what_it_has}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
