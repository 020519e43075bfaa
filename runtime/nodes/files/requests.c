/* Asynchronous requests to files (io_submit). The kernel carries each out at once, but its end is hidden from the program until the
 * caller orders it: it is in a ring that the kernel shares with the program, behind what the ring has as its last event. */
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "nodes/parts.h"

#define RING_MAGIC 0xa10a10a1u
#define SUBMITTED_MOST 1024u /* by one call, which may accept fewer than it was given */
#define LOOK_NS 10000        /* between two looks whether the kernel is done */
#define LOOKS_MOST 500000
#define RINGS_LEFT_MOST 16 /* of a process: the kernel's limit is shared by all */

struct ring_head { /* struct aio_ring of the kernel's fs/aio.c; then come its events */
    uint32_t id, count, head, tail, magic, compatible, incompatible, bytes;
};

/* One that is under way, as the program sees it. */
struct request {
    struct ring *ring;
    uint32_t number; /* of its node */
    uint64_t iocb;   /* the program's address of it */
    int counter;     /* the file that counts what has ended, or -1 */
    struct request *next;
};

struct ring {
    struct process *process;
    uint64_t address;
    uint32_t count;
    uint32_t shown, last; /* the kernel has written all events before `last`; the program sees those before `shown` */
    bool open;            /* nothing is hidden: it has requests that may take any time */
    struct ring *next;
};

static struct ring *rings;
static struct request *requests;
static struct iocb submitted[SUBMITTED_MOST]; /* by the call that is being made, as the program wrote them */
static uint64_t addresses[SUBMITTED_MOST];

static bool head_read(const struct thread *thread, uint64_t address, struct ring_head *head)
{
    return memory_read(thread, address, head, sizeof *head) == sizeof *head && head->magic == RING_MAGIC && head->count;
}

static struct ring *ring_of(const struct thread *thread, uint64_t address)
{
    struct ring_head head;
    for (struct ring *ring = rings; ring; ring = ring->next)
        if (ring->process == thread->process && ring->address == address)
            return ring;
    if (!head_read(thread, address, &head))
        return NULL;
    struct ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        abort();
    *ring = (struct ring){thread->process, address, head.count, head.tail, head.tail, false, rings};
    return rings = ring;
}

static void show(const struct thread *thread, const struct ring *ring)
{
    memory_write(thread, ring->address + offsetof(struct ring_head, tail), &ring->shown, sizeof ring->shown);
}

static uint64_t event_at(const struct ring *ring, uint32_t place)
{
    return ring->address + sizeof(struct ring_head) + (uint64_t)(place % ring->count) * sizeof(struct io_event);
}

static void withdraw(struct request **at)
{
    struct request *request = *at;
    const struct node *node = request->ring->process->node;
    wire_event((struct cc_frame){.tag = CC_WITHDRAWN, .node = node->index, .number = request->number}, NULL, NULL, 0);
    *at = request->next;
    if (request->counter >= 0)
        close(request->counter);
    free(request);
}

static void ring_end(struct ring **at)
{
    struct ring *ring = *at;
    for (struct request **one = &requests; *one;)
        if ((*one)->ring == ring)
            withdraw(one);
        else
            one = &(*one)->next;
    *at = ring->next;
    free(ring);
}

void requests_end(const struct process *process)
{
    for (struct ring **at = &rings; *at;)
        if ((*at)->process == process)
            ring_end(at);
        else
            at = &(*at)->next;
}

/* One that the kernel carries out without waiting for anybody. */
static bool of_file(const struct thread *thread, const struct iocb *iocb)
{
    return iocb->aio_lio_opcode != IOCB_CMD_POLL && descriptor_plain(thread, (int)iocb->aio_fildes);
}

static enum then submit_enter(struct thread *thread)
{
    struct ring *ring = ring_of(thread, argument(thread, 0));
    uint64_t count = argument(thread, 1) < SUBMITTED_MOST ? argument(thread, 1) : SUBMITTED_MOST;
    if (!ring || (int64_t)count <= 0 || memory_read(thread, argument(thread, 2), addresses, count * sizeof *addresses) != count * sizeof *addresses)
        return NATIVE;
    for (uint64_t i = 0; i < count; i++) {
        struct iocb iocb;
        if (memory_read(thread, addresses[i], &submitted[i], sizeof iocb) != sizeof iocb) {
            count = i; /* the kernel reports that once those before it are done */
            break;
        }
        if (!ring->open && !of_file(thread, &submitted[i])) {
            name_uncontrolled(thread->process->node, "io_submit for what is no file");
            ring->open = true;
        }
    }
    for (uint64_t i = 0; i < count && !ring->open; i++) {
        struct iocb iocb = submitted[i];
        iocb.aio_flags &= ~(uint32_t)IOCB_FLAG_RESFD;
        iocb.aio_rw_flags &= ~RWF_NOWAIT;             /* whether it has to wait differs from run to run */
        iocb.aio_rw_flags &= ~(RWF_DSYNC | RWF_SYNC); /* as call_sync has it */
        memory_write(thread, addresses[i], &iocb, sizeof iocb);
    }
    thread->room[0] = count;
    thread->now.rsi = count ? count : argument(thread, 1);
    thread->changed = true;
    return AFTER;
}

