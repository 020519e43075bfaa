/* Connections: requests, both directions of each, and their ends. */
#include <errno.h>
#include <linux/sockios.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "nodes/parts.h"

#define WAITING_MOST 4096 /* connections that were not yet accepted */
#define BUFFER (8 << 20)

static enum then listen_enter(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    if (!object || object->kind < STREAM)
        return NATIVE;
    if (object->kind == DATAGRAM)
        return answer(thread, -EOPNOTSUPP);
    if (object->state == LISTENS)
        return answer(thread, 0);
    if (object->state != FRESH)
        return answer(thread, -EINVAL);
    int theirs = descriptor_ours(thread, (int)argument(thread, 0));
    if (theirs < 0 || bind(theirs, (struct sockaddr *)&any, sizeof any.sun_family) != 0 || listen(theirs, WAITING_MOST) != 0)
        fail("local sockets", strerror(errno));
    object->ours = theirs; /* to learn its name; nothing is read from it */
    if (!object->bound)
        socket_bind_free(object, false);
    object->state = LISTENS;
    wire_event((struct cc_frame){.tag = CC_LISTENING, .node = object->node->index, .number = object->number}, NULL, NULL, 0);
    return answer(thread, 0);
}

/* A second connect: how the first went. */
static enum then connect_again(struct thread *thread, struct object *object)
{
    int error = object->error;
    if (object->state == CONNECTS) {
        if (!thread->again || object != thread->waits_on)
            return answer(thread, -EALREADY);
        return hold(thread, false, RESTARTED);
    }
    if (object->state == CONNECTED)
        return answer(thread, thread->again ? 0 : -EISCONN);
    object->error = 0;
    return answer(thread, error ? -error : -ECONNABORTED);
}

static enum then connect_enter(struct thread *thread)
{
    int fd = (int)argument(thread, 0);
    struct object *object = object_at(thread, fd);
    if (!object || object->kind < STREAM)
        return AFTER;
    if (object->kind == DATAGRAM)
        return answer(thread, datagram_connect(thread, object));
    if (object->state == LISTENS)
        return answer(thread, -EISCONN);
    if (object->state != FRESH)
        return connect_again(thread, object);
    int error = address_read(thread, argument(thread, 1), argument(thread, 2), object->family, &object->peer);
    if (error)
        return answer(thread, -error);
    if (address_any(&object->peer)) {
        uint16_t port = object->peer.port;
        object->peer = address_of_node(object->node, true);
        object->peer.port = port;
    }
    if (!stream_connect_ends(thread, fd, object))
        fail("local sockets", strerror(errno));
    if (!object->bound)
        socket_bind_free(object, address_loop(&object->peer));
    object->state = CONNECTS;
    object->has_peer = true;
    wire_event((struct cc_frame){.tag = CC_CONNECTING, .node = object->node->index, .number = object->number, .port = object->peer.port,
                                 .value = object->local.port, .size = CC_ADDRESS},
               object->peer.ip, object->local.ip, CC_ADDRESS);
    if (waits_not(thread, fd))
        return answer(thread, -EINPROGRESS);
    hold(thread, false, RESTARTED);
    thread->waits_on = object;
    return HOLD;
}

/* Of a local socket. */
static enum then connect_leave(struct thread *thread)
{
    if (thread->result == 0)
        name_local_peer(thread, (int)argument(thread, 0));
    return ANSWER;
}

static void connect_ends(struct object *object, int error)
{
    object->node->activity++;
    for (struct process *process = object->node->processes; process; process = process->next)
        for (struct thread *thread = process->threads; thread; thread = thread->next)
            if (thread->state == HELD && thread->waits_on == object) {
                object->error = 0;
                hold_ends(thread, -error);
            }
}

static void take_junk(struct object *object, uint32_t but)
{
    char byte;
    for (; object->junk > but; object->junk--)
        if (recv(object->ours, &byte, 1, MSG_DONTWAIT) != 1)
            break;
}

void stream_connected(struct object *object, int error)
{
    if (object->state != CONNECTS)
        return;
    object->state = error ? FAILED_TO : CONNECTED;
    object->error = error;
    take_junk(object, 1);
    if (error) {
        close(object->ours);
        object->ours = -1;
    }
    connect_ends(object, error);
}

void stream_request(struct object *listener, const struct object *from)
{
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    int buffer = BUFFER, ours = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (ours < 0 || getsockname(listener->ours, (struct sockaddr *)&name, &size) != 0)
        fail("local sockets", strerror(errno));
    if (connect(ours, (struct sockaddr *)&name, size) != 0)
        fail("a connection request", strerror(errno));
    setsockopt(ours, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer);
    struct object *end = object_new(listener->node, STREAM), **at = &listener->pending;
    end->ours = ours;
    end->family = listener->family;
    end->state = CONNECTED;
    end->bound = end->has_peer = true;
    end->local = from->peer;
    end->peer = from->local;
    while (*at)
        at = &(*at)->next_pending;
    *at = end;
    listener->node->activity++;
    wire_event((struct cc_frame){.tag = CC_ACCEPTABLE, .node = listener->node->index, .number = end->number, .other = from->number}, NULL, NULL, 0);
}

