/* Locks of threads: who waits, and who is woken, is decided here, in the order in which they came. */
#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>

#include "nodes/parts.h"

static bool waits_at(const struct thread *thread, const struct process *process, uint64_t address, bool shared, uint32_t bits)
{
    return thread->state == HELD && thread->futex == address && (thread->process == process || (shared && thread->futex_shared)) &&
           thread->bits & bits;
}

/* The one that has waited longest: room[0] numbers the waits. */
static struct thread *longest(struct process *process, uint64_t address, bool shared, uint32_t bits)
{
    struct thread *found = NULL;
    for (struct process *one = process->node->processes; one; one = one->next)
        for (struct thread *thread = one->threads; thread; thread = thread->next)
            if (waits_at(thread, process, address, shared, bits) && (!found || thread->room[0] < found->room[0]))
                found = thread;
    return found;
}

static int64_t wake(struct process *process, uint64_t address, bool shared, uint32_t bits, uint32_t count)
{
    int64_t woken = 0;
    struct thread *thread;
    while (woken < (int64_t)count && (thread = longest(process, address, shared, bits))) {
        hold_ends(thread, 0);
        woken++;
    }
    return woken;
}

static enum then wait(struct thread *thread, uint64_t address, bool shared, uint32_t bits)
{
    static uint64_t waits;
    int command = (int)argument(thread, 1);
    uint32_t value;
    uint64_t due = FOREVER, ns, base;
    bool absolute = (command & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    if (!bits)
        return answer(thread, -EINVAL);
    if (memory_read(thread, address, &value, sizeof value) != sizeof value)
        return answer(thread, -EFAULT);
    if (value != (uint32_t)argument(thread, 2))
        return answer(thread, -EAGAIN);
    if (argument(thread, 3)) {
        if (!time_read(thread, argument(thread, 3), &ns))
            return answer(thread, -EINVAL);
        base = time_base(command & FUTEX_CLOCK_REALTIME ? CLOCK_REALTIME : CLOCK_MONOTONIC);
        due = !absolute ? due_after(thread->process->node, ns) : ns > base ? ns - base : 0;
        if (!thread->again && due <= thread->process->node->now)
            return answer(thread, -ETIMEDOUT);
    }
    if (!thread->again)
        thread->room[0] = waits++;
    hold_until(thread, shared, RESTARTED, due, !absolute, -ETIMEDOUT);
    thread->futex = address;
    thread->futex_shared = shared;
    thread->bits = bits;
    return HOLD;
}

static enum then requeue(struct thread *thread, bool shared, bool compares)
{
    uint32_t value, most = (uint32_t)argument(thread, 3);
    uint64_t address = argument(thread, 0);
    if (compares && memory_read(thread, address, &value, sizeof value) != sizeof value)
        return answer(thread, -EFAULT);
    if (compares && value != (uint32_t)argument(thread, 5))
        return answer(thread, -EAGAIN);
    int64_t woken = wake(thread->process, address, shared, FUTEX_BITSET_MATCH_ANY, (uint32_t)argument(thread, 2)), moved = 0;
    struct thread *one;
    for (; moved < (int64_t)most && (one = longest(thread->process, address, shared, FUTEX_BITSET_MATCH_ANY)); moved++)
        one->futex = argument(thread, 4);
    return answer(thread, woken + (compares ? moved : 0));
}

static bool holds(uint32_t old, uint32_t comparison, uint32_t value)
{
    switch (comparison) {
    case FUTEX_OP_CMP_EQ:
        return old == value;
    case FUTEX_OP_CMP_NE:
        return old != value;
    case FUTEX_OP_CMP_LT:
        return (int32_t)old < (int32_t)value;
    case FUTEX_OP_CMP_LE:
        return (int32_t)old <= (int32_t)value;
    case FUTEX_OP_CMP_GT:
        return (int32_t)old > (int32_t)value;
    default:
        return (int32_t)old >= (int32_t)value;
    }
}

static enum then wake_op(struct thread *thread, bool shared)
{
    uint32_t code = (uint32_t)argument(thread, 5), old, operation = code >> 28 & 7, value = code >> 12 & 0xfff;
    uint64_t second = argument(thread, 4);
    if (memory_read(thread, second, &old, sizeof old) != sizeof old)
        return answer(thread, -EFAULT);
    if (code >> 31)
        value = 1u << (value & 31);
    uint32_t now = operation == FUTEX_OP_SET ? value : operation == FUTEX_OP_ADD ? old + value : operation == FUTEX_OP_OR ? old | value
                 : operation == FUTEX_OP_ANDN ? old & ~value : old ^ value;
    memory_write(thread, second, &now, sizeof now);
    int64_t woken = wake(thread->process, argument(thread, 0), shared, FUTEX_BITSET_MATCH_ANY, (uint32_t)argument(thread, 2));
    if (holds(old, code >> 24 & 15, code & 0xfff))
        woken += wake(thread->process, second, shared, FUTEX_BITSET_MATCH_ANY, (uint32_t)argument(thread, 3));
    return answer(thread, woken);
}

static enum then futex_enter(struct thread *thread)
{
    int command = (int)argument(thread, 1);
    bool shared = !(command & FUTEX_PRIVATE_FLAG);
    uint64_t address = argument(thread, 0);
    bool waits = (command & FUTEX_CMD_MASK) == FUTEX_WAIT || (command & FUTEX_CMD_MASK) == FUTEX_WAIT_BITSET;
    if (shared && !waits)
        thread->process->node->activity++; /* those of other processes look again */
    switch (command & FUTEX_CMD_MASK) {
    case FUTEX_WAIT:
        return wait(thread, address, shared, FUTEX_BITSET_MATCH_ANY);
    case FUTEX_WAIT_BITSET:
        return wait(thread, address, shared, (uint32_t)argument(thread, 5));
    case FUTEX_WAKE:
        return answer(thread, wake(thread->process, address, shared, FUTEX_BITSET_MATCH_ANY, (uint32_t)argument(thread, 2)));
    case FUTEX_WAKE_BITSET:
        return answer(thread, wake(thread->process, address, shared, (uint32_t)argument(thread, 5), (uint32_t)argument(thread, 2)));
    case FUTEX_REQUEUE:
    case FUTEX_CMP_REQUEUE:
        return requeue(thread, shared, (command & FUTEX_CMD_MASK) == FUTEX_CMP_REQUEUE);
    case FUTEX_WAKE_OP:
        return wake_op(thread, shared);
    default:
        name_uncontrolled(thread->process->node, "a futex that inherits priorities");
        return NATIVE;
    }
}

/* A thread ended: the kernel cleared what others wait for. */
void futexes_look(struct process *process)
{
    uint32_t value;
    for (struct thread *thread = process->threads; thread; thread = thread->next) {
        if (thread->state != HELD || !thread->futex)
            continue;
        if (memory_read(thread, thread->futex, &value, sizeof value) == sizeof value && value != (uint32_t)argument(thread, 2))
            hold_ends(thread, 0);
    }
}

const struct handler call_futex = {futex_enter, NULL, false};
