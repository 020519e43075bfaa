/* The recorder of system calls as a library of the controller of nodes, which stops the threads itself: one copy of it records
 * what a node does to its folder. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nodes/attached.h"
#include "syscalls/recorder.h"

#define SHOWN __attribute__((visibility("default")))

/* What the command finds as its descriptors 1 and 2 is what we have there for so long. */
static void learn_outputs(const int *outputs)
{
    int saved[2];
    for (int i = 0; i < 2; i++) {
        saved[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 3);
        dup2(outputs[i], i + 1);
    }
    outputs_start();
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
}

SHOWN bool attached_open(const char *trace, const char *folder, pid_t pid, const int *outputs)
{
    static char notes[PATH_ROOM];
    int watched = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (watched < 0)
        return false;
    snprintf(notes, sizeof notes, "%s.notes", trace);
    trace_note_path(notes);
    trace_open(trace);
    inodes_scan(watched);
    learn_outputs(outputs);
    trace_header()->main_pid = (uint32_t)pid;
    return true;
}

SHOWN void attached_show(const char *module, const char *agent)
{
    scripts_want_sends();
    preload_module(module);
    preload_agent(agent);
}

SHOWN bool attached_wants(uint64_t number)
{
    const struct handler *handler = handler_of((long)number);
    return handler && handler != &call_uring && handler != &call_clones && handler != &call_unseen && handler != &program_runs;
}

static void stopped_at(struct tracee *thread, const struct user_regs_struct *now)
{
    memcpy(thread->registers, (uint64_t[]){now->rbx, now->rbp, now->rsp, now->r12, now->r13, now->r14, now->r15, now->rip},
           sizeof thread->registers);
    thread->thread_pointer = now->fs_base;
    thread->located = false;
    thread->site = thread->stack = 0;
}

SHOWN uint64_t attached_place(pid_t tid, const struct user_regs_struct *now)
{
    struct tracee *thread = tracee_of(tid);
    stopped_at(thread, now);
    script_sends(thread);
    stack_locate(thread);
    return (uint64_t)thread->site << 32 | thread->stack;
}

SHOWN enum attached attached_enter(pid_t tid, const struct user_regs_struct *now)
{
    struct tracee *thread = tracee_of(tid);
    struct call *call = &thread->call;
    if (!attached_wants(now->orig_rax))
        return ATTACHED_NOTHING;
    call->number = (long)now->orig_rax;
    call->narrow = false;
    call->unseen = "a system call that is not known";
    memcpy(call->argument, (uint64_t[]){now->rdi, now->rsi, now->rdx, now->r10, now->r8, now->r9}, sizeof call->argument);
    stopped_at(thread, now);
    thread->kind = FILTER_OURS;
    thread->handler = handler_of(call->number);
    thread->answered = thread->changed = false;
    thread->in_call = true;
    call->inode = call->from.folder = call->to.folder = 0;
    aio_take(thread);
    script_enter(thread);
    thread->in_call = thread->handler->enter(thread) != SKIP;
    if (!thread->in_call)
        call_end(thread);
    return thread->in_call ? ATTACHED_RETURN : thread->answered ? ATTACHED_REPORT : ATTACHED_NOTHING;
}

SHOWN void attached_leave(pid_t tid, int64_t result)
{
    struct tracee *thread = tracee_known(tid);
    if (!thread || !thread->in_call)
        return;
    thread->call.result = result;
    script_leave(thread);
    thread->handler->leave(thread);
    call_end(thread);
    thread->in_call = thread->located = false;
}

SHOWN void attached_born(pid_t parent, pid_t child)
{
    struct tracee *from = tracee_of(parent);
    const struct tracee *thread = tracee_of(child);
    if (thread->process != from->process)
        trace_event(from, (struct cc_event){.kind = CC_FORK, .payload = (uint64_t)child});
}

static void memory_ends(struct tracee *thread)
{
    aio_end(thread->process);
    mappings_end(thread);
    stack_forget(thread->process);
    scripts_end(thread->process);
    java_end(thread->process);
}

SHOWN void attached_executed(pid_t tid)
{
    char link[64], path[PATH_ROOM];
    struct tracee *thread = tracee_of(tid);
    call_end(thread);
    thread->in_call = thread->located = false;
    memory_ends(thread);
    script_forget(thread);
    thread->called = 0;
    thread->apart = false;
    snprintf(link, sizeof link, "/proc/%d/exe", tid);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length >= 0) {
        path[length] = '\0';
        trace_bytes(thread, (struct cc_event){.kind = CC_EXEC}, NULL, 0, path, (size_t)length);
        thread->process->elsewhere = false; /* it finds what is outside of its folder */
        preload_begin(thread, path);
    }
    thread->process->elsewhere = true; /* its folder has another path for it; its children inherit that */
}

SHOWN void attached_ended(pid_t tid, int status)
{
    struct tracee *thread = tracee_known(tid);
    if (!thread)
        return;
    shadows_compare_all(thread);
    bool clean = (uint32_t)tid == trace_header()->main_pid && WIFEXITED(status);
    if (tid == thread->process->pid)
        trace_event(thread, (struct cc_event){.kind = CC_EXIT, .aux = clean, .offset = (uint64_t)(uint32_t)status});
    if (clean)
        trace_status(CC_STATUS_CLEAN_EXIT);
    call_end(thread);
    if (thread->process->threads == 1)
        memory_ends(thread);
    script_forget(thread);
    tracee_forget(thread);
}

SHOWN void attached_close(void)
{
    for (struct tracee *thread = tracee_next(NULL); thread; thread = tracee_next(thread))
        shadows_compare_all(thread);
    trace_close();
}