static enum then accept_enter(struct thread *thread)
{
    int fd = (int)argument(thread, 0);
    struct object *object = object_at(thread, fd);
    if (!object || object->kind < STREAM)
        return AFTER; /* a local socket: polls.c made sure that it does not wait */
    if (object->kind == DATAGRAM)
        return answer(thread, -EOPNOTSUPP);
    if (object->state != LISTENS)
        return answer(thread, -EINVAL);
    if (!object->pending)
        return waits_not(thread, fd) ? answer(thread, -EAGAIN)
                                     : hold_until(thread, true, RESTARTED,
                                                  object->receive_limit ? due_after(object->node, object->receive_limit) : FOREVER, true, -EAGAIN);
    thread->now.rsi = thread->now.rdx = 0;
    thread->changed = true;
    return AFTER;
}

static enum then accept_leave(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    uint32_t room = 0;
    if (!object || thread->result < 0)
        return ANSWER;
    struct object *end = object->pending;
    object->pending = end->next_pending;
    descriptor_set(thread->process, (int)thread->result, end);
    end->junk = 1;
    socket_junk(thread, (int)thread->result, 1);
    if (argument(thread, 1) && argument(thread, 2) && memory_read(thread, argument(thread, 2), &room, sizeof room) == sizeof room)
        address_write(thread, argument(thread, 1), argument(thread, 2), room, end->family, &end->peer);
    return ANSWER;
}

static void end_direction(struct object *object)
{
    if (object->state == CONNECTED && !object->shut)
        wire_event((struct cc_frame){.tag = CC_SHUT, .node = object->node->index, .number = object->number}, NULL, NULL, 0);
    object->shut = true;
}

static enum then shutdown_enter(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    if (!object || object->kind < STREAM)
        return NATIVE;
    if (object->kind == STREAM && object->state != CONNECTED && object->state != LISTENS)
        return answer(thread, -ENOTCONN);
    if (argument(thread, 1) != SHUT_RD && object->kind == STREAM)
        end_direction(object);
    if (argument(thread, 1) != SHUT_WR)
        object->finished = true;
    return NATIVE;
}

bool stream_refill(struct object *object)
{
    ssize_t put = object->left_size ? send(object->ours, object->left, object->left_size, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (put <= 0)
        return false;
    object->left_size -= (size_t)put;
    memmove(object->left, object->left + put, object->left_size);
    if (!object->left_size && object->finished)
        shutdown(object->ours, SHUT_WR);
    return true;
}

void stream_arrive(struct object *object, const void *bytes, size_t size)
{
    unsigned char *wider = realloc(object->left, object->left_size + size);
    if (!wider)
        abort();
    object->left = wider;
    memcpy(wider + object->left_size, bytes, size);
    object->left_size += size;
    stream_refill(object);
    object->node->activity++;
}

void stream_finish(struct object *object)
{
    object->finished = true;
    if (!object->left_size)
        shutdown(object->ours, SHUT_WR);
    object->node->activity++;
}

/* Closed with a byte in it, our end leaves the program's with ECONNRESET. */
void stream_reset(struct object *object)
{
    close(object->ours);
    object->ours = -1;
    object->left_size = 0;
    object->reset = true;
    object->node->activity++;
}

static bool unread(const struct object *object)
{
    int bytes = 0, error = 0;
    socklen_t size = sizeof error;
    if (object->ours < 0)
        return false;
    ioctl(object->ours, SIOCOUTQ, &bytes);
    getsockopt(object->ours, SOL_SOCKET, SO_ERROR, &error, &size);
    return bytes > 0 || error == ECONNRESET || object->left_size;
}

bool stream_readable(const struct object *object)
{
    int bytes = 0;
    if (object->reset || object->finished || object->ours < 0)
        return true;
    ioctl(object->ours, SIOCOUTQ, &bytes);
    return bytes > 0;
}

enum then stream_send(struct thread *thread, struct object *object, const void *bytes, size_t size, bool quiet)
{
    if (object->state == CONNECTS)
        return answer(thread, -EAGAIN);
    if (object->state != CONNECTED && object->state != FAILED_TO)
        return answer(thread, -ENOTCONN);
    if (object->shut || object->reset || object->state == FAILED_TO) {
        if (!quiet)
            syscall(SYS_tgkill, thread->process->pid, thread->tid, SIGPIPE);
        return answer(thread, -EPIPE);
    }
    if (!size)
        return answer(thread, 0);
    recording_place(thread);
    wire_event((struct cc_frame){.tag = CC_SENT, .node = object->node->index, .number = object->number, .size = (uint32_t)size}, bytes, NULL, 0);
    return answer(thread, (int64_t)size);
}

void socket_closed(struct object *object)
{
    bool known = object->kind == STREAM ? object->state != FRESH || object->bound : object->bound;
    while (object->pending) {
        struct object *end = object->pending;
        object->pending = end->next_pending;
        wire_event((struct cc_frame){.tag = CC_CLOSED, .node = end->node->index, .number = end->number, .other = 1}, NULL, NULL, 0);
        object_free(end);
    }
    if (known)
        wire_event((struct cc_frame){.tag = CC_CLOSED, .node = object->node->index, .number = object->number,
                                     .other = object->kind == STREAM && object->state == CONNECTED && unread(object)},
                   NULL, NULL, 0);
    object_free(object);
}

const struct handler call_listen = {listen_enter, NULL, false};
const struct handler call_connect = {connect_enter, connect_leave, true};
const struct handler call_accept = {accept_enter, accept_leave, true};
const struct handler call_shutdown = {shutdown_enter, NULL, true};
