/* Starts commands one after another, and lists what each depends on besides one folder: inputs LIST FOLDER REQUESTS
 *
 * The list is a file that exists and is mapped here: `struct list`, then records, each a letter and a text that ends with a
 * zero byte:
 *   o PATH   opened or executed       s PATH   its status was read       l PATH   that of the link itself, or its target
 *   c NAME   asked the kernel for something that stays the same on one machine
 *   x WHY    depends on something that no list can hold: a clock, random numbers, another process, a change outside
 * A call that is not known to be harmless is such a thing.
 *
 * REQUESTS is the descriptor of a socket. A request is a number of bytes (32 bits) and that many: the number of words (32
 * bits), then texts that end with a zero byte: the program, the words, the environment. The answer is the command's process
 * number. The command is a child of this process's parent, which waits for it as if it had started it; it has a group of
 * its own and this process's other descriptors.
 *
 * A command stops at the calls that the filter names. The kernel's shared page of clocks is hidden from it, and so is the
 * processor's counter: both become calls or signals that are seen here. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inputs/inputs.h"

#define OPTIONS                                                                                                        \
    (PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |     \
     PTRACE_O_EXITKILL)
#define MOST_WORDS 65536
#define MOST_BYTES (8u << 20)

struct list *list;
static const char *folder; /* what is in it is not listed */
static size_t folder_bytes;

void note(char letter, const char *text)
{
    size_t bytes = strlen(text) + 2;
    if (list->used + bytes > sizeof list->records) {
        list->follows = 0;
        return;
    }
    char *to = list->records + list->used;
    *to = letter;
    memcpy(to + 1, text, bytes - 1);
    list->used += (uint32_t)bytes;
}

bool is_inside(const char *path)
{
    bool below = strncmp(path, folder, folder_bytes) == 0 && (path[folder_bytes] == '/' || !path[folder_bytes]);
    return below && !strstr(path, "/..");
}

/* In a new process: becomes the command, once it is known whether it is followed. */
static void become(char *request, size_t bytes, int go)
{
    static char *words[MOST_WORDS + 1], *environment[MOST_WORDS + 1];
    char permitted = 0;
    uint32_t many, at = 0, variables = 0;
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* where a relative may not follow otherwise */
    setpgid(0, 0);
    if (read(go, &permitted, 1) != 1)
        _exit(127);
    memcpy(&many, request, sizeof many);
    char *text = request + sizeof many, *program = text;
    for (text += strlen(text) + 1; text < request + bytes; text += strlen(text) + 1) {
        if (at == MOST_WORDS || variables == MOST_WORDS)
            _exit(127);
        if (at < many)
            words[at++] = text;
        else
            environment[variables++] = text;
    }
    if (permitted) {
        prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
        list->follows = install_filter();
        if (!list->follows)
            prctl(PR_SET_TSC, PR_TSC_ENABLE, 0, 0, 0);
    }
    execve(program, words, environment);
    list->error = errno;
    _exit(127);
}

static bool read_all(int from, void *to, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t got = read(from, (char *)to + done, size - done);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        done += got > 0 ? (size_t)got : 0;
    }
    return true;
}

int main(int count, char **words)
{
    static char request[MOST_BYTES];
    int go[2];
    uint32_t bytes;
    if (count != 4) {
        fprintf(stderr, "usage: %s LIST FOLDER REQUESTS\n", words[0]);
        return 125;
    }
    folder = words[2];
    folder_bytes = strlen(folder);
    int file = open(words[1], O_RDWR | O_CLOEXEC), requests = (int)strtol(words[3], NULL, 10);
    void *mapped = file < 0 ? MAP_FAILED : mmap(NULL, sizeof *list, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (mapped == MAP_FAILED || fcntl(requests, F_SETFD, FD_CLOEXEC) != 0 || pipe2(go, O_CLOEXEC) != 0) {
        perror(words[1]);
        return 125;
    }
    list = mapped;
    while (read_all(requests, &bytes, sizeof bytes) && bytes > 4 && bytes <= sizeof request &&
           read_all(requests, request, bytes) && !request[bytes - 1]) {
        list->used = list->follows = 0;
        list->error = 0;
        pid_t command = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
        if (command == 0)
            become(request, bytes, go[0]);
        char permitted = command > 0 && ptrace(PTRACE_SEIZE, command, NULL, (void *)(uintptr_t)OPTIONS) == 0;
        if (command < 0)
            command = -errno;
        else if (write(go[1], &permitted, 1) != 1)
            return 125;
        if (write(requests, &command, sizeof command) != (ssize_t)sizeof command)
            return 125;
        if (permitted)
            follow();
    }
    return 0;
}
