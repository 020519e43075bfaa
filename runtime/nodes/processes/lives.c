/* How threads and processes begin and end: their births, and what the kernel reports of those that do not run. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "nodes/parts.h"

#define EARLY_MOST 64
#define UNREST_TIMES 6     /* so often that is waited for, by real time, while other programs have the processor */
#define COMPUTES_NS 10000000
#define LOOKED_NS 20000000

#define TICK_MS 50

static unsigned unrest_seconds; /* of computing; of waiting in the kernel, too, which nothing should */
static volatile sig_atomic_t unrest, ticked, ticks_left;
static int alarms; /* in this step */
static pid_t early[EARLY_MOST]; /* children that stopped before their parents' stop was seen */

static void on_alarm(int signal)
{
    (void)signal;
    ticked = 1;
    if (--ticks_left <= 0)
        unrest = 1;
}

void unrest_after(unsigned seconds)
{
    unrest_seconds = seconds;
}

static uint64_t computed(const struct process *process)
{
    clockid_t clock;
    struct timespec time = {0, 0};
    if (clock_getcpuclockid(process->pid, &clock) == 0)
        clock_gettime(clock, &time);
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static void watch(bool watches)
{
    const struct timeval tick = {0, watches ? TICK_MS * 1000 : 0};
    struct itimerval limit = {tick, tick};
    unrest = ticked = 0;
    ticks_left = (int)unrest_seconds * 1000 / TICK_MS;
    setitimer(ITIMER_REAL, &limit, NULL);
}

/* The time is over. Whether the thread had too little of it: other programs kept it from computing. */
static bool was_kept(const struct thread *thread)
{
    struct process *process = thread->process;
    uint64_t now = computed(process), before = process->computed;
    bool computes = now - before > COMPUTES_NS * (uint64_t)++alarms;
    if (!computes || now - before >= unrest_seconds * SECOND || alarms == UNREST_TIMES)
        return false;
    watch(true);
    return true;
}

/* A thread that computes for long may wait for another one in a loop: so it is stopped, each time after twice as long. */
static void look_at(struct thread *thread)
{
    static const struct thread *looked;
    static uint64_t since, enough;
    const struct node *node = thread->process->node;
    bool alone = !node->processes->next && !node->processes->threads->next;
    uint64_t now = computed(thread->process);
    ticked = 0;
    if (alone || thread->asked)
        return;
    if (looked != thread || now < since) {
        looked = thread;
        since = now;
        enough = LOOKED_NS;
    } else if (now - since > enough) {
        enough = thread->suspect ? enough : 2 * enough;
        since = now;
        thread->asked = true;
        ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL);
    }
}

static bool others_are(const struct thread *thread, enum thread_state state)
{
    for (const struct process *process = thread->process->node->processes; process; process = process->next)
        for (const struct thread *other = process->threads; other; other = other->next)
            if (other != thread && other->state == state)
                return true;
    return false;
}

/* It has computed for as long as one may. Whether others can have their turn. */
static bool gives_way(struct thread *thread)
{
    if (thread->suspect || thread->asked || !others_are(thread, READY))
        return false;
    thread->suspect = thread->asked = true;
    watch(true);
    ptrace(PTRACE_INTERRUPT, thread->tid, NULL, NULL);
    return true;
}

static _Noreturn void no_rest(const struct thread *thread)
{
    if (others_are(thread, HELD))
        name_uncontrolled(thread->process->node, LONG_LOOP); /* one of them may be what it waits for */
    if (thread->process->node->by_processor)
        name_uncontrolled(thread->process->node, "a timer by a processor's time");
    wire_event((struct cc_frame){.tag = CC_UNREST, .node = thread->process->node->index}, NULL, NULL, 0);
    wire_event((struct cc_frame){.tag = CC_REST}, NULL, NULL, 0);
    wire_flush();
    exit(1);
}

static void process_ended(struct process *process, int status)
{
    struct node *node = process->node;
    alarms_end(process);
    requests_end(process);
    descriptors_end(process);
    for (struct process *other = node->processes; other; other = other->next)
        other->signalled = true; /* its parent's SIGCHLD */
    if (process->first) {
        node->alive = false;
        wire_event((struct cc_frame){.tag = CC_ENDED, .node = node->index, .number = (uint32_t)status}, NULL, NULL, 0);
    }
}

/* Its next stop or end. */
static pid_t await(pid_t tid, int *status)
{
    pid_t found;
    do
        found = waitpid(tid, status, __WALL);
    while (found < 0 && errno == EINTR && !unrest);
    return found;
}

void vfork_done(struct thread *child)
{
    int status;
    struct thread *parent = child->vfork_parent;
    child->vfork_parent = NULL;
    if (!parent || (parent->state == IN_VFORK && (await(parent->tid, &status) != parent->tid || !WIFSTOPPED(status))))
        return;
    ready(parent);
}

static void thread_ended(struct thread *thread, int status)
{
    struct process *process = thread->process;
    process->node->activity++;
    hold_over(thread);
    recording_ended(thread, status);
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
void end_of_other(pid_t tid, int status)
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
bool thread_await(struct thread *thread, int *status)
{
    for (;;) {
        pid_t tid = waitpid(-1, status, __WALL);
        if (tid < 0 && errno == EINTR && ticked)
            look_at(thread);
        if (tid < 0 && errno == EINTR && (!unrest || was_kept(thread) || gives_way(thread)))
            continue;
        if (tid < 0 || (unrest && !was_kept(thread)))
            no_rest(thread);
        if (WIFSTOPPED(*status) && *status >> 16 == PTRACE_EVENT_EXEC && tid == thread->process->pid && tid != thread->tid) {
            struct thread *first = thread_of(tid); /* another thread's program is replaced: it is the first now */
            if (first)
                thread_forget(first);
            thread->tid = tid;
        }
        if (tid != thread->tid) {
            end_of_other(tid, *status);
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
        end_of_other(tid, status);
    }
}

void settle_all(struct node *node)
{
    for (struct process *process = node->processes; process; process = process->next)
        if (process->ending) {
            descriptors_end(process);
            settle(process);
            settle_all(node);
            return;
        }
}

void thread_born(struct thread *parent, int event)
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
    if (!stopped && await(child, &status) != child)
        return;
    pid_t pid = born_in(child, &known_as);
    recording_born(parent, child);
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

/* The first thread of a process ends before others: nothing is reported until they have. */
void first_thread_ended(const struct thread *thread)
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

void unrest_watch(bool watches)
{
    struct sigaction action = {.sa_handler = on_alarm};
    sigaction(SIGALRM, &action, NULL);
    alarms = 0;
    for (size_t i = 0; watches && i < NODES; i++)
        for (struct process *process = nodes[i].processes; process; process = process->next)
            process->computed = computed(process);
    watch(watches);
}
