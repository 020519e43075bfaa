/* What the descriptors of processes are: which of them are sockets, timers, random numbers or outputs that we answer for. */
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "nodes/parts.h"

#define MEMORY_DEVICES 1u /* their major number: null, zero */

struct slot {
    struct object *object;
    bool plain;
};
struct descriptors {
    uint32_t processes;
    size_t count;
    struct slot *slots;
};

static struct object *objects;
static uint32_t sockets;
static void (*when_closed)(struct object *);

void objects_closed(void (*closed)(struct object *))
{
    when_closed = closed;
}

struct object *object_new(struct node *node, enum object_kind kind)
{
    struct object *object = calloc(1, sizeof *object), **at = &objects;
    if (!object)
        abort();
    object->kind = kind;
    object->node = node;
    object->ours = -1;
    object->number = kind == STREAM || kind == DATAGRAM ? ++sockets : 0;
    while (*at)
        at = &(*at)->next;
    *at = object;
    return object;
}

struct object *object_next(struct object *object)
{
    return object ? object->next : objects;
}

struct object *object_numbered(uint32_t number)
{
    struct object *object = objects;
    while (object && (object->kind < STREAM || object->number != number))
        object = object->next;
    return object;
}

void object_free(struct object *object)
{
    struct object **at = &objects;
    while (*at != object)
        at = &(*at)->next;
    *at = object->next;
    for (struct source *source; (source = object->sources); free(source))
        object->sources = source->next;
    for (struct option *option; (option = object->options); free(option))
        object->options = option->next;
    if (object->timer)
        timer_free(object->timer);
    if (object->ours >= 0)
        close(object->ours);
    free(object->left);
    free(object);
}

static void release(struct object *object)
{
    if (object && --object->references == 0)
        when_closed(object);
}

static struct slot *slot_at(const struct process *process, uint64_t fd)
{
    const struct descriptors *all = process->descriptors;
    return all && fd < all->count ? &all->slots[fd] : NULL;
}

struct object *object_at(const struct thread *thread, int fd)
{
    const struct slot *slot = slot_at(thread->process, (uint32_t)fd);
    return slot ? slot->object : NULL;
}

static struct slot *slot_made(struct process *process, int fd)
{
    struct descriptors *all = process->descriptors;
    if ((size_t)fd >= all->count) {
        size_t count = 2 * (size_t)fd + 16;
        struct slot *wider = realloc(all->slots, count * sizeof *wider);
        if (!wider)
            abort();
        memset(wider + all->count, 0, (count - all->count) * sizeof *wider);
        all->slots = wider;
        all->count = count;
    }
    return &all->slots[fd];
}

void descriptor_set(struct process *process, int fd, struct object *object)
{
    struct slot *slot = object ? slot_made(process, fd) : slot_at(process, (uint32_t)fd);
    if (!slot)
        return;
    struct object *former = slot->object;
    if (object)
        object->references++;
    *slot = (struct slot){object, false};
    release(former);
}

int descriptor_ours(const struct thread *thread, int fd)
{
    return (int)syscall(SYS_pidfd_getfd, thread->process->pidfd, fd, 0);
}

bool waits_not(const struct thread *thread, int fd)
{
    int ours = descriptor_ours(thread, fd);
    int flags = ours < 0 ? 0 : fcntl(ours, F_GETFL);
    if (ours >= 0)
        close(ours);
    return flags & O_NONBLOCK;
}

bool descriptor_plain(const struct thread *thread, int fd)
{
    const struct slot *known = slot_at(thread->process, (uint32_t)fd);
    struct stat state;
    if (known && (known->object || known->plain))
        return known->plain;
    int ours = descriptor_ours(thread, fd);
    if (ours < 0)
        return true; /* it is none: the call fails at once */
    bool plain = fstat(ours, &state) == 0 && (S_ISREG(state.st_mode) || S_ISDIR(state.st_mode) ||
                                              (S_ISCHR(state.st_mode) && major(state.st_rdev) == MEMORY_DEVICES));
    close(ours);
    if (plain)
        slot_made(thread->process, fd)->plain = true;
    return plain;
}

