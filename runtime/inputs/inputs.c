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
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/openat2.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS                                                                                                        \
    (PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |     \
     PTRACE_O_EXITKILL)
#define LIST_BYTES (1u << 18)
#define FOREIGN 1 /* of a stop: a call of another kind of program */
#define NO_FOLDER (-1)
#define CALLS 512
#define MOST_WORDS 65536
#define MOST_BYTES (8u << 20)
#define PATH_ROOM (PATH_MAX + NAME_MAX)

struct list {
    uint32_t used;    /* bytes of records */
    uint32_t follows; /* 1: all that the command does is listed */
    int32_t error;    /* why the program cannot be executed; 0: it was */
    char records[LIST_BYTES - 12];
};

enum does { REFUSED, HARMLESS, OPENS, LOOKS, LOOKS_AT_ITSELF, CHANGES, ASKS, READS_CLOCK, RANDOM, OTHERS };

struct call {
    enum does does;
    signed char folder, path; /* which arguments; NO_FOLDER: the current one */
    const char *name;
};

#define PLAIN(name) [SYS_##name] = {HARMLESS, 0, 0, NULL}
#define AT(name, what, folder, path) [SYS_##name] = {what, folder, path, NULL}
#define OF(name, what, path) [SYS_##name] = {what, NO_FOLDER, path, NULL}
#define SAID(name, what, words) [SYS_##name] = {what, 0, 0, words}

