/* Implicit timers: when a comparison that a program makes of a time will have another outcome (MODIST, section 3.4).
 *
 * The caller hears at what time of the node that is; it lets time pass or not before the step is made again. The least such
 * time is exact if what is compared counts whole units of the clock, and else a unit too early at most. */
#include <errno.h>
#include <float.h>
#include <string.h>

#include "compared.h"
#include "nodes/parts.h"

#define PLACE_MOST 512u
#define YEARS_100 (100ull * 365 * 86400 * SECOND) /* who waits so long waits for ever */

/* By how many units left - right has to grow for another outcome; below 0: it has one already, or gets none by growing. */
static double units_to_grow(double difference, enum cc_comparison relation, double next)
{
    bool equal_decides = relation == CC_LESS || relation == CC_MORE_EQUAL; /* the outcome differs where both are equal */
    if (relation == CC_EQUAL || relation == CC_UNEQUAL)
        return difference < 0 ? -difference : difference == 0 ? next : -1;
    if (equal_decides)
        return difference < 0 ? -difference : -1;
    return difference <= 0 ? -difference + next : -1;
}

/* The relation that holds of right and left if this one holds of left and right. */
static enum cc_comparison turned(enum cc_comparison relation)
{
    switch (relation) {
    case CC_LESS:
        return CC_MORE;
    case CC_LESS_EQUAL:
        return CC_MORE_EQUAL;
    case CC_MORE:
        return CC_LESS;
    case CC_MORE_EQUAL:
        return CC_LESS_EQUAL;
    default:
        return relation;
    }
}

/* left - right, and the smallest step of it. */
static double difference_of(const struct cc_compared_call *call, double *next)
{
    double left, right;
    *next = 1;
    if (!(call->timer.how & CC_FLOATING)) {
        bool less = call->timer.how & CC_UNSIGNED ? call->left < call->right : (int64_t)call->left < (int64_t)call->right;
        return less ? -(double)(call->right - call->left) : (double)(call->left - call->right);
    }
    memcpy(&left, &call->left, sizeof left);
    memcpy(&right, &call->right, sizeof right);
    double largest = left + right < 0 ? -left - right : left + right; /* times have one sign */
    *next = largest * DBL_EPSILON + 1 / call->timer.unit_ns;
    return left - right;
}

static uint64_t due_after_units(uint64_t now, double units, const struct cc_timer *timer)
{
    if (!(units > 0) || !(units * timer->unit_ns < (double)YEARS_100))
        return FOREVER;
    if (timer->how & CC_FLOATING || timer->unit_ns < 1)
        return now + (uint64_t)(units * timer->unit_ns) + 1;
    uint64_t unit_ns = (uint64_t)timer->unit_ns;
    return now / unit_ns * unit_ns + (uint64_t)units * unit_ns;
}

enum then compared(struct thread *thread)
{
    struct cc_compared_call call;
    char place[PLACE_MOST];
    struct node *node = thread->process->node;
    uint64_t address = argument(thread, 1), earliest = FOREVER;
    if (memory_read(thread, address, &call, sizeof call) != sizeof call ||
        !memory_text(thread, (uint64_t)(uintptr_t)call.timer.place, place, sizeof place) || !(call.timer.unit_ns > 0))
        return answer(thread, -EFAULT);
    double next, difference = difference_of(&call, &next);
    enum cc_comparison relation = call.timer.how & CC_COMPARISON;
    if (call.timer.directions & CC_GROWS)
        earliest = due_after_units(node->now, units_to_grow(difference, relation, next), &call.timer);
    if (call.timer.directions & CC_SHRINKS) {
        uint64_t due = due_after_units(node->now, units_to_grow(-difference, turned(relation), next), &call.timer);
        earliest = due < earliest ? due : earliest;
    }
    wire_event((struct cc_frame){.tag = CC_COMPARED, .node = node->index, .value = earliest, .size = (uint32_t)strlen(place)}, place, NULL, 0);
    return answer(thread, 0);
}
