/* Starts a node: an init of ours in namespaces of the node, and below it the node's process, stopped where its program begins. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nodes/parts.h"

#define OPTIONS                                                                                                        \
    (PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEVFORKDONE | \
     PTRACE_O_TRACEEXEC | PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
#define NUMBERS 1000u /* of processes between those of two starts: a restarted program has another one */
#define STARTS 30u    /* whose numbers differ: there are 32,768 */
#define PLACE "/media" /* where a node finds its folder */
#define STACK_MOST (1u << 21)
#define CODE_SEGMENT 0x33 /* of 64-bit programs */
#define NO_FILTER 255 /* a status that is no error's number */

struct command {
    const struct node *node;
    const char *folder;
    const char *private;    /* holds what is its /tmp and its /dev/shm */
    char *shown;            /* folders in our /tmp and /dev/shm that it finds in its own, with : between */
    char **words, **variables;
};

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool done = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return done;
}

/* In a user namespace of our own we stay who we are. */
static void map_ids(uid_t user, gid_t group)
{
    char text[64];
    write_text("/proc/self/setgroups", "deny");
    snprintf(text, sizeof text, "%u %u 1", user, user);
    write_text("/proc/self/uid_map", text);
    snprintf(text, sizeof text, "%u %u 1", group, group);
    write_text("/proc/self/gid_map", text);
}

/* A text with one path instead of another wherever that is named. */
static char *renamed(char *text, const char *path, const char *instead)
{
    size_t length = strlen(path), before;
    char *found = *path ? strstr(text, path) : NULL;
    if (!found)
        return text;
    before = (size_t)(found - text);
    char *rest = renamed(found + length, path, instead), *whole = malloc(before + strlen(instead) + strlen(rest) + 1);
    if (!whole)
        abort();
    memcpy(whole, text, before);
    strcpy(whole + before, instead);
    return strcat(whole, rest);
}

/* The node's folder has the same path in each run. Whether that is possible: nothing else that the command names is there. */
static bool place_folder(struct command *command)
{
    for (char **word = command->words; *word; word++)
        if (strncmp(*word, PLACE "/", sizeof PLACE) == 0)
            return false;
    if (mount(command->folder, PLACE, NULL, MS_BIND, NULL) != 0)
        return false;
    for (char **word = command->words; *word; word++)
        *word = renamed(*word, command->folder, PLACE);
    for (char **variable = command->variables; *variable; variable++)
        *variable = renamed(*variable, command->folder, PLACE);
    command->folder = PLACE;
    return true;
}

/* Two nodes that write /tmp/x.pid write two files. What the command needs of ours stays where it is. */
static bool own_temporary(const struct command *command)
{
    static const char *const places[] = {"/tmp", "/dev/shm"};
    char from[64], to[PATH_MAX], *rest = NULL;
    for (const char *path = strtok_r(command->shown, ":", &rest); path; path = strtok_r(NULL, ":", &rest)) {
        snprintf(to, sizeof to, "%s%s", command->private, strncmp(path, "/dev", 4) == 0 ? path + 4 : path);
        if ((mkdir(to, 0755) != 0 && errno != EEXIST) || mount(path, to, NULL, MS_BIND | MS_REC, NULL) != 0)
            return false;
    }
    int private = open(command->private, O_PATH | O_DIRECTORY | O_CLOEXEC); /* it may be in one of both */
    bool done = private >= 0;
    for (size_t i = 0; done && i < sizeof places / sizeof *places; i++) {
        snprintf(from, sizeof from, "/proc/self/fd/%d%s", private, strrchr(places[i], '/'));
        done = mount(from, places[i], NULL, MS_BIND | MS_REC, NULL) == 0;
    }
    if (private >= 0)
        close(private);
    return done;
}

enum { PLACED = 1, TEMPORARY = 2, NUMBERED = 4 }; /* what the process of the node reports of itself */