static void await(const struct thread *thread, struct ring *ring, uint32_t more)
{
    struct ring_head head;
    const struct timespec pause = {0, LOOK_NS};
    ring->last = (ring->last + more) % ring->count;
    for (uint32_t looks = 0; head_read(thread, ring->address, &head) && head.tail != ring->last; looks++) {
        if (looks == LOOKS_MOST)
            fail("a request to a file", "the kernel does not end it");
        nanosleep(&pause, NULL);
    }
}

static void accept_request(struct thread *thread, struct ring *ring, uint64_t place)
{
    struct node *node = thread->process->node;
    struct request *request = calloc(1, sizeof *request), **at = &requests;
    if (!request)
        abort();
    const struct iocb *iocb = &submitted[place];
    int counter = iocb->aio_flags & IOCB_FLAG_RESFD ? descriptor_ours(thread, (int)iocb->aio_resfd) : -1;
    *request = (struct request){ring, node->requests++, addresses[place], counter, NULL};
    while (*at)
        at = &(*at)->next;
    *at = request;
    wire_event((struct cc_frame){.tag = CC_SUBMITTED, .node = node->index, .number = request->number}, NULL, NULL, 0);
}

static enum then submit_leave(struct thread *thread)
{
    struct ring *ring = ring_of(thread, argument(thread, 0));
    if (!ring || ring->open)
        return ANSWER;
    for (uint64_t i = 0; i < thread->room[0]; i++)
        memory_write(thread, addresses[i], &submitted[i], sizeof submitted[i]);
    if (thread->result <= 0)
        return ANSWER;
    await(thread, ring, (uint32_t)thread->result);
    show(thread, ring);
    for (int64_t i = 0; i < thread->result; i++)
        accept_request(thread, ring, (uint64_t)i);
    return ANSWER;
}

/* Puts the event of a request before those that stay hidden, and shows it. */
static void reveal(const struct thread *thread, struct ring *ring, uint64_t iocb)
{
    struct io_event first, found;
    uint64_t at = event_at(ring, ring->shown);
    memory_read(thread, at, &first, sizeof first);
    for (uint32_t place = ring->shown; place != ring->last; place = (place + 1) % ring->count) {
        if (memory_read(thread, event_at(ring, place), &found, sizeof found) != sizeof found || found.obj != iocb)
            continue;
        memory_write(thread, event_at(ring, place), &first, sizeof first);
        memory_write(thread, at, &found, sizeof found);
        break;
    }
    ring->shown = (ring->shown + 1) % ring->count;
    show(thread, ring);
}

void request_completes(struct node *node, uint32_t number)
{
    const uint64_t once = 1;
    struct request **at = &requests;
    while (*at && ((*at)->ring->process->node != node || (*at)->number != number))
        at = &(*at)->next;
    if (!*at)
        return;
    reveal((*at)->ring->process->threads, (*at)->ring, (*at)->iocb);
    if ((*at)->counter >= 0 && write((*at)->counter, &once, sizeof once) != sizeof once)
        fail("a counter of requests", "it is full");
    withdraw(at);
    node->activity++;
}

/* io_getevents, io_pgetevents: it waits until as many have ended as it wants. */
static enum then get_enter(struct thread *thread)
{
    struct ring_head head;
    const struct ring *ring = ring_of(thread, argument(thread, 0));
    uint64_t ns = FOREVER;
    if (!ring || ring->open || (int64_t)argument(thread, 1) <= 0 || !head_read(thread, ring->address, &head))
        return NATIVE;
    if ((head.tail + head.count - head.head) % head.count >= argument(thread, 1))
        return NATIVE;
    if (argument(thread, 4) && (!time_read(thread, argument(thread, 4), &ns) || ns == 0))
        return NATIVE;
    return hold_until(thread, true, NOT_RESTARTED, ns == FOREVER ? FOREVER : due_after(thread->process->node, ns), true, 0);
}

/* The kernel takes tens of milliseconds for it, for each ring; at the end of a process it waits for all of them at once. So the
 * first few of a process stay until then. */
static enum then destroy_enter(struct thread *thread)
{
    struct ring **at = &rings;
    while (*at && ((*at)->process != thread->process || (*at)->address != argument(thread, 0)))
        at = &(*at)->next;
    if (!*at)
        return NATIVE;
    bool stays = !(*at)->open && thread->process->rings_left < RINGS_LEFT_MOST;
    ring_end(at);
    if (!stays)
        return NATIVE;
    thread->process->rings_left++;
    return answer(thread, 0);
}

const struct handler call_submit = {submit_enter, submit_leave, false};
const struct handler call_get_events = {get_enter, NULL, true};
const struct handler call_destroy_ring = {destroy_enter, NULL, true};
