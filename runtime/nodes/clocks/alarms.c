/* Timers that send signals, and those that are files. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "nodes/parts.h"

static uint64_t in_ns(struct timespec time)
{
    return (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
}

static struct timespec in_time(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / SECOND), (long)(ns % SECOND)};
}

static uint64_t left_of(const struct timer *timer)
{
    if (!timer || !timer->armed)
        return 0;
    return timer->due > timer->node->now ? timer->due - timer->node->now : 1;
}

static void signal_sent(const struct timer *timer)
{
    siginfo_t about;
    struct process *process = timer->process;
    memset(&about, 0, sizeof about);
    about.si_signo = timer->signal;
    about.si_code = timer->id < 0 ? SI_USER : SI_TIMER;
    about.si_value.sival_ptr = (void *)(uintptr_t)timer->value;
    if (timer->id < 0)
        kill(process->pid, timer->signal);
    else if (timer->receiver)
        syscall(SYS_rt_tgsigqueueinfo, process->pid, timer->receiver, timer->signal, &about);
    else
        syscall(SYS_rt_sigqueueinfo, process->pid, timer->signal, &about);
    process->signalled = true;
}

void alarm_fire(struct timer *timer)
{
    uint64_t times = 1;
    timer_disarm(timer);
    if (timer->period)
        times += (timer->node->now - timer->due) / timer->period;
    if (timer->kind == SENDS_SIGNAL && timer->signal)
        signal_sent(timer);
    if (timer->kind == FIRES_FILE && write(timer->object->ours, &times, sizeof times) != sizeof times)
        fail("a timer's file", strerror(errno));
    timer->node->activity++;
    if (timer->period)
        timer_arm(timer, timer->due + times * timer->period, false);
}

/* `value` 0: it ends. `absolute`: by that clock, else from now. */
static void set(struct timer *timer, struct timespec value, struct timespec period, bool absolute, int clock)
{
    uint64_t ns = in_ns(value), base = time_base(clock);
    timer->period = in_ns(period);
    if (!ns)
        timer_disarm(timer);
    else
        timer_arm(timer, absolute ? (ns > base ? ns - base : 0) : due_after(timer->node, ns), !absolute);
}

static bool write_setting(struct thread *thread, uint64_t at, const struct timer *timer)
{
    struct itimerspec now = {in_time(timer && timer->armed ? timer->period : 0), in_time(left_of(timer))};
    return !at || memory_write(thread, at, &now, sizeof now);
}

static struct timer *timer_of(const struct process *process, int id)
{
    struct timer *timer = timer_next(NULL);
    while (timer && !(timer->kind == SENDS_SIGNAL && timer->process == process && timer->id == id))
        timer = timer_next(timer);
    return timer;
}

void alarms_end(struct process *process)
{
    struct timer *next;
    for (struct timer *timer = timer_next(NULL); timer; timer = next) {
        next = timer_next(timer);
        if (timer->kind == SENDS_SIGNAL && timer->process == process)
            timer_free(timer);
    }
}

/* A timer's file is one of those that count: the kernel's reads and polls of both are the same. */
static enum then file_create_enter(struct thread *thread)
{
    thread->now.orig_rax = SYS_eventfd2;
    thread->now.rdi = 0;
    thread->changed = true;
    return AFTER;
}

static enum then file_create_leave(struct thread *thread)
{
    int fd = (int)thread->result;
    if (fd < 0)
        return ANSWER;
    struct object *object = object_new(thread->process->node, TIMER_FILE);
    object->clock = (int)argument(thread, 0);
    object->ours = descriptor_ours(thread, fd);
    object->timer = timer_new(object->node, FIRES_FILE);
    object->timer->object = object;
    descriptor_set(thread->process, fd, object);
    return ANSWER;
}

static enum then file_set_enter(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    struct itimerspec wanted;
    uint64_t count;
    if (!object || object->kind != TIMER_FILE)
        return answer(thread, -EINVAL);
    if (memory_read(thread, argument(thread, 2), &wanted, sizeof wanted) != sizeof wanted)
        return answer(thread, -EFAULT);
    if (!write_setting(thread, argument(thread, 3), object->timer))
        return answer(thread, -EFAULT);
    struct pollfd fired = {.fd = object->ours, .events = POLLIN};
    if (poll(&fired, 1, 0) == 1 && read(object->ours, &count, sizeof count) < 0)
        fail("a timer's file", strerror(errno));
    set(object->timer, wanted.it_value, wanted.it_interval, argument(thread, 1) & TFD_TIMER_ABSTIME, object->clock);
    return answer(thread, 0);
}

static enum then file_get_enter(struct thread *thread)
{
    const struct object *object = object_at(thread, (int)argument(thread, 0));
    if (!object || object->kind != TIMER_FILE)
        return answer(thread, -EINVAL);
    return answer(thread, write_setting(thread, argument(thread, 1), object->timer) ? 0 : -EFAULT);
}

static struct timer *alarm_of(struct process *process)
{
    struct timer *timer = timer_of(process, -1);
    if (!timer) {
        timer = timer_new(process->node, SENDS_SIGNAL);
        timer->process = process;
        timer->signal = SIGALRM;
    }
    return timer;
}

