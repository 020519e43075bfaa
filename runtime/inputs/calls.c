/* What each system call means to the list, and the filter that stops a command at those that mean something. */
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inputs/inputs.h"

#define PLAIN(name) [SYS_##name] = {HARMLESS, 0, 0, NULL}
#define AT(name, what, folder, path) [SYS_##name] = {what, folder, path, NULL}
#define OF(name, what, path) [SYS_##name] = {what, NO_FOLDER, path, NULL}
#define SAID(name, what, words) [SYS_##name] = {what, 0, 0, words}

const struct call calls[CALLS] = {
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

bool install_filter(void)
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
