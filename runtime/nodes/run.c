/* Runs the threads, one at a time and in the order in which they became ready, from stop to stop, until all wait. */
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "nodes/parts.h"

#define TURNS_MOST 1000u /* stops of a thread until others have their turn */
#define STOPPED_IN_CALL (SIGTRAP | 0x80)

static void go_on(struct thread *thread)
{
    if (thread->changed)
        ptrace(PTRACE_SETREGS, thread->tid, NULL, &thread->now);
    thread->changed = false;
    int signal = thread->signal;
    thread->signal = 0;
    ptrace(thread->in_call ? PTRACE_SYSCALL : PTRACE_CONT, thread->tid, NULL, (void *)(intptr_t)signal);
}

/* A call of 32-bit code has another table of numbers. The kernel makes it. */
static bool is_narrow(const struct thread *thread)
{
    unsigned long filtered = FILTER_OURS;
    ptrace(PTRACE_GETEVENTMSG, thread->tid, NULL, &filtered);
    return filtered == FILTER_NARROW;
}

static void enter(struct thread *thread)
{
    if (ptrace(PTRACE_GETREGS, thread->tid, NULL, &thread->called) != 0)
        return; /* it has been killed */
    calls_answered++;
    if (is_narrow(thread)) {
        name_uncontrolled(thread->process->node, "32-bit system calls");
        thread->process->node->activity++;
        return;
    }
    thread->now = thread->called;
    thread->changed = false;
    thread->handler = handler_of(thread->called.orig_rax);
    enum attached recorded = recording_enter(thread);
    thread->recorded = recorded == ATTACHED_RETURN;
    int64_t failure = thread->again ? 0 : fault_of(thread);
    enum then then = failure ? answer(thread, failure) : recorded == ATTACHED_REPORT ? answer(thread, 0) : thread->handler ? thread->handler->enter(thread) : NATIVE;
    if (then == NATIVE && call_changes_files(thread))
        files_changed = true;
    thread->in_call = then == AFTER || then == HOLD || (then == NATIVE && (thread->changed || thread->recorded));
    thread->holding = then == HOLD;
    thread->answered = then == ANSWER;
    if (then == HOLD || then == ANSWER) {
        thread->now = thread->called;
        thread->now.orig_rax = UINT64_MAX;
        thread->now.rax = then == ANSWER ? (uint64_t)thread->result : 0;
        thread->changed = true;
    } else if (then == NATIVE && thread->handler && thread->handler->acts) {
        thread->process->node->activity++;
    }
    if (then == ANSWER || then == NATIVE)
        hold_over(thread);
    if (thread->recorded && then == HOLD)
        thread->result = -EINTR; /* it is made again */
    if (thread->recorded && (then == HOLD || then == ANSWER))
        recording_leave(thread);
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
    if (!thread->holding && thread->handler && thread->handler->leave)
        then = thread->handler->leave(thread);
    if (!thread->holding && thread->recorded)
        recording_leave(thread); /* of what the program will see */
    bool holds = thread->holding || then == HOLD;
    thread->holding = false;
    thread->now = thread->called;
    thread->now.rax = (uint64_t)thread->result;
    thread->changed = true;
    if (!holds) {
        if (thread->handler && thread->handler->acts)
            thread->process->node->activity++; /* not of one that only tried: two that wait for a lock would wake each other */
        hold_over(thread);
        thread->answered = true;
        return false;
    }
    thread->seen = thread->process->node->activity;
    thread->state = HELD;
    if (thread->yields) {
        hold_ends(thread, 0);
        thread->yielded = true;
    }
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
    clock_read(node, now.rsp);
    now.rax = stamp & UINT32_MAX;
    now.rdx = stamp >> 32;
    if (with_processor)
        now.rcx = 0;
    now.rip += with_processor ? 3 : 2;
    thread->now = now;
    thread->changed = true;
    return true;
}