/* The node's process until it becomes its program. The status with which it ends is the error, or NO_FILTER. */
static _Noreturn void become(const struct command *command, int hello, const int *outputs, char byte)
{
    int null = open("/dev/null", O_RDONLY);
    setsid();
    personality(ADDR_NO_RANDOMIZE);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int signal_number = 1; signal_number < NSIG; signal_number++)
        signal(signal_number, SIG_DFL);
    if (chdir(command->folder) != 0 || null < 0 || dup2(null, 0) < 0 || dup2(outputs[0], 1) < 0 || dup2(outputs[1], 2) < 0 ||
        dup3(hello, 3, O_CLOEXEC) < 0)
        _exit(errno);
    syscall(SYS_close_range, 4, ~0u, 0);
    if (send(3, &byte, 1, 0) != 1 || recv(3, &byte, 1, 0) != 1)
        _exit(errno);
    if (!filter_install(command->node))
        _exit(NO_FILTER);
    environ = command->variables;
    execvp(command->words[0], command->words);
    _exit(errno);
}

/* Ends with us, and all that is in its namespace ends with it. `user`: in a user namespace of its own. */
static _Noreturn void be_init(struct command *command, int hello, const int *outputs, bool apart, bool user, uid_t id,
                              gid_t group)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (user)
        map_ids(id, group);
    bool numbered = apart && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
                    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) == 0;
    bool placed = apart && place_folder(command);
    bool temporary = apart && own_temporary(command);
    char before[16];
    unsigned start = command->node->starts % STARTS;
    snprintf(before, sizeof before, "%u", start * NUMBERS);
    if (apart && start)
        write_text("/proc/sys/kernel/ns_last_pid", before);
    pid_t child = fork();
    if (child == 0)
        become(command, hello, outputs, (char)((placed ? PLACED : 0) | (temporary ? TEMPORARY : 0) | (numbered ? NUMBERED : 0)));
    syscall(SYS_close_range, 0, ~0u, 0);
    for (;;)
        if (waitpid(-1, NULL, 0) < 0 && errno == ECHILD) /* all have ended */
            pause();
}

static pid_t clone_apart(unsigned long more)
{
    return (pid_t)syscall(SYS_clone, more | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWIPC | SIGCHLD, NULL, NULL, NULL, NULL);
}

/* Root may lack CAP_SYS_ADMIN as well, as in a container. */
static pid_t fork_apart(bool *apart, bool *user)
{
    pid_t init = geteuid() ? -1 : clone_apart(0);
    *user = init < 0;
    if (*user)
        init = clone_apart(CLONE_NEWUSER);
    *apart = init >= 0;
    if (*apart)
        return init;
    *user = false;
    return fork();
}

/* Who sent the first byte, in our numbers. */
static pid_t hear(int hello, char *byte)
{
    union {
        struct cmsghdr header;
        char room[CMSG_SPACE(sizeof(struct ucred))];
    } control;
    struct iovec part = {byte, 1};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    struct ucred from;
    if (recvmsg(hello, &message, 0) != 1 || !CMSG_FIRSTHDR(&message))
        return 0;
    memcpy(&from, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof from);
    return from.pid;
}

/* Hides the vDSO, which reads the time without a call, and gives the program random bytes of ours. */
static void change_auxv(struct thread *thread)
{
    struct user_regs_struct at;
    uint64_t *word;
    ptrace(PTRACE_GETREGS, thread->tid, NULL, &at);
    if (at.cs != CODE_SEGMENT) {
        name_uncontrolled(thread->process->node, "a 32-bit program");
        return;
    }
    uint64_t *stack = malloc(STACK_MOST);
    if (!stack)
        abort();
    size_t size = 0, got;
    do {
        size_t part = 4096 - (at.rsp + size) % 4096;
        got = memory_read(thread, at.rsp + size, (char *)stack + size, part);
        size += got;
    } while (got && size + 4096 <= STACK_MOST);
    const uint64_t *end = stack + size / sizeof *stack;
    for (word = stack + 1 + stack[0] + 1; word < end && *word;)
        word++;
    for (word++; word + 1 < end && *word != AT_NULL; word += 2) {
        unsigned char bytes[16];
        if (*word == AT_SYSINFO_EHDR) {
            const uint64_t nothing = AT_IGNORE;
            memory_write(thread, at.rsp + (uint64_t)((char *)word - (char *)stack), &nothing, sizeof nothing);
        } else if (*word == AT_RANDOM) {
            random_fill(thread->process->node, bytes, sizeof bytes);
            memory_write(thread, word[1], bytes, sizeof bytes);
        }
    }
    free(stack);
    if (!size)
        fail("process_vm_readv", strerror(errno));
}

void start_executed(struct thread *thread)
{
    change_auxv(thread);
    recording_executed(thread);
    descriptors_executed(thread->process);
}