static enum then alarm_enter(struct thread *thread)
{
    struct timer *timer = alarm_of(thread->process);
    uint64_t left = left_of(timer);
    set(timer, (struct timespec){(time_t)(uint32_t)argument(thread, 0), 0}, (struct timespec){0, 0}, false, CLOCK_MONOTONIC);
    return answer(thread, (int64_t)((left + SECOND - 1) / SECOND));
}

static bool write_itimer(struct thread *thread, uint64_t at, const struct timer *timer)
{
    uint64_t left = left_of(timer), period = timer && timer->armed ? timer->period : 0;
    struct itimerval now = {{(time_t)(period / SECOND), (suseconds_t)(period % SECOND / 1000)},
                            {(time_t)(left / SECOND), (suseconds_t)(left % SECOND / 1000)}};
    return !at || memory_write(thread, at, &now, sizeof now);
}

static enum then setitimer_enter(struct thread *thread)
{
    struct itimerval wanted = {{0, 0}, {0, 0}};
    struct timer *timer = alarm_of(thread->process);
    if (argument(thread, 0) != ITIMER_REAL) {
        thread->process->node->by_processor = true;
        return answer(thread, 0);
    }
    if (argument(thread, 1) && memory_read(thread, argument(thread, 1), &wanted, sizeof wanted) != sizeof wanted)
        return answer(thread, -EFAULT);
    if (!write_itimer(thread, argument(thread, 2), timer))
        return answer(thread, -EFAULT);
    struct timespec value = {wanted.it_value.tv_sec, wanted.it_value.tv_usec * 1000};
    set(timer, value, (struct timespec){wanted.it_interval.tv_sec, wanted.it_interval.tv_usec * 1000}, false, CLOCK_MONOTONIC);
    return answer(thread, 0);
}

static enum then getitimer_enter(struct thread *thread)
{
    return answer(thread, write_itimer(thread, argument(thread, 1), timer_of(thread->process, -1)) ? 0 : -EFAULT);
}

static enum then create_enter(struct thread *thread)
{
    struct sigevent event = {.sigev_signo = SIGALRM, .sigev_notify = SIGEV_SIGNAL};
    int id = 0;
    while (timer_of(thread->process, id))
        id++;
    if (argument(thread, 1) && memory_read(thread, argument(thread, 1), &event, sizeof event) != sizeof event)
        return answer(thread, -EFAULT);
    if (!memory_write(thread, argument(thread, 2), &id, sizeof id))
        return answer(thread, -EFAULT);
    struct timer *timer = timer_new(thread->process->node, SENDS_SIGNAL);
    timer->process = thread->process;
    timer->id = id;
    timer->by_processor = time_base((int)argument(thread, 0)) == 0;
    timer->signal = event.sigev_notify == SIGEV_NONE ? 0 : event.sigev_signo;
    timer->value = argument(thread, 1) ? (uintptr_t)event.sigev_value.sival_ptr : (uint64_t)id;
    for (const struct thread *one = thread->process->threads; one && event.sigev_notify == SIGEV_THREAD_ID; one = one->next)
        if (one->known_as == event._sigev_un._tid)
            timer->receiver = one->tid;
    return answer(thread, 0);
}

static enum then settime_enter(struct thread *thread)
{
    struct timer *timer = timer_of(thread->process, (int)argument(thread, 0));
    struct itimerspec wanted;
    if (!timer)
        return answer(thread, -EINVAL);
    if (memory_read(thread, argument(thread, 2), &wanted, sizeof wanted) != sizeof wanted ||
        !write_setting(thread, argument(thread, 3), timer))
        return answer(thread, -EFAULT);
    if (timer->by_processor) {
        timer->node->by_processor = true;
        return answer(thread, 0);
    }
    set(timer, wanted.it_value, wanted.it_interval, argument(thread, 1) & TIMER_ABSTIME, CLOCK_MONOTONIC);
    if (argument(thread, 1) & TIMER_ABSTIME)
        name_uncontrolled(thread->process->node, "timer_settime with TIMER_ABSTIME");
    return answer(thread, 0);
}

static enum then get_enter(struct thread *thread)
{
    const struct timer *timer = timer_of(thread->process, (int)argument(thread, 0));
    return answer(thread, !timer ? -EINVAL : write_setting(thread, argument(thread, 1), timer) ? 0 : -EFAULT);
}

static enum then overrun_enter(struct thread *thread)
{
    return answer(thread, 0);
}

static enum then delete_enter(struct thread *thread)
{
    struct timer *timer = timer_of(thread->process, (int)argument(thread, 0));
    if (!timer)
        return answer(thread, -EINVAL);
    timer_free(timer);
    return answer(thread, 0);
}

const struct handler call_timerfd_create = {file_create_enter, file_create_leave, false};
const struct handler call_timerfd_settime = {file_set_enter, NULL, false};
const struct handler call_timerfd_gettime = {file_get_enter, NULL, false};
const struct handler call_alarm = {alarm_enter, NULL, false};
const struct handler call_setitimer = {setitimer_enter, NULL, false};
const struct handler call_getitimer = {getitimer_enter, NULL, false};
const struct handler call_timer_create = {create_enter, NULL, false};
const struct handler call_timer_settime = {settime_enter, NULL, false};
const struct handler call_timer_gettime = {get_enter, NULL, false};
const struct handler call_timer_getoverrun = {overrun_enter, NULL, false};
const struct handler call_timer_delete = {delete_enter, NULL, false};
