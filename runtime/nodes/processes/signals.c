/* Calls that send signals, or wait for them. The kernel delivers signals; here it is seen to that calls that wait hear of them. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nodes/parts.h"

#define SIGNALS_MOST 64

static enum then kill_enter(struct thread *thread)
{
    bool grouped = thread->called.orig_rax == SYS_kill;
    thread->room[0] = argument(thread, thread->called.orig_rax == SYS_tgkill || thread->called.orig_rax == SYS_rt_tgsigqueueinfo ? 2 : 1);
    thread->room[1] = grouped;
    return AFTER;
}

static bool receives(const struct thread *sender, const struct process *process, pid_t to)
{
    if (to > 0)
        return process->known_as == to;
    if (to == -1)
        return process != sender->process;
    return getpgid(process->pid) == (to == 0 ? getpgid(sender->process->pid) : -1);
}

static enum then kill_leave(struct thread *thread)
{
    struct node *node = thread->process->node;
    if (thread->result != 0)
        return ANSWER;
    node->activity++;
    for (struct process *process = node->processes; process; process = process->next) {
        process->signalled = true;
        if (thread->room[0] == SIGKILL && process != thread->process && receives(thread, process, (pid_t)argument(thread, 0)))
            process->ending = true;
    }
    if (thread->room[0] == SIGKILL && thread->room[1] && (pid_t)argument(thread, 0) < -1)
        name_uncontrolled(node, "SIGKILL to a group of processes");
    return ANSWER;
}

/* Signals that wait for a thread. */
static uint64_t waiting_signals(const struct thread *thread)
{
    siginfo_t about[SIGNALS_MOST];
    uint64_t waiting = 0;
    for (uint32_t shared = 0; shared < 2; shared++) {
        struct __ptrace_peeksiginfo_args all = {.flags = shared ? PTRACE_PEEKSIGINFO_SHARED : 0, .nr = SIGNALS_MOST};
        long count = ptrace(PTRACE_PEEKSIGINFO, thread->tid, &all, about);
        for (long i = 0; i < count; i++)
            waiting |= 1ull << (about[i].si_signo - 1);
    }
    return waiting;
}

bool signal_waits(const struct thread *thread)
{
    uint64_t blocked = 0, wanted;
    ptrace(PTRACE_GETSIGMASK, thread->tid, sizeof blocked, &blocked);
    if (thread->called.orig_rax == SYS_rt_sigsuspend)
        memory_read(thread, argument(thread, 0), &blocked, sizeof blocked);
    if (thread->called.orig_rax == SYS_rt_sigtimedwait && memory_read(thread, argument(thread, 0), &wanted, sizeof wanted) == sizeof wanted)
        blocked &= ~wanted;
    return waiting_signals(thread) & ~blocked;
}

bool signal_caught(const struct thread *thread, int signal)
{
    char path[64], line[256];
    uint64_t caught = 0;
    snprintf(path, sizeof path, "/proc/%d/task/%d/status", thread->process->pid, thread->tid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status))
        if (strncmp(line, "SigCgt:", 7) == 0)
            caught = strtoull(line + 7, NULL, 16);
    if (status)
        fclose(status);
    return caught >> (signal - 1) & 1;
}

/* pause, rt_sigsuspend */
static enum then suspend_enter(struct thread *thread)
{
    return signal_waits(thread) ? NATIVE : hold(thread, false, LOOKS_AGAIN);
}

/* rt_sigtimedwait */
static enum then signal_wait_enter(struct thread *thread)
{
    uint64_t wanted, ns = FOREVER;
    if (memory_read(thread, argument(thread, 0), &wanted, sizeof wanted) != sizeof wanted ||
        (argument(thread, 2) && (!time_read(thread, argument(thread, 2), &ns) || ns == 0)) || signal_waits(thread))
        return NATIVE;
    return hold_until(thread, false, LOOKS_AGAIN, ns == FOREVER ? FOREVER : due_after(thread->process->node, ns), true, -EAGAIN);
}

const struct handler call_kill = {kill_enter, kill_leave, false};
const struct handler call_suspend = {suspend_enter, NULL, false};
const struct handler call_signal_wait = {signal_wait_enter, NULL, false};
