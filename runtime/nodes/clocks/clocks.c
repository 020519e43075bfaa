/* Calls that read the time, or sleep: the time is the node's. */
#include <errno.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>

#include "compared.h"
#include "nodes/parts.h"

#define TICKS 100u /* in a second, of times() */

static enum then gettime_enter(struct thread *thread)
{
    int clock = (int)argument(thread, 0);
    if (clock == CC_COMPARED_CLOCK)
        return compared(thread);
    if (time_base(clock) == FOREVER)
        return answer(thread, -EINVAL);
    clock_read(thread->process->node, thread->now.rsp);
    return answer(thread, time_write(thread, argument(thread, 1), time_of(thread->process->node, clock)) ? 0 : -EFAULT);
}

static enum then getres_enter(struct thread *thread)
{
    if (time_base((int)argument(thread, 0)) == FOREVER)
        return answer(thread, -EINVAL);
    return answer(thread, !argument(thread, 1) || time_write(thread, argument(thread, 1), 1) ? 0 : -EFAULT);
}

static enum then gettimeofday_enter(struct thread *thread)
{
    clock_read(thread->process->node, thread->now.rsp);
    uint64_t ns = time_of(thread->process->node, CLOCK_REALTIME);
    struct timeval time = {(time_t)(ns / SECOND), (suseconds_t)(ns % SECOND / 1000)};
    struct timezone zone = {0, 0};
    bool done = (!argument(thread, 0) || memory_write(thread, argument(thread, 0), &time, sizeof time)) &&
                (!argument(thread, 1) || memory_write(thread, argument(thread, 1), &zone, sizeof zone));
    return answer(thread, done ? 0 : -EFAULT);
}

static enum then time_enter(struct thread *thread)
{
    clock_read(thread->process->node, thread->now.rsp);
    int64_t seconds = (int64_t)(time_of(thread->process->node, CLOCK_REALTIME) / SECOND);
    if (argument(thread, 0) && !memory_write(thread, argument(thread, 0), &seconds, sizeof seconds))
        return answer(thread, -EFAULT);
    return answer(thread, seconds);
}

static enum then times_enter(struct thread *thread)
{
    struct tms none = {0, 0, 0, 0};
    clock_read(thread->process->node, thread->now.rsp);
    if (argument(thread, 0) && !memory_write(thread, argument(thread, 0), &none, sizeof none))
        return answer(thread, -EFAULT);
    return answer(thread, (int64_t)(time_of(thread->process->node, CLOCK_MONOTONIC) / (SECOND / TICKS)));
}

static enum then sleep_until(struct thread *thread, uint64_t due, bool from_now, uint64_t remains_at)
{
    if (!thread->again && due <= thread->process->node->now)
        return answer(thread, 0);
    thread->remains_at = remains_at;
    return hold_until(thread, false, NOT_RESTARTED, due, from_now, 0);
}

static enum then nanosleep_enter(struct thread *thread)
{
    uint64_t ns;
    if (!time_read(thread, argument(thread, 0), &ns))
        return answer(thread, -EINVAL);
    return sleep_until(thread, due_after(thread->process->node, ns), true, argument(thread, 1));
}

static enum then clock_nanosleep_enter(struct thread *thread)
{
    uint64_t ns, base = time_base((int)argument(thread, 0));
    if (base == FOREVER || !time_read(thread, argument(thread, 2), &ns))
        return answer(thread, -EINVAL);
    if (base == 0)
        name_uncontrolled(thread->process->node, "a sleep by a processor's time");
    if (argument(thread, 1) & TIMER_ABSTIME)
        return sleep_until(thread, ns > base ? ns - base : 0, false, 0);
    return sleep_until(thread, due_after(thread->process->node, ns), true, argument(thread, 3));
}

const struct handler call_clock_gettime = {gettime_enter, NULL, false};
const struct handler call_clock_getres = {getres_enter, NULL, false};
const struct handler call_gettimeofday = {gettimeofday_enter, NULL, false};
const struct handler call_time = {time_enter, NULL, false};
const struct handler call_times = {times_enter, NULL, false};
const struct handler call_nanosleep = {nanosleep_enter, NULL, false};
const struct handler call_clock_nanosleep = {clock_nanosleep_enter, NULL, false};
