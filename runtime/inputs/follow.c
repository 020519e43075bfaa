/* What a command depends on, at each stop of it until its end: paths, the kernel, clocks, random numbers. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inputs/inputs.h"

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
void follow(void)
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
