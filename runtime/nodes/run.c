/* Runs the threads, one at a time and in the order in which they became ready, from stop to stop, until all wait. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>

#include "nodes/control.h"

#define STOPPED_IN_CALL (SIGTRAP | 0x80)
#define UNREST_SECONDS 10
#define EARLY_MOST 64

static volatile sig_atomic_t unrest;
static pid_t early[EARLY_MOST]; /* children that stopped before their parents' stop was seen */

static void on_alarm(int signal)
{
    (void)signal;
    unrest = 1;
}

static _Noreturn void no_rest(const struct thread *thread)
{
    wire_event((struct cc_frame){.tag = CC_UNREST, .node = thread->process->node->index}, NULL, NULL, 0);
    wire_event((struct cc_frame){.tag = CC_REST}, NULL, NULL, 0);
    wire_flush();
    exit(1);
}

/* What /proc shows of a thread that was born: its process, and its number in the namespace. */
static pid_t born_in(pid_t tid, pid_t *known_as)
{
    char path[64], line[256];
    pid_t process = tid;
    snprintf(path, sizeof path, "/proc/%d/status", tid);
    FILE *status = fopen(path, "re");
    while (status && fgets(line, sizeof line, status)) {
        const char *last = strrchr(line, '\t');
        if (strncmp(line, "Tgid:", 5) == 0)
            process = (pid_t)strtol(line + 5, NULL, 10);
        else if (strncmp(line, "NSpid:", 6) == 0 && last)
            *known_as = (pid_t)strtol(last, NULL, 10);
    }
    if (status)
        fclose(status);
    return process;
}

static void process_ended(struct process *process, int status)
{
    struct node *node = process->node;
    alarms_end(process);
    descriptors_end(process);
    for (struct process *other = node->processes; other; other = other->next)
        other->signalled = true; /* its parent's SIGCHLD */
    if (process->first) {
        node->alive = false;
        wire_event((struct cc_frame){.tag = CC_ENDED, .node = node->index, .number = (uint32_t)status}, NULL, NULL, 0);
    }
}

static void vfork_done(struct thread *child)
{
    int status;
    struct thread *parent = child->vfork_parent;
    child->vfork_parent = NULL;
    if (!parent || (parent->state == IN_VFORK && (waitpid(parent->tid, &status, __WALL) != parent->tid || !WIFSTOPPED(status))))
        return;
    ready(parent);
}

static void thread_ended(struct thread *thread, int status)
{
    struct process *process = thread->process;
    process->node->activity++;
    hold_over(thread);
    vfork_done(thread);
    if (WIFSIGNALED(status))
        process->ending = true;
    bool last = process->threads == thread && !thread->next;
    if (last)
        process_ended(process, status);
    thread_forget(thread);
    if (!last)
        futexes_look(process);
}

/* Something happened to a thread that does not run. */
static void other(pid_t tid, int status)
{
    struct thread *thread = thread_of(tid);
    if (thread && !WIFSTOPPED(status)) {
        thread_ended(thread, status);
        return;
    }
    if (thread && thread->state == IN_VFORK)
        thread->state = VFORK_OVER;
    for (size_t i = 0; !thread && WIFSTOPPED(status) && i < EARLY_MOST; i++)
        if (!early[i]) {
            early[i] = tid;
            return;
        }
}

/* Waits for the thread; what happens to others meanwhile is their end. False: it has ended. */
static bool await(struct thread *thread, int *status)
{
    for (;;) {
        pid_t tid = waitpid(-1, status, __WALL);
        if (tid < 0 && errno == EINTR && !unrest)
            continue;
        if (tid < 0)
            no_rest(thread);
        if (WIFSTOPPED(*status) && *status >> 16 == PTRACE_EVENT_EXEC && tid == thread->process->pid && tid != thread->tid) {
            struct thread *first = thread_of(tid); /* another thread's program is replaced: it is the first now */
            if (first)
                thread_forget(first);
            thread->tid = tid;
        }
        if (tid != thread->tid) {
            other(tid, *status);
            continue;
        }
        if (WIFSTOPPED(*status))
            return true;
        thread_ended(thread, *status);
        return false;
    }
}

/* Waits until a process has ended as a whole. */
static void settle(struct process *process)
{
    int status;
    pid_t pid = process->pid;
    while ((process = process_of(pid))) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == EINTR && !unrest)
            continue;
        if (tid < 0)
            no_rest(process->threads);
        other(tid, status);
    }
}

