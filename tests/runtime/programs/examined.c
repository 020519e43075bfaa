/* What a program may notice of a recorder that examines its files: locks that are gone, children that it did not make. */
#include "hand.h"
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>

static volatile sig_atomic_t told;

static void tell(int number)
{
    (void)number;
    told = 1;
}

int main(int argc, char **argv)
{
    (void)argc;
    int fd = open_file(argv[1], "a.db", 8192);
    uint64_t *words = map_file(fd, 8192);
    struct flock lock = {.l_type = F_WRLCK};
    NEED(signal(SIGCHLD, tell) != SIG_ERR);
    NEED(fcntl(fd, F_SETLK, &lock) == 0);
    for (uint64_t i = 0; i < 20; i++)
        STORE(1, &words[i], i + 1);
    NEED(wait(NULL) == -1 && errno == ECHILD);
    NEED(!told);
    pid_t child = fork();
    if (child == 0)
        _exit(fcntl(fd, F_GETLK, &lock) != 0 || lock.l_type == F_UNLCK);
    int state;
    NEED(waitpid(child, &state, 0) == child);
    NEED(state == 0);
    return 0;
}
