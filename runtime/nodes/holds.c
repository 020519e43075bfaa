/* Calls that wait: a thread whose call cannot be done yet is stopped where it returns, until the call is made again, ends, or
 * is interrupted by a signal. */
#include <stdlib.h>

#include "nodes/parts.h"

enum then hold_until(struct thread *thread, bool retried, int restart, uint64_t due, bool from_now, int64_t late)
{
    thread->retried = retried;
    thread->restart = restart;
    thread->late = late;
    if (!thread->again && due != FOREVER) {
        thread->timer = timer_new(thread->process->node, ENDS_WAIT);
        thread->timer->thread = thread;
        timer_arm(thread->timer, due, from_now);
    }
    return HOLD;
}

enum then hold(struct thread *thread, bool retried, int restart)
{
    return hold_until(thread, retried, restart, FOREVER, false, 0);
}

void hold_over(struct thread *thread)
{
    if (thread->timer)
        timer_free(thread->timer);
    thread->timer = NULL;
    thread->again = false;
    thread->futex = 0;
    thread->waits_on = NULL;
    thread->remains_at = 0;
    thread->yields = false;
    free(thread->saved);
    thread->saved = NULL;
}

void hold_ends(struct thread *thread, int64_t result)
{
    hold_over(thread);
    thread->now = thread->called;
    thread->now.rax = (uint64_t)result;
    thread->changed = true;
    ready(thread);
}

static void put_back(struct thread *thread)
{
    for (size_t i = 0; thread->saved && i < SETS; i++)
        if (thread->room[i])
            memory_write(thread, thread->room[i], (char *)thread->saved + i * thread->saved_size, thread->saved_size);
}

void hold_retry(struct thread *thread)
{
    put_back(thread);
    thread->again = true;
    thread->now = thread->called;
    thread->now.rax = thread->called.orig_rax;
    thread->now.rip -= 2; /* the instruction `syscall` */
    thread->changed = true;
    ready(thread);
}

void hold_interrupt(struct thread *thread)
{
    const struct timer *timer = thread->timer;
    if (timer && thread->remains_at)
        time_write(thread, thread->remains_at, timer->due > timer->node->now ? timer->due - timer->node->now : 0);
    put_back(thread);
    thread->again = true;
    thread->now = thread->called;
    thread->now.rax = (uint64_t)-(int64_t)thread->restart;
    thread->changed = true;
    ready(thread);
}