static void settle_all(struct node *node)
{
    for (struct process *process = node->processes; process; process = process->next)
        if (process->ending) {
            descriptors_end(process);
            settle(process);
            settle_all(node);
            return;
        }
}

static void go_on(struct thread *thread)
{
    if (thread->changed)
        ptrace(PTRACE_SETREGS, thread->tid, NULL, &thread->now);
    thread->changed = false;
    int signal = thread->signal;
    thread->signal = 0;
    ptrace(thread->in_call ? PTRACE_SYSCALL : PTRACE_CONT, thread->tid, NULL, (void *)(intptr_t)signal);
}

static void enter(struct thread *thread)
{
    if (ptrace(PTRACE_GETREGS, thread->tid, NULL, &thread->called) != 0)
        return; /* it has been killed */
    calls_answered++;
    thread->now = thread->called;
    thread->changed = false;
    thread->handler = handler_of(thread->called.orig_rax);
    if (!thread->handler)
        return;
    enum then then = thread->handler->enter(thread);
    thread->in_call = then == AFTER || then == HOLD || (then == NATIVE && thread->changed);
    thread->holding = then == HOLD;
    if (then == HOLD || then == ANSWER) {
        thread->now = thread->called;
        thread->now.orig_rax = UINT64_MAX;
        thread->now.rax = then == ANSWER ? (uint64_t)thread->result : 0;
        thread->changed = true;
    } else if (thread->handler->acts) {
        thread->process->node->activity++;
    }
    if (then == ANSWER || then == NATIVE)
        hold_over(thread);
}

/* After a call. Whether it waits. */
static bool leave(struct thread *thread)
{
    struct user_regs_struct after;
    thread->in_call = false;
    if (ptrace(PTRACE_GETREGS, thread->tid, NULL, &after) != 0)
        return false;
    enum then then = ANSWER;
    thread->result = (int64_t)after.rax;
    if (!thread->holding && thread->handler->leave)
        then = thread->handler->leave(thread);
    bool holds = thread->holding || then == HOLD;
    thread->holding = false;
    thread->now = thread->called;
    thread->now.rax = (uint64_t)thread->result;
    thread->changed = true;
    if (!holds) {
        hold_over(thread);
        return false;
    }
    thread->seen = thread->process->node->activity;
    thread->state = HELD;
    if (thread->yields)
        hold_ends(thread, 0);
    return true;
}

/* Reading the processor's time stamp is a fault here. */
static bool read_stamp(struct thread *thread)
{
    unsigned char code[3] = {0};
    struct user_regs_struct now;
    struct node *node = thread->process->node;
    if (ptrace(PTRACE_GETREGS, thread->tid, NULL, &now) != 0 || memory_read(thread, now.rip, code, sizeof code) < 2 || code[0] != 0x0f)
        return false;
    bool with_processor = code[1] == 0x01 && code[2] == 0xf9; /* rdtscp */
    if (code[1] != 0x31 && !with_processor)
        return false;
    uint64_t stamp = time_of(node, CLOCK_MONOTONIC) + node->ticks++;
    clock_read(node);
    now.rax = stamp & UINT32_MAX;
    now.rdx = stamp >> 32;
    if (with_processor)
        now.rcx = 0;
    now.rip += with_processor ? 3 : 2;
    thread->now = now;
    thread->changed = true;
    return true;
}

static void born(struct thread *parent, int event)
{
    unsigned long number = 0;
    int status;
    ptrace(PTRACE_GETEVENTMSG, parent->tid, NULL, &number);
    pid_t child = (pid_t)number, known_as = child;
    bool stopped = false;
    for (size_t i = 0; i < EARLY_MOST; i++)
        if (early[i] == child) {
            early[i] = 0;
            stopped = true;
        }
    if (!stopped && waitpid(child, &status, __WALL) != child)
        return;
    pid_t pid = born_in(child, &known_as);
    struct process *process = parent->process;
    if (pid != process->pid) {
        process = process_new(parent->process->node, pid, known_as);
        descriptors_copy(parent->process, process, false);
    }
    struct thread *thread = thread_new(process, child, known_as);
    if (event == PTRACE_EVENT_VFORK) {
        thread->vfork_parent = parent;
        parent->state = IN_VFORK;
    }
    ready(thread);
}