static const struct call calls[CALLS] = {
    PLAIN(read), PLAIN(write), PLAIN(close), PLAIN(fstat), PLAIN(lseek), PLAIN(mmap), PLAIN(mprotect), PLAIN(munmap),
    PLAIN(brk), PLAIN(rt_sigaction), PLAIN(rt_sigprocmask), PLAIN(rt_sigreturn), PLAIN(ioctl), PLAIN(pread64),
    PLAIN(pwrite64), PLAIN(readv), PLAIN(writev), PLAIN(preadv), PLAIN(pwritev), PLAIN(preadv2), PLAIN(pwritev2),
    PLAIN(pipe), PLAIN(pipe2), PLAIN(select), PLAIN(pselect6), PLAIN(poll), PLAIN(ppoll), PLAIN(sched_yield),
    PLAIN(mremap), PLAIN(msync), PLAIN(mincore), PLAIN(madvise), PLAIN(dup), PLAIN(dup2), PLAIN(dup3), PLAIN(pause),
    PLAIN(nanosleep), PLAIN(clock_nanosleep), PLAIN(clock_getres), PLAIN(getpid), PLAIN(gettid), PLAIN(getppid),
    PLAIN(clone), PLAIN(clone3), PLAIN(fork), PLAIN(vfork), PLAIN(exit), PLAIN(exit_group), PLAIN(wait4), PLAIN(waitid),
    PLAIN(kill), PLAIN(tkill), PLAIN(tgkill), PLAIN(fcntl), PLAIN(flock), PLAIN(fsync), PLAIN(fdatasync), PLAIN(syncfs),
    PLAIN(sync), PLAIN(sync_file_range), PLAIN(ftruncate), PLAIN(fallocate), PLAIN(fadvise64), PLAIN(readahead),
    PLAIN(getdents), PLAIN(getdents64), PLAIN(getcwd), PLAIN(fchdir), PLAIN(fchmod), PLAIN(fchown), PLAIN(umask),
    PLAIN(getrlimit), PLAIN(setrlimit), PLAIN(prlimit64), PLAIN(getuid), PLAIN(geteuid), PLAIN(getgid), PLAIN(getegid),
    PLAIN(getresuid), PLAIN(getresgid), PLAIN(getgroups), PLAIN(getpgid), PLAIN(getpgrp), PLAIN(getsid), PLAIN(setpgid),
    PLAIN(setsid), PLAIN(arch_prctl), PLAIN(prctl), PLAIN(futex), PLAIN(set_tid_address), PLAIN(set_robust_list),
    PLAIN(rseq), PLAIN(membarrier), PLAIN(getcpu), PLAIN(sigaltstack), PLAIN(personality), PLAIN(fstatfs),
    PLAIN(epoll_create), PLAIN(epoll_create1), PLAIN(epoll_ctl), PLAIN(epoll_wait), PLAIN(epoll_pwait), PLAIN(eventfd),
    PLAIN(eventfd2), PLAIN(copy_file_range), PLAIN(sendfile), PLAIN(splice), PLAIN(tee), PLAIN(sched_setaffinity),
    PLAIN(sched_getparam), PLAIN(sched_getscheduler), PLAIN(sched_get_priority_max), PLAIN(sched_get_priority_min),
    PLAIN(getpriority), PLAIN(setpriority), PLAIN(memfd_create), PLAIN(mlock), PLAIN(mlock2), PLAIN(munlock),
    PLAIN(mlockall), PLAIN(munlockall), PLAIN(close_range), PLAIN(rt_sigpending), PLAIN(rt_sigsuspend),
    PLAIN(rt_sigtimedwait), PLAIN(restart_syscall), PLAIN(seccomp), PLAIN(socketpair), PLAIN(sendto), PLAIN(recvfrom),
    PLAIN(sendmsg), PLAIN(recvmsg), PLAIN(shutdown),
    OF(open, OPENS, 0), AT(openat, OPENS, 0, 1), AT(openat2, OPENS, 0, 1), OF(execve, OPENS, 0), AT(execveat, OPENS, 0, 1),
    OF(stat, LOOKS, 0), OF(access, LOOKS, 0), OF(chdir, LOOKS, 0), OF(statfs, LOOKS, 0), AT(newfstatat, LOOKS, 0, 1),
    AT(faccessat, LOOKS, 0, 1), AT(faccessat2, LOOKS, 0, 1), AT(statx, LOOKS, 0, 1),
    OF(lstat, LOOKS_AT_ITSELF, 0), OF(readlink, LOOKS_AT_ITSELF, 0), AT(readlinkat, LOOKS_AT_ITSELF, 0, 1),
    OF(creat, CHANGES, 0), OF(truncate, CHANGES, 0), OF(unlink, CHANGES, 0), AT(unlinkat, CHANGES, 0, 1),
    OF(rmdir, CHANGES, 0), OF(mkdir, CHANGES, 0), AT(mkdirat, CHANGES, 0, 1), OF(chmod, CHANGES, 0),
    AT(fchmodat, CHANGES, 0, 1), OF(utime, CHANGES, 0), OF(utimes, CHANGES, 0), AT(utimensat, CHANGES, 0, 1),
    OF(rename, CHANGES, 0), AT(renameat, CHANGES, 0, 1), AT(renameat2, CHANGES, 0, 1), OF(link, CHANGES, 0),
    AT(linkat, CHANGES, 0, 1), OF(symlink, CHANGES, 1), AT(symlinkat, CHANGES, 1, 2),
    SAID(uname, ASKS, "uname"), SAID(sched_getaffinity, ASKS, "processors"),
    SAID(clock_gettime, READS_CLOCK, ""), SAID(gettimeofday, READS_CLOCK, ""), SAID(time, READS_CLOCK, ""),
    SAID(times, READS_CLOCK, ""), SAID(getrusage, READS_CLOCK, ""), SAID(getrandom, RANDOM, ""),
    SAID(socket, OTHERS, "it uses the network or another process's socket"),
    SAID(alarm, OTHERS, "it sets a timer"), SAID(setitimer, OTHERS, "it sets a timer"),
    SAID(timer_create, OTHERS, "it sets a timer"), SAID(timerfd_create, OTHERS, "it sets a timer"),
};

static struct list *list;
static const char *folder; /* what is in it is not listed */
static size_t folder_bytes;

static void note(char letter, const char *text)
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