void descriptors_copy(struct process *from, struct process *to, bool shared)
{
    if (shared) {
        to->descriptors = from->descriptors;
        to->descriptors->processes++;
        return;
    }
    to->descriptors = calloc(1, sizeof *to->descriptors);
    if (!to->descriptors)
        abort();
    to->descriptors->processes = 1;
    for (size_t fd = 0; from && fd < from->descriptors->count; fd++)
        if (from->descriptors->slots[fd].object)
            descriptor_set(to, (int)fd, from->descriptors->slots[fd].object);
}

void descriptors_end(struct process *process)
{
    struct descriptors *all = process->descriptors;
    if (!all || --all->processes)
        return;
    for (size_t fd = 0; fd < all->count; fd++)
        descriptor_set(process, (int)fd, NULL);
    free(all->slots);
    free(all);
    process->descriptors = NULL;
}

void descriptors_executed(struct process *process)
{
    char path[64];
    struct stat state;
    struct descriptors *all = process->descriptors;
    if (all->processes > 1) { /* it has a table of its own now */
        struct process former = *process;
        all->processes--;
        descriptors_copy(&former, process, false);
    }
    for (size_t fd = 0; fd < process->descriptors->count; fd++) {
        snprintf(path, sizeof path, "/proc/%d/fd/%zu", process->pid, fd);
        process->descriptors->slots[fd].plain = false;
        if (process->descriptors->slots[fd].object && lstat(path, &state) != 0)
            descriptor_set(process, (int)fd, NULL);
    }
}

static enum then close_enter(struct thread *thread)
{
    descriptor_set(thread->process, (int)argument(thread, 0), NULL);
    return NATIVE;
}

static enum then close_range_enter(struct thread *thread)
{
    const struct descriptors *all = thread->process->descriptors;
    uint64_t last = argument(thread, 1);
    if (argument(thread, 2) & CLOSE_RANGE_UNSHARE && all->processes > 1)
        name_uncontrolled(thread->process->node, "close_range with CLOSE_RANGE_UNSHARE");
    if (argument(thread, 2) & CLOSE_RANGE_CLOEXEC)
        return NATIVE;
    for (uint64_t fd = (uint32_t)argument(thread, 0); fd < all->count && fd <= last; fd++)
        descriptor_set(thread->process, (int)fd, NULL);
    return NATIVE;
}

static enum then after(struct thread *thread)
{
    (void)thread;
    return AFTER;
}

static void duplicate(struct thread *thread, int from, int to)
{
    const struct slot *slot = slot_at(thread->process, (uint32_t)from);
    if (from != to)
        descriptor_set(thread->process, to, slot ? slot->object : NULL);
}

static enum then dup_leave(struct thread *thread)
{
    if (thread->result >= 0)
        duplicate(thread, (int)argument(thread, 0), (int)thread->result);
    return ANSWER;
}

static bool waits_for_lock(const struct thread *thread)
{
    int command = (int)argument(thread, 1);
    return command == F_SETLKW || command == F_OFD_SETLKW;
}

static bool duplicates(const struct thread *thread)
{
    int command = (int)argument(thread, 1);
    return command == F_DUPFD || command == F_DUPFD_CLOEXEC;
}

static enum then fcntl_enter(struct thread *thread)
{
    if (waits_for_lock(thread)) {
        thread->now.rsi = (int)argument(thread, 1) == F_SETLKW ? F_SETLK : F_OFD_SETLK;
        thread->changed = true;
        return AFTER;
    }
    return duplicates(thread) ? AFTER : NATIVE;
}

static enum then fcntl_leave(struct thread *thread)
{
    if (duplicates(thread))
        return dup_leave(thread);
    bool taken = thread->result == -EAGAIN || thread->result == -EACCES;
    return taken && waits_for_lock(thread) ? hold(thread, true, RESTARTED) : ANSWER;
}

const struct handler call_close = {close_enter, NULL, true};
const struct handler call_close_range = {close_range_enter, NULL, true};
const struct handler call_dup = {after, dup_leave, false};
const struct handler call_dup2 = {after, dup_leave, true};
const struct handler call_fcntl = {fcntl_enter, fcntl_leave, true};
