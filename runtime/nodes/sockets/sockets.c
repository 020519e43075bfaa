/* Sockets of nodes: what the program has is one end of a pair of local sockets, and the other end is ours. So the kernel
 * answers for readiness, descriptors and their copies; names, and what goes where, are ours. */
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "nodes/parts.h"

#define EPHEMERAL 32768u
#define BUFFER (8 << 20) /* of one of our ends; less where the kernel permits less */

static int meeting = -1; /* where the connecting ends of programs meet ours */
static struct sockaddr_un meeting_name;
static socklen_t meeting_size;

void sockets_open(void)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    meeting_size = sizeof meeting_name;
    meeting = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (meeting < 0 || bind(meeting, (struct sockaddr *)&any, sizeof any.sun_family) != 0 || listen(meeting, 16) != 0 ||
        getsockname(meeting, (struct sockaddr *)&meeting_name, &meeting_size) != 0)
        fail("local sockets", strerror(errno));
}

/* Bytes in our end, of which one stays: where our end is closed with it, the program gets a reset. */
void socket_junk(const struct thread *thread, int fd, uint32_t count)
{
    int theirs = descriptor_ours(thread, fd);
    for (uint32_t i = 0; theirs >= 0 && i < count; i++)
        if (send(theirs, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
            break;
    if (theirs >= 0)
        close(theirs);
}

bool stream_connect_ends(struct thread *thread, int fd, struct object *object)
{
    int theirs = descriptor_ours(thread, fd), least = 1, size = BUFFER;
    bool done = theirs >= 0 && connect(theirs, (struct sockaddr *)&meeting_name, meeting_size) == 0;
    object->ours = done ? accept4(meeting, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK) : -1;
    if (object->ours >= 0) {
        setsockopt(object->ours, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
        setsockopt(theirs, SOL_SOCKET, SO_SNDBUF, &least, sizeof least);
        for (object->junk = 0; send(theirs, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL) == 1;) /* until it is not writable */
            object->junk++;
    }
    if (theirs >= 0)
        close(theirs);
    return object->ours >= 0;
}

static bool meet(int from, int to)
{
    struct sockaddr_un name;
    socklen_t size = sizeof name;
    return getsockname(to, (struct sockaddr *)&name, &size) == 0 && connect(from, (struct sockaddr *)&name, size) == 0;
}

static bool datagram_open(struct thread *thread, int fd, struct object *object)
{
    struct sockaddr_un any = {.sun_family = AF_UNIX};
    int theirs = descriptor_ours(thread, fd), size = BUFFER;
    object->ours = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    setsockopt(object->ours, SOL_SOCKET, SO_SNDBUFFORCE, &size, sizeof size);
    bool done = theirs >= 0 && object->ours >= 0 && bind(theirs, (struct sockaddr *)&any, sizeof any.sun_family) == 0 &&
                bind(object->ours, (struct sockaddr *)&any, sizeof any.sun_family) == 0 && meet(theirs, object->ours) &&
                meet(object->ours, theirs);
    if (theirs >= 0)
        close(theirs);
    return done;
}

struct object *socket_bound_at(const struct node *node, enum object_kind kind, const struct address *address, const struct object *but)
{
    for (struct object *object = object_next(NULL); object; object = object_next(object)) {
        if (object->node != node || object->kind != kind || !object->bound || object == but || object->local.port != address->port)
            continue;
        if (kind == STREAM && object->state > LISTENS)
            continue;
        if (address_any(&object->local) || address_any(address) || memcmp(object->local.ip, address->ip, CC_ADDRESS) == 0)
            return object;
    }
    return NULL;
}

void socket_say_bound(struct object *object)
{
    object->bound = true;
    wire_event((struct cc_frame){.tag = CC_BOUND, .node = object->node->index, .number = object->number, .port = object->local.port,
                                 .other = object->kind == STREAM ? IPPROTO_TCP : IPPROTO_UDP, .size = CC_ADDRESS},
               object->local.ip, NULL, 0);
}

static void choose_port(struct object *object)
{
    do
        object->local.port = (uint16_t)(EPHEMERAL + object->node->ports++ % (65536u - EPHEMERAL));
    while (socket_bound_at(object->node, object->kind, &object->local, object));
}

void socket_bind_free(struct object *object, bool loop)
{
    object->local = address_of_node(object->node, loop);
    choose_port(object);
    socket_say_bound(object);
}

static enum then socket_enter(struct thread *thread)
{
    int family = (int)argument(thread, 0), kind = (int)argument(thread, 1) & 0xf, protocol = (int)argument(thread, 2);
    if (family == AF_UNIX)
        return NATIVE;
    bool stream = kind == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP);
    bool datagram = kind == SOCK_DGRAM && (protocol == 0 || protocol == IPPROTO_UDP);
    bool network = family == AF_INET || family == AF_INET6, lists = family == AF_NETLINK && kind != SOCK_STREAM && protocol == NETLINK_ROUTE;
    if (!lists && (!network || (!stream && !datagram))) {
        char text[64];
        snprintf(text, sizeof text, "socket of family %d, type %d, protocol %d", family, kind, protocol);
        if (family != AF_NETLINK) /* about devices: programs do without */
            name_uncontrolled(thread->process->node, text);
        return answer(thread, network ? -EPROTONOSUPPORT : -EAFNOSUPPORT);
    }
    thread->now.rdi = AF_UNIX;
    thread->now.rdx = 0;
    thread->changed = true;
    return AFTER;
}

static enum then socket_leave(struct thread *thread)
{
    if (thread->result < 0)
        return ANSWER;
    bool stream = ((int)argument(thread, 1) & 0xf) == SOCK_STREAM;
    struct object *object = object_new(thread->process->node, stream ? STREAM : DATAGRAM);
    object->family = (int)argument(thread, 0);
    if (object->family == AF_NETLINK)
        memcpy(object->local.ip, &thread->process->known_as, sizeof thread->process->known_as);
    descriptor_set(thread->process, (int)thread->result, object);
    if (!stream && !datagram_open(thread, (int)thread->result, object))
        fail("local sockets", strerror(errno));
    return ANSWER;
}

static enum then bind_enter(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    struct address wanted;
    if (!object || object->kind < STREAM) {
        name_local_name(thread, (int)argument(thread, 0), argument(thread, 2));
        return NATIVE;
    }
    int error = address_read(thread, argument(thread, 1), argument(thread, 2), object->family, &wanted);
    if (error)
        return answer(thread, -error);
    if (object->bound)
        return answer(thread, -EINVAL);
    if (object->family == AF_NETLINK) {
        if (memcmp(wanted.ip, (struct address){.port = 0}.ip, CC_ADDRESS) != 0)
            object->local = wanted;
        return answer(thread, 0);
    }
    struct address self = address_of_node(object->node, false);
    if (!address_any(&wanted) && !address_loop(&wanted) && memcmp(self.ip, wanted.ip, CC_ADDRESS) != 0)
        return answer(thread, -EADDRNOTAVAIL);
    object->local = wanted;
    const struct object *other = wanted.port ? socket_bound_at(object->node, object->kind, &wanted, object) : NULL;
    bool apart = other && object->only_v6 != other->only_v6 && object->family != other->family;
    if (other && !apart && !(object->shares_port && other->shares_port))
        return answer(thread, -EADDRINUSE);
    if (!wanted.port)
        choose_port(object);
    socket_say_bound(object);
    return answer(thread, 0);
}

const struct handler call_socket = {socket_enter, socket_leave, false};
const struct handler call_bind = {bind_enter, NULL, false};