static void add_output(struct process *process, int fd)
{
    struct object *output = object_new(process->node, OUTPUT);
    output->number = (uint32_t)fd;
    descriptor_set(process, fd, output);
}

/* Lets it execute its program. */
static struct thread *executing(struct node *node, pid_t pid, int hello, const char *program)
{
    int status;
    if (ptrace(PTRACE_SEIZE, pid, NULL, (void *)(uintptr_t)OPTIONS) != 0)
        fail("ptrace", strerror(errno));
    if (send(hello, "", 1, 0) != 1)
        fail("start", strerror(errno));
    for (;;) {
        if (waitpid(pid, &status, __WALL) < 0)
            fail("start", strerror(errno));
        if (WIFEXITED(status) && WEXITSTATUS(status) == NO_FILTER)
            fail("seccomp", strerror(EPERM));
        if (!WIFSTOPPED(status))
            fail(program, WIFEXITED(status) ? strerror(WEXITSTATUS(status)) : "it was killed");
        if (status >> 16 == PTRACE_EVENT_EXEC)
            break;
        ptrace(PTRACE_CONT, pid, NULL, NULL);
    }
    pid_t known_as = pid;
    born_in(pid, &known_as);
    struct process *process = process_new(node, pid, known_as);
    process->first = true;
    descriptors_copy(NULL, process, false);
    return thread_new(process, pid, known_as);
}

/* Of count words, and behind them variables, each ended by a 0. */
static char **split(char *from, char *end, size_t count, char **rest)
{
    char **words = calloc(count + 1, sizeof *words);
    if (!words)
        abort();
    for (size_t i = 0; i < count && from < end; i++, from += strlen(from) + 1)
        words[i] = from;
    *rest = from;
    return words;
}

/* Pipes for standard output and error, the same for each start. Nothing is written there: these calls are answered. */
static bool open_outputs(struct node *node)
{
    int ends[2];
    for (int i = 0; i < 2 && !node->outputs[i]; i++) {
        if (pipe2(ends, O_CLOEXEC) != 0)
            return false;
        node->outputs[i] = ends[1]; /* the other end stays open as well */
    }
    return true;
}

struct thread *start(struct node *node, char *bytes, size_t size)
{
    int hello[2], one = 1;
    char *end = bytes + size, *trace = bytes + strlen(bytes) + 1, *private = trace + strlen(trace) + 1;
    char *shown = private + strlen(private) + 1, *rest = shown + strlen(shown) + 1;
    struct command command = {.node = node, .folder = bytes, .private = private, .shown = shown};
    size_t count = (size_t)strtoul(rest, NULL, 10), variables = 0;
    command.words = split(rest + strlen(rest) + 1, end, count, &rest);
    for (const char *at = rest; at < end; at += strlen(at) + 1)
        variables++;
    command.variables = split(rest, end, variables, &rest);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, hello) != 0 || !open_outputs(node))
        fail("start", strerror(errno));
    bool records = *trace && !node->recording; /* else it continues, as the machine does */
    if (records)
        recording_load(node);
    setsockopt(hello[0], SOL_SOCKET, SO_PASSCRED, &one, sizeof one);
    uid_t id = geteuid();
    gid_t group = getegid();
    bool user;
    pid_t init = fork_apart(&node->apart, &user);
    if (init < 0)
        fail("start", strerror(errno));
    if (init == 0)
        be_init(&command, hello[1], node->outputs, node->apart, user, id, group);
    close(hello[1]);
    char byte = 0;
    pid_t pid = hear(hello[0], &byte);
    node->init = init;
    if (!pid)
        fail("start", "the process ended");
    if (!(byte & NUMBERED))
        name_uncontrolled(node, "process numbers, without mounts in a namespace");
    else if (!(byte & PLACED))
        name_uncontrolled(node, "the path of the folder");
    else if (!(byte & TEMPORARY))
        name_uncontrolled(node, "files in /tmp");
    struct thread *thread = executing(node, pid, hello[0], command.words[0]);
    close(hello[0]);
    add_output(thread->process, 1);
    add_output(thread->process, 2);
    if (records)
        recording_begin(node, trace, command.folder, pid, node->outputs);
    start_executed(thread);
    free(command.words);
    free(command.variables);
    node->alive = true;
    return thread;
}
