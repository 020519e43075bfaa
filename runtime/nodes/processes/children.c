/* Calls that make processes and threads, end them, or wait for them; and locks of files. */
#include <errno.h>
#include <linux/sched.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "nodes/parts.h"

#define NAMESPACES (CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET)

/* A child that asks not to be traced would be one without control. */
static enum then clone_enter(struct thread *thread)
{
    bool by_structure = thread->called.orig_rax == SYS_clone3;
    uint64_t flags = argument(thread, 0);
    if (by_structure && memory_read(thread, argument(thread, 0), &flags, sizeof flags) != sizeof flags)
        return NATIVE;
    if (flags & NAMESPACES)
        name_uncontrolled(thread->process->node, "clone with namespaces");
    if (!(flags & CLONE_UNTRACED))
        return NATIVE;
    flags &= ~(uint64_t)CLONE_UNTRACED;
    if (by_structure) {
        memory_write(thread, argument(thread, 0), &flags, sizeof flags);
    } else {
        thread->now.rdi = flags;
        thread->changed = true;
    }
    return NATIVE;
}

/* wait4: how much a child used differs from run to run. */
static enum then wait_enter(struct thread *thread)
{
    static const struct rusage none;
    if (argument(thread, 3))
        memory_write(thread, argument(thread, 3), &none, sizeof none);
    thread->now.rdx |= WNOHANG;
    thread->now.r10 = 0;
    thread->changed = true;
    return AFTER;
}

static enum then wait_leave(struct thread *thread)
{
    return thread->result == 0 && !(argument(thread, 2) & WNOHANG) ? hold(thread, true, RESTARTED) : ANSWER;
}

static enum then waitid_enter(struct thread *thread)
{
    static const struct rusage none;
    if (argument(thread, 4))
        memory_write(thread, argument(thread, 4), &none, sizeof none);
    if (!argument(thread, 2))
        thread->now.rdx = memory_scratch(thread, sizeof(siginfo_t));
    thread->now.r10 |= WNOHANG;
    thread->now.r8 = 0;
    thread->changed = true;
    return AFTER;
}

static enum then waitid_leave(struct thread *thread)
{
    uint64_t at = argument(thread, 2) ? argument(thread, 2) : memory_scratch(thread, sizeof(siginfo_t));
    int found = 0;
    if (thread->result != 0 || argument(thread, 3) & WNOHANG)
        return ANSWER;
    memory_read(thread, at, &found, sizeof found); /* si_signo */
    return found ? ANSWER : hold(thread, true, RESTARTED);
}

/* The first thread stays until the others have ended. */
static enum then exit_enter(struct thread *thread)
{
    struct process *process = thread->process;
    if (thread->tid == process->pid && process->threads->next)
        thread->state = ENDING;
    return NATIVE;
}

static enum then exit_group_enter(struct thread *thread)
{
    thread->process->ending = true;
    return NATIVE;
}

static enum then flock_enter(struct thread *thread)
{
    thread->now.rsi |= LOCK_NB;
    thread->changed = true;
    return AFTER;
}

static enum then flock_leave(struct thread *thread)
{
    return thread->result == -EAGAIN && !(argument(thread, 1) & LOCK_NB) ? hold(thread, true, RESTARTED) : ANSWER;
}

const struct handler call_clone = {clone_enter, NULL, false};
const struct handler call_wait = {wait_enter, wait_leave, false};
const struct handler call_waitid = {waitid_enter, waitid_leave, false};
const struct handler call_exit = {exit_enter, NULL, true};
const struct handler call_exit_group = {exit_group_enter, NULL, true};
const struct handler call_flock = {flock_enter, flock_leave, true};
