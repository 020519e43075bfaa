/* Runs the nodes of one execution: reads orders of its caller, carries each out until all threads wait, and answers.
 *
 *   nodes FD FOLDER RECORDER
 *
 * FD is a socket that its caller holds the other end of. When that end is closed, all that runs here ends. FOLDER is for files of
 * ours that nodes read. RECORDER is the library that records what they do to files. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "nodes/parts.h"

static int wire;

/* Sent whenever something comes, or the caller has gone. */
static void on_input(int signal)
{
    char byte;
    (void)signal;
    int before = errno;
    if (recv(wire, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0)
        _exit(0); /* what we trace is killed with us */
    errno = before;
}

/* One processor for us and for all that runs here: so each stop is a switch and no message between processors. We read no time
 * stamp, as they must not: a switch to one that may would set a register, which costs a virtual machine 13 µs. */
static void pin(void)
{
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET((size_t)sched_getcpu(), &one);
    sched_setaffinity(0, sizeof one, &one);
    prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
}

static struct object *socket_of(const struct cc_frame *order)
{
    struct object *object = object_numbered(order->number);
    return object && object->ours >= 0 ? object : NULL;
}

static void begin(struct node *node, const struct cc_frame *order, unsigned char *bytes)
{
    uint64_t former = node->random;
    node->random = 0x5851f42d4c957f2du * (node->index + 1u) + order->number;
    if (!former)
        node->index = order->node;
    node->starts = order->number;
    node->places = order->other & CC_START_PLACES;
    node->explores = order->other & CC_START_EXPLORES;
    struct thread *thread = start(node, (char *)bytes, order->size);
    ready(thread);
}

static void fire(struct node *node, uint32_t number)
{
    struct timer *timer = timer_known(node, number);
    if (!timer)
        return;
    if (timer->kind == ENDS_WAIT)
        hold_ends(timer->thread, timer->thread->late);
    else
        alarm_fire(timer);
}

static void arrive(struct object *object, const struct cc_frame *order, const unsigned char *bytes)
{
    struct address from = {.port = order->port};
    if (order->tag != CC_DATAGRAM) {
        stream_arrive(object, bytes, order->size);
        return;
    }
    memcpy(from.ip, bytes, CC_ADDRESS);
    datagram_arrive(object, &from, bytes + CC_ADDRESS, order->size - CC_ADDRESS);
}

/* Returns the thread that is to continue, or NULL. */
static struct thread *carry_out(const struct cc_frame *order, unsigned char *bytes)
{
    struct thread *chosen = NULL;
    struct node *node = &nodes[order->node];
    struct object *object = socket_of(order), *from = object_numbered(order->other);
    node->index = order->node;
    node->read_clock = false;
    memset(node->clock_reads, 0, sizeof node->clock_reads);
    node->turns++;
    if (order->value > node->now)
        node->now = order->value;
    switch (order->tag) {
    case CC_START:
        begin(node, order, bytes);
        break;
    case CC_FIRE:
        fire(node, order->number);
        break;
    case CC_COMPLETE:
        request_completes(node, order->number);
        break;
    case CC_CONTINUE:
        chosen = turn_of(node, order->number);
        break;
    case CC_KILL:
        if (order->other)
            recording_close(node);
        run_end(node);
        break;
    case CC_FAULT:
        fault_add(node, (const char *)bytes, order);
        break;
    case CC_REQUEST:
        if (object && from)
            stream_request(object, from);
        break;
    case CC_CONNECTED:
        if (object)
            stream_connected(object, (int)order->other);
        break;
    case CC_FINISH:
        if (object)
            stream_finish(object);
        break;
    case CC_RESET:
        if (object)
            stream_reset(object);
        break;
    default:
        if (object)
            arrive(object, order, bytes);
    }
    return chosen;
}

int main(int count, char **words)
{
    struct cc_frame order;
    unsigned char *bytes;
    if (count != 7) {
        fprintf(stderr, "usage: nodes FD FOLDER RECORDER JAVASCRIPT JAVA PATIENCE\n");
        return 125;
    }
    wire = atoi(words[1]);
    fcntl(wire, F_SETFD, FD_CLOEXEC);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGIO, on_input);
    sigset_t children;
    sigemptyset(&children);
    sigaddset(&children, SIGCHLD);
    sigprocmask(SIG_BLOCK, &children, NULL);
    fcntl(wire, F_SETOWN, getpid());
    fcntl(wire, F_SETFL, fcntl(wire, F_GETFL) | O_ASYNC);
    pin();
    wire_open(wire);
    objects_closed(socket_closed);
    sockets_open();
    substitutes_in(words[2]);
    files_since(words[2]);
    unrest_after((unsigned)atoi(words[6]));
    recordings_by(words[3], words[2], words[4], words[5]);
    while (wire_read(&order, &bytes)) {
        if (order.node >= NODES)
            fail("order", "no such node");
        files_changed = false;
        run(carry_out(&order, bytes));
        turns_announce();
        wire_event((struct cc_frame){.tag = CC_REST, .number = files_changed, .port = nodes[order.node].maps_files, .value = calls_answered}, NULL, NULL, 0);
        wire_flush();
    }
    return 0;
}
