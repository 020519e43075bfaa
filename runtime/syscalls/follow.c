/* Follows the threads of the command from stop to stop: a call begins or ends, a process is born, becomes another program
 * or ends. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define OPTIONS                                                                                                        \
    (PTRACE_O_TRACESECCOMP | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACEEXEC |     \
     PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL)
#define STOPPED_IN_CALL (SIGTRAP | 0x80)

static pid_t caller;                          /* of a command that stays in place, or 0 */
static struct tracee *updating;               /* its update has begun, and not ended */
static struct tracee *waiting, **last_waiting = &waiting;
static bool *unfiltered; /* no filter is permitted: threads stop at every call. The command's process, before it runs, finds out */

void follow_start(pid_t of_command_in_place)
{
    caller = of_command_in_place;
    unfiltered = mmap(NULL, sizeof *unfiltered, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (unfiltered == MAP_FAILED)
        die("no memory");
}

void follow_every_call(void)
{
    *unfiltered = true;
}

bool follow_seize(pid_t command)
{
    return ptrace(PTRACE_SEIZE, command, NULL, (void *)(uintptr_t)OPTIONS) == 0;
}

void follow_interrupt(pid_t command)
{
    ptrace(PTRACE_INTERRUPT, command, NULL, NULL);
}

static void resume(struct tracee *thread, int signal)
{
    bool at_call = thread->in_call || *unfiltered;
    ptrace(at_call ? PTRACE_SYSCALL : PTRACE_CONT, thread->tid, NULL, (void *)(intptr_t)signal);
}

static bool registers(struct tracee *thread, struct user_regs_struct *now)
{
    return ptrace(PTRACE_GETREGS, thread->tid, NULL, now) == 0;
}

/* Fills in the call that begins. Its handler, or NULL: nothing of it is recorded. */
static const struct handler *call_of(struct tracee *thread, const struct user_regs_struct *now, enum filter_data kind)
{
    struct call *call = &thread->call;
    call->number = (long)now->orig_rax;
    call->narrow = false;
    call->unseen = "a system call that is not known";
    memcpy(call->argument, (uint64_t[]){now->rdi, now->rsi, now->rdx, now->r10, now->r8, now->r9}, sizeof call->argument);
    if (kind == FILTER_OURS)
        return handler_of(call->number);
    if (kind == FILTER_NARROW) {
        uint64_t narrow[] = {now->rbx, now->rcx, now->rdx, now->rsi, now->rdi, now->rbp};
        for (size_t i = 0; i < 6; i++)
            call->argument[i] = (uint32_t)narrow[i];
    }
    return narrow_call(call, kind == FILTER_X32);
}

/* The kernel makes no call, or one with another first argument. */
static void change_call(struct tracee *thread, struct user_regs_struct *now)
{
    if (thread->changed) {
        *(thread->call.narrow ? &now->rbx : &now->rdi) = thread->call.argument[0];
    } else {
        now->orig_rax = UINT64_MAX;
        now->rax = thread->answered ? thread->answer : (uint64_t)-thread->failing;
    }
    if (ptrace(PTRACE_SETREGS, thread->tid, NULL, now) != 0)
        thread->failing = 0;
}

/* What a stack is left by. */
static void keep_registers(struct tracee *thread, const struct user_regs_struct *now)
{
    memcpy(thread->registers, (uint64_t[]){now->rbx, now->rbp, now->rsp, now->r12, now->r13, now->r14, now->r15, now->rip},
           sizeof thread->registers);
    thread->thread_pointer = now->fs_base;
}

/* Just before a call. */
static void enter(struct tracee *thread)
{
    struct user_regs_struct now;
    if (!registers(thread, &now)) {
        resume(thread, 0); /* it has been killed */
        return;
    }
    struct call *call = &thread->call;
    const struct handler *handler = call_of(thread, &now, thread->kind);
    if (!handler) {
        resume(thread, 0);
        return;
    }
    if (updating && !handler->anytime) {
        thread->waiting = true;
        thread->next_waiting = NULL;
        *last_waiting = thread;
        last_waiting = &thread->next_waiting;
        return;
    }
    keep_registers(thread, &now);
    aio_take(thread);
    thread->handler = handler;
    thread->located = thread->kind != FILTER_OURS; /* stacks are those of 64-bit code */
    thread->site = thread->stack = 0;
    thread->in_call = true; /* what is recorded now belongs to the call */
    call->inode = call->from.folder = call->to.folder = 0;
    thread->answered = thread->changed = false;
    script_enter(thread);
    enum then then = handler->enter(thread);
    thread->failing = then == SKIP ? 0 : fault_of(thread);
    if (thread->failing || thread->answered || thread->changed)
        change_call(thread, &now);
    thread->in_call = then != SKIP;
    if (then == UPDATE)
        updating = thread;
    if (then == SKIP)
        call_end(thread);
    resume(thread, 0);
}

static void next_update(struct tracee *done)
{
    if (updating != done)
        return;
    updating = NULL;
    while (waiting && !updating) {
        struct tracee *thread = waiting;
        waiting = thread->next_waiting;
        if (!waiting)
            last_waiting = &waiting;
        thread->waiting = false;
        enter(thread);
    }
}

/* Just after one. */
static void leave(struct tracee *thread)
{
    struct user_regs_struct now;
    if (thread->in_call && registers(thread, &now)) {
        bool narrow_error = thread->call.narrow && (uint32_t)now.rax > -4096u;
        thread->call.result = narrow_error ? (int32_t)now.rax : (long)now.rax;
        script_leave(thread);
        thread->handler->leave(thread);
    }
    call_end(thread);
    thread->in_call = thread->located = false;
    resume(thread, 0);
    next_update(thread);
}

/* After a call that was entered; or, without a filter, before any call or after one. */
static void at_call(struct tracee *thread)
{
    struct __ptrace_syscall_info now = {.op = PTRACE_SYSCALL_INFO_NONE};
    if (!thread->in_call && ptrace(PTRACE_GET_SYSCALL_INFO, thread->tid, (void *)sizeof now, &now) < 0 && errno != ESRCH)
        die("PTRACE_GET_SYSCALL_INFO, which Linux has since 5.3");
    if (now.op != PTRACE_SYSCALL_INFO_ENTRY)
        leave(thread);
    else if (filter_stops(now.arch, now.entry.nr, now.entry.args, &thread->kind))
        enter(thread);
    else
        resume(thread, 0);
}

/* A process has no memory of its own any more, or another one. */
static void memory_ends(struct tracee *thread)
{
    aio_end(thread->process);
    mappings_end(thread);
    stack_forget(thread->process);
    scripts_end(thread->process);
    java_end(thread->process);
}

static void forget(struct tracee *thread)
{
    for (struct tracee **at = &waiting; *at; at = &(*at)->next_waiting) {
        if (*at == thread) {
            *at = thread->next_waiting;
            break;
        }
    }
    last_waiting = &waiting;
    while (*last_waiting)
        last_waiting = &(*last_waiting)->next_waiting;
    thread->in_call = thread->located = false;
    next_update(thread);
    call_end(thread);
    if (thread->process->threads == 1)
        memory_ends(thread);
    script_forget(thread);
    tracee_forget(thread);
}

static void executed(struct tracee *thread)
{
    char link[64], path[PATH_ROOM];
    struct stat state;
    unsigned long former = 0;
    ptrace(PTRACE_GETEVENTMSG, thread->tid, NULL, &former);
    struct tracee *old = (pid_t)former != thread->tid ? tracee_known((pid_t)former) : NULL;
    if (old)
        forget(old);
    call_end(thread);
    thread->in_call = thread->located = false;
    next_update(thread);
    memory_ends(thread);
    script_forget(thread);
    thread->called = 0;
    thread->apart = false;
    snprintf(link, sizeof link, "/proc/%d/exe", thread->tid);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return;
    path[length] = '\0';
    trace_bytes(thread, (struct cc_event){.kind = CC_EXEC}, NULL, 0, path, (size_t)length);
    if (stat(link, &state) == 0 && state.st_mode & (S_ISUID | S_ISGID) && state.st_uid != geteuid())
        trace_note("setuid", path);
    stack_launched(thread->process);
    preload_begin(thread, path);
}

static void begin(struct tracee *thread)
{
    if (!thread->unborn)
        return;
    thread->unborn = false;
    resume(thread, 0);
}

static void born(struct tracee *parent)
{
    unsigned long child = 0;
    if (ptrace(PTRACE_GETEVENTMSG, parent->tid, NULL, &child) != 0)
        return;
    struct tracee *thread = tracee_of((pid_t)child);
    if (thread->process != parent->process) {
        trace_event(parent, (struct cc_event){.kind = CC_FORK, .payload = child});
        struct user_regs_struct now;
        if (parent->process->java && registers(parent, &now))
            keep_registers(parent, &now);
        stack_born(parent, thread->process);
    }
    begin(thread);
}

/* Those whose parents were killed before that was seen. */
static void begin_all(void)
{
    for (struct tracee *thread = tracee_next(NULL); thread; thread = tracee_next(thread))
        begin(thread);
}

/* The shell that waits for our caller has to see that the command stops (Ctrl-Z) or continues. */
static void pass_on(const struct tracee *thread, int signal)
{
    if (caller && (uint32_t)thread->tid == trace_header()->main_pid && getppid() == caller)
        kill(caller, signal);
}

static void stopped(struct tracee *thread, int status)
{
    int signal = WSTOPSIG(status), event = status >> 16;
    unsigned long data = 0;
    if (event == PTRACE_EVENT_SECCOMP) {
        ptrace(PTRACE_GETEVENTMSG, thread->tid, NULL, &data);
        thread->kind = (enum filter_data)data;
        enter(thread);
    } else if (signal == STOPPED_IN_CALL) {
        at_call(thread);
    } else if (event == PTRACE_EVENT_STOP && signal != SIGTRAP) {
        ptrace(PTRACE_LISTEN, thread->tid, NULL, NULL); /* stopped by a signal, as without us */
        pass_on(thread, SIGSTOP);
    } else if (event) {
        if (event == PTRACE_EVENT_EXEC)
            executed(thread);
        else if (event != PTRACE_EVENT_STOP)
            born(thread);
        else
            pass_on(thread, SIGCONT);
        resume(thread, 0);
    } else {
        resume(thread, signal);
    }
}

/* A process has ended: what it stored through mappings is in the files. */
static void ended(struct tracee *thread, bool main_ended, int status)
{
    struct tracee *first = thread;
    shadows_compare_all(first);
    bool clean = main_ended && WIFEXITED(status);
    if (thread->tid == thread->process->pid)
        trace_event(thread, (struct cc_event){.kind = CC_EXIT, .aux = clean, .offset = (uint64_t)(uint32_t)status});
    if (clean)
        trace_status(CC_STATUS_CLEAN_EXIT);
}

/* Notes a process with the name of its program: a number alone differs from run to run. */
static void note_running(const char *reason, int pid)
{
    char path[32], text[64];
    int used = snprintf(text, sizeof text, "%d ", pid);
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t size = fd >= 0 ? read(fd, text + used, sizeof text - (size_t)used - 1) : 0;
    if (fd >= 0)
        close(fd);
    text[used + (size > 0 ? size : 0)] = 0;
    text[strcspn(text, "\n")] = 0;
    trace_note(reason, text);
}

int follow(pid_t command)
{
    int last = 0, status;
    for (;;) {
        pid_t tid = waitpid(-1, &status, __WALL);
        if (tid < 0 && errno == EINTR)
            continue;
        if (tid < 0)
            return last;
        struct tracee *thread = tracee_known(tid);
        if (WIFSTOPPED(status)) {
            bool unborn = !thread && tid != command && status >> 8 == (SIGTRAP | PTRACE_EVENT_STOP << 8);
            thread = tracee_of(tid);
            thread->unborn = unborn;
            if (!unborn)
                stopped(thread, status);
            continue;
        }
        if (thread) {
            ended(thread, tid == command, status);
            forget(thread);
            begin_all();
        }
        if (tid == command) {
            last = status;
            break;
        }
    }
    if (caller)
        return last;
    /* What the command left running ends with it. */
    for (struct tracee *thread; (thread = tracee_next(NULL));) {
        note_running("ended", thread->process->pid);
        kill(thread->tid, SIGKILL);
        while (waitpid(thread->tid, &status, __WALL) == thread->tid && WIFSTOPPED(status))
            ptrace(PTRACE_CONT, thread->tid, NULL, NULL);
        shadows_compare_all(thread);
        forget(thread);
    }
    return last;
}

/* Lets what is left of the command run to its end, which nothing records any more: without us its calls would fail, as
 * the filter stays. */
void follow_let_run(void)
{
    int status, null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; fd < 3; fd++)
        dup2(null, fd);
    if (chdir("/") != 0)
        return;
    for (struct tracee *thread = waiting; thread; thread = thread->next_waiting)
        ptrace(PTRACE_CONT, thread->tid, NULL, NULL);
    for (pid_t tid; (tid = waitpid(-1, &status, __WALL)) > 0 || errno == EINTR;) {
        if (tid <= 0 || !WIFSTOPPED(status))
            continue;
        int event = status >> 16, signal = WSTOPSIG(status);
        if (event == PTRACE_EVENT_STOP && signal != SIGTRAP)
            ptrace(PTRACE_LISTEN, tid, NULL, NULL);
        else
            ptrace(PTRACE_CONT, tid, NULL, (void *)(intptr_t)(event || signal == STOPPED_IN_CALL ? 0 : signal));
    }
}

void follow_note_left(void)
{
    for (struct tracee *thread = tracee_next(NULL); thread; thread = tracee_next(thread)) {
        shadows_compare_all(thread);
        if (thread->tid == thread->process->pid)
            note_running("left", thread->process->pid);
    }
}
