/* Which of several threads continues, where the caller chooses: each time that a thread waits, of those that need not. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nodes/parts.h"

#define POLLED_MOST 1024u
#define NAME_SIZE 16 /* of a thread */

static bool has_events(const struct thread *thread, int fd, short events)
{
    struct pollfd one = {.fd = descriptor_ours(thread, fd), .events = events};
    bool has = one.fd >= 0 && poll(&one, 1, 0) > 0;
    if (one.fd >= 0)
        close(one.fd);
    return has;
}

static bool any_has_events(const struct thread *thread, uint64_t at, uint64_t count)
{
    struct pollfd one;
    for (uint64_t i = 0; i < count && i < POLLED_MOST; i++)
        if (memory_read(thread, at + i * sizeof one, &one, sizeof one) == sizeof one && one.fd >= 0 &&
            has_events(thread, one.fd, one.events))
            return true;
    return false;
}

/* Whether a call that is made again would end, as far as that can be asked without making it. Where it cannot, the thread
 * continues once all others wait. */
static bool would_end(const struct thread *thread)
{
    int fd = (int)argument(thread, 0);
    switch (thread->called.orig_rax) {
    case SYS_read:
    case SYS_readv:
    case SYS_recvfrom:
    case SYS_recvmsg:
    case SYS_recvmmsg:
    case SYS_accept:
    case SYS_accept4:
    case SYS_epoll_wait:
    case SYS_epoll_pwait:
    case SYS_epoll_pwait2:
        return has_events(thread, fd, POLLIN);
    case SYS_write:
    case SYS_writev:
    case SYS_sendto:
    case SYS_sendmsg:
        return has_events(thread, fd, POLLOUT);
    case SYS_poll:
    case SYS_ppoll:
        return any_has_events(thread, argument(thread, 0), argument(thread, 1));
    default:
        return false;
    }
}

/* A thread that has yielded continues only where no other can: else it might do so for ever. */
static void offer(struct node *node)
{
    uint32_t count = 0;
    for (struct process *process = node->processes; process; process = process->next)
        for (struct thread *thread = process->threads; thread; thread = thread->next) {
            if (thread->state == HELD && thread->retried && thread->seen != node->activity && would_end(thread))
                hold_retry(thread);
            count += thread->state == READY && !thread->yielded;
        }
    node->chooses = count > 1 || (node->chooses && count);
}

void turns_offer(void)
{
    for (size_t i = 0; i < NODES; i++)
        if (nodes[i].explores)
            offer(&nodes[i]);
}

static void announce(const struct thread *thread)
{
    char path[64], name[NAME_SIZE + 1] = {0};
    const struct node *node = thread->process->node;
    if (node->places) {
        if (thread->called.rip)
            recording_place(thread);
        snprintf(path, sizeof path, "/proc/%d/task/%d/comm", thread->process->pid, thread->tid);
        FILE *comm = fopen(path, "re");
        if (comm && fgets(name, sizeof name, comm))
            name[strcspn(name, "\n")] = 0;
        if (comm)
            fclose(comm);
    }
    wire_event((struct cc_frame){.tag = CC_RUNNABLE, .node = node->index, .number = thread->number, .size = (uint32_t)strlen(name)}, name,
               NULL, 0);
}

void turns_announce(void)
{
    for (size_t i = 0; i < NODES; i++)
        for (struct process *process = nodes[i].chooses ? nodes[i].processes : NULL; process; process = process->next)
            for (struct thread *thread = process->threads; thread; thread = thread->next)
                if (thread->state == READY && !thread->yielded)
                    announce(thread);
}

struct thread *turn_of(const struct node *node, uint32_t number)
{
    for (struct process *process = node->processes; process; process = process->next)
        for (struct thread *thread = process->threads; thread; thread = thread->next)
            if (thread->number == number && thread->state == READY) {
                unqueue(thread);
                return thread;
            }
    return NULL;
}