static bool is_inside(const char *path)
{
    bool below = strncmp(path, folder, folder_bytes) == 0 && (path[folder_bytes] == '/' || !path[folder_bytes]);
    return below && !strstr(path, "/..");
}

static bool read_memory(pid_t tid, uint64_t at, void *to, size_t size)
{
    struct iovec here = {to, size}, there = {(void *)(uintptr_t)at, size};
    return process_vm_readv(tid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

static bool read_text(pid_t tid, uint64_t at, char *to)
{
    for (size_t done = 0; done < PATH_MAX;) {
        size_t part = 256 - (at + done) % 256; /* no further than the page that it ends in */
        part = part > PATH_MAX - done ? PATH_MAX - done : part;
        if (!read_memory(tid, at + done, to + done, part))
            return false;
        if (memchr(to + done, 0, part))
            return true;
        done += part;
    }
    return false;
}

/* The absolute path that an argument names, as the command has it; false: none that could be read. */
static bool named(pid_t tid, int base, uint64_t at, char *to)
{
    char text[PATH_MAX], link[64];
    if (!at || !read_text(tid, at, text) || !text[0])
        return false;
    if (text[0] == '/') {
        strcpy(to, text);
        return true;
    }
    if (base == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/%d/cwd", tid);
    else
        snprintf(link, sizeof link, "/proc/%d/fd/%d", tid, base);
    ssize_t length = readlink(link, to, PATH_MAX);
    if (length < 0 || (size_t)length + strlen(text) + 2 > PATH_ROOM)
        return false;
    snprintf(to + length, PATH_ROOM - (size_t)length, "/%s", text);
    return true;
}

static uint64_t argument(const struct user_regs_struct *now, int which)
{
    const uint64_t all[] = {now->rdi, now->rsi, now->rdx, now->r10, now->r8, now->r9};
    return all[which];
}

/* Whether an open may change a file. */
static bool writes(pid_t tid, const struct user_regs_struct *now)
{
    struct open_how how = {0};
    switch (now->orig_rax) {
    case SYS_open: how.flags = now->rsi; break;
    case SYS_openat: how.flags = now->rdx; break;
    case SYS_openat2:
        if (!read_memory(tid, now->rdx, &how, sizeof how))
            return true;
        break;
    default: return false;
    }
    return (how.flags & O_ACCMODE) != O_RDONLY || (how.flags & (O_CREAT | O_TRUNC));
}

static void note_change(const char *path)
{
    char why[PATH_ROOM + 32];
    if (strcmp(path, "/dev/null") == 0)
        return;
    snprintf(why, sizeof why, "it may change %s", path);
    note('x', why);
}

static void note_path(pid_t tid, const struct call *call, const struct user_regs_struct *now)
{
    char path[PATH_ROOM];
    int base = call->folder == NO_FOLDER ? AT_FDCWD : (int)argument(now, call->folder);
    if (!named(tid, base, argument(now, call->path), path))
        return; /* the call fails, or is one on a descriptor */
    if (is_inside(path))
        return;
    bool itself = (now->orig_rax == SYS_newfstatat && now->r10 & AT_SYMLINK_NOFOLLOW) ||
                  (now->orig_rax == SYS_statx && now->rdx & AT_SYMLINK_NOFOLLOW);
    if (call->does == CHANGES || (call->does == OPENS && writes(tid, now)))
        note_change(path);
    else
        note(call->does == OPENS ? 'o' : call->does == LOOKS_AT_ITSELF || itself ? 'l' : 's', path);
}

/* Renames and links have a second path. */
static void note_second(pid_t tid, const struct user_regs_struct *now)
{
    char path[PATH_ROOM];
    int base = AT_FDCWD, which;
    switch (now->orig_rax) {
    case SYS_rename: case SYS_link: which = 1; break;
    case SYS_renameat: case SYS_renameat2: case SYS_linkat: base = (int)now->rdx, which = 3; break;
    default: return;
    }
    if (named(tid, base, argument(now, which), path) && !is_inside(path))
        note_change(path);
}

/* Whether an address is in the data of the C library, of which the end has no file behind it. */
static bool is_in_libc(pid_t tid, uint64_t at)
{
    char path[64], line[PATH_ROOM + 128];
    bool found = false, is_libc = false;
    unsigned long low, high, last = 0;
    snprintf(path, sizeof path, "/proc/%d/maps", tid);
    FILE *maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof line, maps) && sscanf(line, "%lx-%lx", &low, &high) == 2) {
        is_libc = strchr(line, '/') ? strstr(line, "/libc.so.") || strstr(line, "/libc-") : is_libc && low == last;
        found = is_libc && low <= at && at < high;
        last = high;
    }
    if (maps)
        fclose(maps);
    return found;
}

/* libc asks for 8 bytes when memory is first allocated, as a key that no program sees. */
static void note_random(pid_t tid, const struct user_regs_struct *now)
{
    if (now->rsi != 8 || !is_in_libc(tid, now->rdi))
        note('x', "it reads random numbers");
}

static void asked(pid_t tid)
{
    struct user_regs_struct now;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &now) != 0)
        return; /* it has been killed */
    static const struct call refused = {REFUSED, 0, 0, NULL};
    const struct call *call = now.orig_rax < CALLS ? &calls[now.orig_rax] : &refused;
    char why[64];
    switch (call->does) {
    case HARMLESS: break;
    case OPENS: case LOOKS: case LOOKS_AT_ITSELF: case CHANGES:
        note_path(tid, call, &now);
        note_second(tid, &now);
        break;
    case ASKS: note('c', call->name); break;
    case READS_CLOCK: note('x', "it reads a clock"); break;
    case RANDOM: note_random(tid, &now); break;
    case OTHERS: note('x', call->name); break;
    case REFUSED:
        snprintf(why, sizeof why, "it makes the system call %d", (int)now.orig_rax);
        note('x', why);
        break;
    }
}

