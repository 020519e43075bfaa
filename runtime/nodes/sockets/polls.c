/* Calls that wait for several descriptors: they are made without waiting, and again when something may have changed. */
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>

#include "nodes/parts.h"

#define MS 1000000ull

/* room[3] is when the call's time is over. */
static enum then until(struct thread *thread, uint64_t ns)
{
    thread->room[3] = ns == FOREVER ? FOREVER : due_after(thread->process->node, ns);
    thread->changed = true;
    return AFTER;
}

static enum then none_ready(struct thread *thread)
{
    if (thread->result != 0)
        return ANSWER;
    return hold_until(thread, true, NOT_RESTARTED, thread->room[3], true, 0);
}

/* The kernel gets a time of 0 in memory. */
static bool no_time(struct thread *thread, unsigned long long *pointer)
{
    struct timespec none = {0, 0};
    uint64_t at = memory_scratch(thread, sizeof none);
    *pointer = at;
    return memory_write(thread, at, &none, sizeof none);
}

static enum then poll_enter(struct thread *thread)
{
    int ms = (int)argument(thread, 2);
    if (ms == 0)
        return NATIVE;
    thread->now.rdx = 0;
    return until(thread, ms < 0 ? FOREVER : (uint64_t)ms * MS);
}

static enum then ppoll_enter(struct thread *thread)
{
    uint64_t ns = FOREVER;
    if (argument(thread, 2) && (!time_read(thread, argument(thread, 2), &ns) || ns == 0))
        return NATIVE;
    return no_time(thread, &thread->now.rdx) ? until(thread, ns) : NATIVE;
}

/* epoll_wait, epoll_pwait, epoll_pwait2 */
static enum then epoll_enter(struct thread *thread)
{
    int ms = (int)argument(thread, 3);
    uint64_t ns = FOREVER;
    if (thread->called.orig_rax == SYS_epoll_pwait2) {
        if (argument(thread, 3) && (!time_read(thread, argument(thread, 3), &ns) || ns == 0))
            return NATIVE;
        return no_time(thread, &thread->now.r10) ? until(thread, ns) : NATIVE;
    }
    if (ms == 0)
        return NATIVE;
    thread->now.r10 = 0;
    return until(thread, ms < 0 ? FOREVER : (uint64_t)ms * MS);
}

/* select, pselect6: its sets are overwritten. */
static enum then select_enter(struct thread *thread)
{
    uint64_t ns = FOREVER, at = argument(thread, 4);
    struct timeval time;
    if (at && thread->called.orig_rax == SYS_select) {
        if (memory_read(thread, at, &time, sizeof time) != sizeof time || time.tv_sec < 0)
            return NATIVE;
        ns = (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_usec * 1000;
    } else if (at && !time_read(thread, at, &ns)) {
        return NATIVE;
    }
    if (ns == 0 || !no_time(thread, &thread->now.r8))
        return NATIVE;
    free(thread->saved);
    thread->saved_size = (argument(thread, 0) + 63) / 64 * 8;
    thread->saved = calloc(SETS, thread->saved_size + 1);
    if (!thread->saved)
        abort();
    for (size_t i = 0; i < SETS; i++) {
        thread->room[i] = argument(thread, (int)i + 1);
        if (thread->room[i])
            memory_read(thread, thread->room[i], (char *)thread->saved + i * thread->saved_size, thread->saved_size);
    }
    return until(thread, ns);
}

const struct handler call_poll = {poll_enter, none_ready, false};
const struct handler call_ppoll = {ppoll_enter, none_ready, false};
const struct handler call_select = {select_enter, none_ready, false};
const struct handler call_epoll = {epoll_enter, none_ready, false};
