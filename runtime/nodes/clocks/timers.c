/* What waits for the time of a node: time passes only when the caller moves it. */
#include <stdlib.h>

#include "nodes/parts.h"

/* What the clocks show when a run begins. */
#define REAL_BEGIN (1577836800 * SECOND) /* 2020-01-01 */

#define MONOTONIC_BEGIN (1000 * SECOND)

#define OWNED_BY_NO_THREAD 0x8000u /* a bit of its name */

static struct timer *timers;

struct timer *timer_new(struct node *node, enum timer_kind kind)
{
    struct timer *timer = calloc(1, sizeof *timer), **at = &timers;
    if (!timer)
        abort();
    timer->node = node;
    timer->kind = kind;
    timer->id = -1;
    timer->owner = node->timers_made++;
    while (*at)
        at = &(*at)->next;
    *at = timer;
    return timer;
}

void timer_disarm(struct timer *timer)
{
    if (timer->armed)
        wire_event((struct cc_frame){.tag = CC_DISARMED, .node = timer->node->index, .number = timer->number}, NULL, NULL, 0);
    timer->armed = false;
}

void timer_arm(struct timer *timer, uint64_t due, bool from_now)
{
    timer_disarm(timer);
    timer->armed = true;
    timer->due = due < timer->node->now ? timer->node->now : due;
    timer->number = timer->node->timers++;
    uint16_t owner = timer->thread ? (uint16_t)timer->thread->number : (uint16_t)(timer->owner | OWNED_BY_NO_THREAD);
    wire_event((struct cc_frame){.tag = CC_ARMED, .node = timer->node->index, .number = timer->number, .value = timer->due,
                                 .other = from_now, .port = owner},
               NULL, NULL, 0);
}

void timer_free(struct timer *timer)
{
    struct timer **at = &timers;
    timer_disarm(timer);
    while (*at != timer)
        at = &(*at)->next;
    *at = timer->next;
    free(timer);
}

struct timer *timer_known(const struct node *node, uint32_t number)
{
    struct timer *timer = timers;
    while (timer && !(timer->node == node && timer->armed && timer->number == number))
        timer = timer->next;
    return timer;
}

struct timer *timer_next(struct timer *timer)
{
    return timer ? timer->next : timers;
}

uint64_t time_base(int clock)
{
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_REALTIME_ALARM:
    case CLOCK_TAI:
        return REAL_BEGIN;
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
    case CLOCK_BOOTTIME_ALARM:
        return MONOTONIC_BEGIN;
    case CLOCK_PROCESS_CPUTIME_ID:
    case CLOCK_THREAD_CPUTIME_ID:
        return 0;
    default:
        return clock < 0 ? 0 : FOREVER; /* below 0: of a process or thread */
    }
}

uint64_t time_of(const struct node *node, int clock)
{
    uint64_t base = time_base(clock);
    return base ? base + node->now : 0; /* a processor's time does not pass */
}

uint64_t due_after(const struct node *node, uint64_t ns)
{
    return ns > FOREVER - 1 - node->now ? FOREVER : node->now + ns;
}

bool time_read(const struct thread *thread, uint64_t address, uint64_t *ns)
{
    struct timespec time;
    if (memory_read(thread, address, &time, sizeof time) != sizeof time || time.tv_sec < 0 || time.tv_nsec < 0 ||
        time.tv_nsec >= (long)SECOND)
        return false;
    *ns = (uint64_t)time.tv_sec > FOREVER / SECOND - 1 ? FOREVER - 1 : (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec;
    return true;
}

bool time_write(const struct thread *thread, uint64_t address, uint64_t ns)
{
    struct timespec time = {(time_t)(ns / SECOND), (long)(ns % SECOND)};
    return memory_write(thread, address, &time, sizeof time);
}