/* The vector of values that the kernel gives to a new program names the page of clocks: not any more. */
static void hide_clocks(pid_t tid, uint64_t stack)
{
    uint64_t words[64], ends = 0, which = 0, type_at = 0;
    for (uint64_t at = stack + 8; which < 1u << 20; at += 8, which++) {
        if (which % 64 == 0 && !read_memory(tid, at, words, sizeof words)) /* the stack ends in between */
            for (size_t i = 0; i < 64; i++)
                if (!read_memory(tid, at + 8 * i, &words[i], 8))
                    words[i] = AT_NULL;
        uint64_t word = words[which % 64];
        if (ends < 2) {
            ends += word == 0; /* of the words, then of the environment */
            type_at = at + 8;
        } else if ((at - type_at) % 16 == 0) {
            if (word == AT_NULL)
                return;
            if (word == AT_SYSINFO_EHDR)
                ptrace(PTRACE_POKEDATA, tid, (void *)(uintptr_t)at, (void *)(uintptr_t)AT_IGNORE);
        }
    }
}

static void executed(pid_t tid)
{
    struct user_regs_struct now;
    char path[64], line[PATH_ROOM + 128], last[PATH_ROOM + 128] = "";
    struct stat state;
    if (ptrace(PTRACE_GETREGS, tid, NULL, &now) == 0)
        hide_clocks(tid, now.rsp);
    snprintf(path, sizeof path, "/proc/%d/exe", tid);
    if (stat(path, &state) == 0 && state.st_mode & (S_ISUID | S_ISGID))
        note('x', "it runs a program with rights of its own");
    snprintf(path, sizeof path, "/proc/%d/maps", tid);
    FILE *maps = fopen(path, "re");
    if (!maps)
        list->follows = 0;
    while (maps && fgets(line, sizeof line, maps)) { /* the program and its loader, which the kernel has opened */
        char *name = strchr(line, '/');
        if (!name)
            continue;
        name[strcspn(name, "\n")] = '\0';
        if (strcmp(name, last) != 0 && !is_inside(name))
            note('o', strcpy(last, name));
    }
    if (maps)
        fclose(maps);
}

