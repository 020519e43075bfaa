/* Datagrams: what a node sends is handed to the caller, and what the caller lets arrive can be read. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "nodes/parts.h"

#define DATAGRAM_MOST 65507u

int datagram_connect(struct thread *thread, struct object *object)
{
    sa_family_t family = 0;
    memory_read(thread, argument(thread, 1), &family, sizeof family);
    if (family == AF_UNSPEC) {
        object->has_peer = false;
        return 0;
    }
    int error = address_read(thread, argument(thread, 1), argument(thread, 2), object->family, &object->peer);
    if (error)
        return -error;
    object->has_peer = true;
    if (object->family == AF_NETLINK)
        return 0;
    if (!object->bound)
        socket_bind_free(object, address_loop(&object->peer));
    else if (address_any(&object->local)) {
        uint16_t port = object->local.port;
        object->local = address_of_node(object->node, address_loop(&object->peer));
        object->local.port = port;
    }
    return 0;
}

void datagram_arrive(struct object *object, const struct address *from, const void *bytes, size_t size)
{
    if (object->has_peer && !address_same(&object->peer, from))
        return;
    if (send(object->ours, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)size) {
        name_uncontrolled(object->node, "a datagram for which there was no room");
        return;
    }
    struct source *source = calloc(1, sizeof *source), **at = &object->sources;
    if (!source)
        abort();
    source->from = *from;
    while (*at)
        at = &(*at)->next;
    *at = source;
    object->node->activity++;
}

void datagram_taken(struct object *object, struct address *from)
{
    struct source *source = object->sources;
    if (!source)
        return;
    *from = source->from;
    object->sources = source->next;
    free(source);
}

enum then datagram_send(struct thread *thread, struct object *object, uint64_t name, uint32_t name_size, const void *bytes, size_t size)
{
    struct address to = object->peer;
    if (object->family == AF_NETLINK) {
        unsigned char reply[INTERFACES_MOST];
        datagram_arrive(object, &(struct address){.port = 0}, reply, interfaces_reply(object, bytes, size, reply));
        return answer(thread, (int64_t)size);
    }
    if (!name && !object->has_peer)
        return answer(thread, -EDESTADDRREQ);
    int error = name ? address_read(thread, name, name_size, object->family, &to) : 0;
    if (error)
        return answer(thread, -error);
    if (size > DATAGRAM_MOST)
        return answer(thread, -EMSGSIZE);
    if (!object->bound) {
        socket_bind_free(object, address_loop(&to));
        if (!object->has_peer)
            memset(object->local.ip + (object->family == AF_INET ? 12 : 0), 0, object->family == AF_INET ? 4 : CC_ADDRESS);
    }
    struct address from = object->local;
    if (address_any(&from)) {
        from = address_of_node(object->node, address_loop(&to));
        from.port = object->local.port;
    }
    unsigned char names[2 * CC_ADDRESS];
    memcpy(names, to.ip, CC_ADDRESS);
    memcpy(names + CC_ADDRESS, from.ip, CC_ADDRESS);
    recording_place(thread);
    wire_event((struct cc_frame){.tag = CC_DATAGRAM_SENT, .node = object->node->index, .number = object->number, .port = to.port,
                                 .value = from.port, .size = sizeof names},
               names, bytes, size);
    return answer(thread, (int64_t)size);
}