static void deliver(struct thread *thread, int signal)
{
    if (signal == SIGSEGV && read_stamp(thread))
        return;
    thread->signal = signal;
    if (signal_caught(thread, signal))
        hold_over(thread); /* the call that it interrupts; else the kernel makes that once more */
}

/* The first thread of a process ends before others: nothing is reported until they have. */
static void wait_for_zombie(const struct thread *thread)
{
    char path[64], line[256] = {0};
    snprintf(path, sizeof path, "/proc/%d/task/%d/stat", thread->process->pid, thread->tid);
    for (bool ended = false; !ended && !unrest; sched_yield()) {
        FILE *stat = fopen(path, "re");
        const char *name = stat && fgets(line, sizeof line, stat) ? strrchr(line, ')') : NULL;
        ended = !name || name[2] == 'Z';
        if (stat)
            fclose(stat);
    }
}

/* A thread's stop. Whether it continues. */
static bool stopped(struct thread *thread, int status)
{
    int signal = WSTOPSIG(status), event = status >> 16;
    switch (event) {
    case PTRACE_EVENT_SECCOMP:
        enter(thread);
        return true;
    case PTRACE_EVENT_CLONE:
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
        born(thread, event);
        return true;
    case PTRACE_EVENT_EXEC:
        thread->in_call = false;
        hold_over(thread);
        alarms_end(thread->process);
        vfork_done(thread);
        executed(thread);
        return true;
    case 0:
        break;
    default:
        if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
            name_uncontrolled(thread->process->node, "a signal that stops the process");
        return true;
    }
    if (signal == STOPPED_IN_CALL)
        return !leave(thread);
    deliver(thread, signal);
    return true;
}

static void run_thread(struct thread *thread)
{
    int status;
    struct process *process = thread->process;
    struct node *node = process->node;
    thread->state = RUNNING;
    for (;;) {
        go_on(thread);
        if (thread->state == IN_VFORK)
            return;
        if (thread->state == ENDING) {
            wait_for_zombie(thread);
            futexes_look(process);
            return;
        }
        if (!await(thread, &status)) {
            settle_all(node);
            return;
        }
        if (!stopped(thread, status))
            return;
        if (thread->process->ending)
            continue; /* its own end is yet to come */
        settle_all(node);
    }
}

/* Makes a thread ready for which something may have changed since it began to wait. False: there is none. */
static bool stir(void)
{
    for (struct object *object = object_next(NULL); object; object = object_next(object))
        if (object->kind == STREAM && object->left_size && object->ours >= 0 && stream_refill(object))
            object->node->activity++;
    for (size_t i = 0; i < NODES; i++)
        for (struct process *process = nodes[i].processes; process; process = process->next) {
            bool signalled = process->signalled;
            for (struct thread *thread = process->threads; thread; thread = thread->next) {
                if (thread->state != HELD)
                    continue;
                bool hears = signalled && signal_waits(thread);
                if (hears && thread->restart != LOOKS_AGAIN)
                    hold_interrupt(thread);
                else if (hears || (thread->retried && thread->seen != nodes[i].activity))
                    hold_retry(thread);
                else
                    continue;
                return true; /* one that takes a signal takes it from the others */
            }
            process->signalled = false;
        }
    return false;
}

void run(void)
{
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval limit = {{0, 0}, {UNREST_SECONDS, 0}}, none = {{0, 0}, {0, 0}};
    struct thread *thread;
    unrest = 0;
    sigaction(SIGALRM, &action, NULL);
    setitimer(ITIMER_REAL, &limit, NULL);
    do
        while ((thread = next_ready()))
            run_thread(thread);
    while (stir());
    setitimer(ITIMER_REAL, &none, NULL);
}

void run_end(struct node *node)
{
    int status;
    for (struct process *process = node->processes; process; process = process->next) {
        alarms_end(process);
        descriptors_end(process);
    }
    for (struct process *process = node->processes; process; process = process->next)
        kill(process->pid, SIGKILL);
    if (node->init)
        kill(node->init, SIGKILL);
    while (node->processes || node->init) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == EINTR)
            continue;
        if (tid < 0)
            break;
        if (tid == node->init)
            node->init = 0;
        else
            other(tid, status);
    }
}