static bool is_in_loader(pid_t tid, uint64_t at)
{
    char path[64], line[PATH_ROOM + 128];
    bool found = false;
    snprintf(path, sizeof path, "/proc/%d/maps", tid);
    FILE *maps = fopen(path, "re");
    while (maps && !found && fgets(line, sizeof line, maps)) {
        unsigned long low, high;
        found = sscanf(line, "%lx-%lx", &low, &high) == 2 && low <= at && at < high && strstr(line, "/ld-");
    }
    if (maps)
        fclose(maps);
    return found;
}

/* Whether a fault is due to reading the processor's counter: that is done for the command, then. Its loader does so and
 * keeps the result to itself. */
static bool counted(pid_t tid)
{
    siginfo_t info;
    struct user_regs_struct now;
    unsigned char code[3] = {0};
    if (ptrace(PTRACE_GETSIGINFO, tid, NULL, &info) != 0 || info.si_code != SI_KERNEL ||
        ptrace(PTRACE_GETREGS, tid, NULL, &now) != 0 || !read_memory(tid, now.rip, code, sizeof code))
        return false;
    bool plain = code[0] == 0x0f && code[1] == 0x31, with_processor = code[0] == 0x0f && code[1] == 0x01 && code[2] == 0xf9;
    if (!plain && !with_processor)
        return false;
    if (!is_in_loader(tid, now.rip))
        note('x', "it reads a clock");
    uint64_t counter = __builtin_ia32_rdtsc();
    now.rax = (uint32_t)counter;
    now.rdx = counter >> 32;
    now.rcx = with_processor ? 0 : now.rcx;
    now.rip += plain ? 2 : 3;
    return ptrace(PTRACE_SETREGS, tid, NULL, &now) == 0;
}

static void stopped(pid_t tid, int status)
{
    int number = WSTOPSIG(status), event = status >> 16;
    unsigned long data = 0;
    if (event == PTRACE_EVENT_STOP && number != SIGTRAP) {
        ptrace(PTRACE_LISTEN, tid, NULL, NULL); /* stopped by a signal, as without us */
        return;
    }
    if (event == PTRACE_EVENT_SECCOMP) {
        ptrace(PTRACE_GETEVENTMSG, tid, NULL, &data);
        if (data == FOREIGN)
            note('x', "it makes calls of 32-bit programs");
        else
            asked(tid);
    } else if (event == PTRACE_EVENT_EXEC) {
        executed(tid);
    } else if (!event && number == SIGSEGV && counted(tid)) {
        number = 0;
    }
    ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)(event ? 0 : number));
}

/* Until the command and all that it started have ended; our parent ends those that it left behind. */
static void follow(void)
{
    int status;
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno != EINTR)
            return;
        if (tid > 0 && WIFSTOPPED(status))
            stopped(tid, status);
    }
}

static bool install_filter(void)
{
    static struct sock_filter program[CALLS + 16];
    unsigned short length = 0;
#define ADD(...) program[length++] = (struct sock_filter)__VA_ARGS__
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)));
    ADD(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0));
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE | FOREIGN));
    ADD(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
    for (unsigned call = 0; call < CALLS; call++) {
        if (calls[call].does != HARMLESS)
            continue;
        unsigned last = call;
        while (last + 1 < CALLS && calls[last + 1].does == HARMLESS)
            last++;
        ADD(BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, call, 0, 2));
        ADD(BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, last, 1, 0));
        ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
        call = last;
    }
    ADD(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRACE));
    struct sock_fprog whole = {length, program};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole) == 0)
        return true;
    /* without privileges only for programs that can gain none */
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole) == 0;
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
