/* What differs between machines and runs: random bytes, names, processors, sizes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>

#include "nodes/parts.h"

#define GIGABYTE (1ul << 30)
#define X32_BIT 30
#define RANDOM_MOST (1u << 20)

static enum then getrandom_enter(struct thread *thread)
{
    size_t size = argument(thread, 1) > RANDOM_MOST ? RANDOM_MOST : argument(thread, 1);
    unsigned char *bytes = malloc(size + 1);
    if (!bytes)
        abort();
    random_fill(thread->process->node, bytes, size);
    bool done = memory_write(thread, argument(thread, 0), bytes, size);
    free(bytes);
    return answer(thread, done ? (int64_t)size : -EFAULT);
}

static enum then uname_enter(struct thread *thread)
{
    (void)thread;
    return AFTER;
}

static enum then uname_leave(struct thread *thread)
{
    char name[sizeof((struct utsname *)0)->nodename] = {0};
    snprintf(name, sizeof name, "n%u", thread->process->node->index);
    if (thread->result == 0)
        memory_write(thread, argument(thread, 0) + offsetof(struct utsname, nodename), name, sizeof name);
    return ANSWER;
}

static enum then sysinfo_enter(struct thread *thread)
{
    struct sysinfo about = {.totalram = 8 * GIGABYTE, .freeram = 4 * GIGABYTE, .procs = 1, .mem_unit = 1};
    about.uptime = (long)(time_of(thread->process->node, CLOCK_BOOTTIME) / SECOND);
    return answer(thread, memory_write(thread, argument(thread, 0), &about, sizeof about) ? 0 : -EFAULT);
}

static enum then getcpu_enter(struct thread *thread)
{
    const uint32_t first = 0;
    for (int i = 0; i < 2; i++)
        if (argument(thread, i) && !memory_write(thread, argument(thread, i), &first, sizeof first))
            return answer(thread, -EFAULT);
    return answer(thread, 0);
}

/* sched_getaffinity: the first processor */
static enum then affinity_enter(struct thread *thread)
{
    const uint64_t first = 1;
    if (argument(thread, 1) < sizeof first)
        return answer(thread, -EINVAL);
    return answer(thread, memory_write(thread, argument(thread, 2), &first, sizeof first) ? (int64_t)sizeof first : -EFAULT);
}

static enum then usage_enter(struct thread *thread)
{
    static const struct rusage none;
    return answer(thread, memory_write(thread, argument(thread, 1), &none, sizeof none) ? 0 : -EFAULT);
}

static enum then refused_enter(struct thread *thread)
{
    switch (thread->called.orig_rax) {
    case SYS_clock_settime:
    case SYS_settimeofday:
    case SYS_adjtimex:
    case SYS_clock_adjtime:
        return answer(thread, -EPERM);
    default:
        return answer(thread, -ENOSYS);
    }
}

static enum then nothing_enter(struct thread *thread)
{
    return answer(thread, 0);
}

static enum then yield_enter(struct thread *thread)
{
    thread->yields = true;
    return hold(thread, false, RESTARTED);
}

/* Controls of network devices would show the machine. */
static enum then ioctl_enter(struct thread *thread)
{
    return (uint32_t)argument(thread, 1) >> 8 == 0x89 ? interfaces_ioctl(thread) : NATIVE;
}

static const char *call_name(uint64_t number)
{
    static const struct {
        uint64_t number;
        const char *name;
    } named[] = {
        {SYS_ptrace, "ptrace"}, {SYS_mount, "mount"},
        {SYS_unshare, "unshare"}, {SYS_setns, "setns"}, {SYS_chroot, "chroot"}, {SYS_shmget, "shmget"}, {SYS_shmat, "shmat"},
        {SYS_shmdt, "shmdt"}, {SYS_shmctl, "shmctl"}, {SYS_semget, "semget"}, {SYS_semop, "semop"}, {SYS_semctl, "semctl"},
        {SYS_semtimedop, "semtimedop"}, {SYS_msgctl, "msgctl"}, {SYS_msgget, "msgget"}, {SYS_msgsnd, "msgsnd"}, {SYS_msgrcv, "msgrcv"},
        {SYS_mq_open, "mq_open"}, {SYS_tee, "tee"}, {SYS_vmsplice, "vmsplice"}, {SYS_process_vm_readv, "process_vm_readv"},
        {SYS_process_vm_writev, "process_vm_writev"}, {SYS_pidfd_open, "pidfd_open"}, {SYS_pidfd_getfd, "pidfd_getfd"},
        {SYS_pidfd_send_signal, "pidfd_send_signal"}, {SYS_bpf, "bpf"},
        {SYS_userfaultfd, "userfaultfd"}, {SYS_open_by_handle_at, "open_by_handle_at"}, {SYS_name_to_handle_at, "name_to_handle_at"},
    };
    for (size_t i = 0; i < sizeof named / sizeof *named; i++)
        if (named[i].number == number)
            return named[i].name;
    return NULL;
}

static enum then unknown_enter(struct thread *thread)
{
    char text[64];
    const char *name = call_name(thread->called.orig_rax);
    if (thread->called.orig_rax >> X32_BIT == 1)
        snprintf(text, sizeof text, "x32 system calls");
    else if (name)
        snprintf(text, sizeof text, "%s", name);
    else
        snprintf(text, sizeof text, "system call %llu", thread->called.orig_rax);
    name_uncontrolled(thread->process->node, text);
    return NATIVE;
}

static enum then segments_enter(struct thread *thread)
{
    return thread->process->node->apart ? AFTER : unknown_enter(thread);
}

/* shmget, shmat, shmdt, shmctl: the kernel's, in the node's own namespace. The times are ours. */
static enum then segments_leave(struct thread *thread)
{
    struct shmid_ds state;
    uint64_t at = argument(thread, 2), what = argument(thread, 1);
    bool shows = what == IPC_STAT || what == SHM_STAT || what == SHM_STAT_ANY;
    if (thread->called.orig_rax != SYS_shmctl || !shows || thread->result < 0 ||
        memory_read(thread, at, &state, sizeof state) != sizeof state)
        return ANSWER;
    time_t now = (time_t)(time_base(CLOCK_REALTIME) / SECOND);
    state.shm_ctime = now;
    state.shm_atime = state.shm_atime ? now : 0;
    state.shm_dtime = state.shm_dtime ? now : 0;
    memory_write(thread, at, &state, sizeof state);
    return ANSWER;
}

const struct handler call_segments = {segments_enter, segments_leave, false};
const struct handler call_getrandom = {getrandom_enter, NULL, false};
const struct handler call_uname = {uname_enter, uname_leave, false};
const struct handler call_sysinfo = {sysinfo_enter, NULL, false};
const struct handler call_getcpu = {getcpu_enter, NULL, false};
const struct handler call_affinity = {affinity_enter, NULL, false};
const struct handler call_usage = {usage_enter, NULL, false};
const struct handler call_refused = {refused_enter, NULL, false};
const struct handler call_nothing = {nothing_enter, NULL, false};
const struct handler call_yield = {yield_enter, NULL, false};
const struct handler call_ioctl = {ioctl_enter, NULL, false};
const struct handler call_unknown = {unknown_enter, NULL, true};