static void deliver(struct thread *thread, int signal)
{
    if (signal == SIGSEGV && read_stamp(thread))
        return;
    thread->signal = signal;
    if (signal_caught(thread, signal))
        hold_over(thread); /* the call that it interrupts; else the kernel makes that once more */
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
        thread_born(thread, event);
        return true;
    case PTRACE_EVENT_EXEC:
        thread->in_call = false;
        hold_over(thread);
        alarms_end(thread->process);
        requests_end(thread->process);
        vfork_done(thread);
        start_executed(thread);
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

static bool stir(void);

/* Whether a thread that computed for long has its wait in a loop, or gives way to others, and does not continue now. */
static bool looped(struct thread *thread, int *status, enum loop found)
{
    struct node *node = thread->process->node;
    if (found == TURNS) {
        thread->state = HELD;
        thread->retried = false;
        thread->loop_seen = node->turns;
        return true;
    }
    thread->loop_length = 0;
    if (found == LEAVES && !*status) { /* it has ended */
        settle_all(node);
        return true;
    }
    if (found == LEAVES || !thread->suspect || !(may_run() || stir()))
        return false;
    name_uncontrolled(node, LONG_LOOP);
    ready(thread);
    thread->yielded = true;
    return true;
}

/* Makes a thread ready for which something may have changed since it began to wait. False: there is none. */
static bool stir(void)
{
    for (struct object *object = object_next(NULL); object; object = object_next(object))
        if (object->kind == STREAM && object->left_size && object->ours >= 0 && stream_refill(object))
            object->node->activity++;
    for (size_t i = 0; i < NODES; i++)
        for (struct process *process = nodes[i].chooses ? NULL : nodes[i].processes; process; process = process->next) {
            bool signalled = process->signalled;
            for (struct thread *thread = process->threads; thread; thread = thread->next) {
                if (thread->state != HELD)
                    continue;
                bool hears = signalled && signal_waits(thread);
                if (thread->loop_length && (hears || thread->loop_seen != nodes[i].turns))
                    ready(thread);
                else if (thread->loop_length)
                    continue;
                else if (hears && thread->restart != LOOKS_AGAIN)
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

static void run_thread(struct thread *thread)
{
    int status;
    struct process *process = thread->process;
    struct node *node = process->node;
    thread->state = RUNNING;
    for (struct process *one = node->processes; one; one = one->next)
        for (struct thread *other = one->threads; other; other = other->next)
            other->yielded = false;
    enum loop found = COMPUTES;
    if (thread->loop_length && looped(thread, &status, found = loop_again(thread, &status)))
        return;
    node->turns++;
    for (uint32_t turns = 1;; turns++) {
        if (turns > TURNS_MOST && thread->answered && (may_run() || stir())) {
            ready(thread); /* it may wait for another one in a loop */
            thread->yielded = true;
            return;
        }
        thread->answered = false;
        if (found != LEAVES) {
            go_on(thread);
            if (thread->state == IN_VFORK)
                return;
            if (thread->state == ENDING) {
                first_thread_ended(thread);
                futexes_look(process);
                return;
            }
            if (!thread_await(thread, &status)) {
                settle_all(node);
                return;
            }
        }
        found = COMPUTES;
        if (thread->asked && status >> 8 == (SIGTRAP | PTRACE_EVENT_STOP << 8) && !thread->in_call) {
            found = loop_of(thread, &status);
            thread->asked = false;
            if (looped(thread, &status, found))
                return;
            continue;
        }
        thread->asked = false;
        if (!stopped(thread, status))
            return;
        if (thread->process->ending)
            continue; /* its own end is yet to come */
        settle_all(node);
    }
}

void run(struct thread *chosen)
{
    struct thread *thread = chosen;
    unrest_watch(true);
    do {
        do {
            if (thread)
                run_thread(thread);
            turns_offer();
        } while ((thread = next_ready()));
    } while (stir());
    unrest_watch(false);
}

void run_end(struct node *node)
{
    int status;
    for (struct process *process = node->processes; process; process = process->next) {
        alarms_end(process);
        requests_end(process);
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
            end_of_other(tid, status);
    }
}
