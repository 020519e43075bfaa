/* Names and options of sockets. */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "nodes/parts.h"

static struct object *socket_of(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    return object && object->kind >= STREAM ? object : NULL;
}

static struct option *option_of(const struct object *object, int level, int name)
{
    struct option *option = object->options;
    while (option && (option->level != level || option->name != name))
        option = option->next;
    return option;
}

/* Options by which data would come another way than as bytes of a call. */
static bool changes_data(int level, int name)
{
    static const int of_sockets[] = {SO_TIMESTAMP, SO_TIMESTAMPNS, SO_TIMESTAMPING, SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ZEROCOPY, SO_RCVLOWAT, SO_OOBINLINE};
    for (size_t i = 0; level == SOL_SOCKET && i < sizeof of_sockets / sizeof *of_sockets; i++)
        if (of_sockets[i] == name)
            return true;
    return (level == IPPROTO_IP && (name == IP_PKTINFO || name == IP_ADD_MEMBERSHIP)) ||
           (level == IPPROTO_IPV6 && (name == IPV6_RECVPKTINFO || name == IPV6_JOIN_GROUP)) ||
           (level == IPPROTO_TCP && (name == TCP_ULP || name == TCP_REPAIR || name == TCP_FASTOPEN_CONNECT));
}

static enum then set_enter(struct thread *thread)
{
    struct object *object = socket_of(thread);
    int level = (int)argument(thread, 1), name = (int)argument(thread, 2);
    unsigned char value[16] = {0};
    struct timeval limit;
    if (!object)
        return NATIVE;
    uint32_t size = (uint32_t)argument(thread, 4);
    if (size > sizeof value)
        size = sizeof value;
    if (memory_read(thread, argument(thread, 3), value, size) != size)
        return answer(thread, -EFAULT);
    if (changes_data(level, name)) {
        char text[64];
        snprintf(text, sizeof text, "setsockopt of level %d, option %d", level, name);
        name_uncontrolled(object->node, text);
    }
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
        object->only_v6 = value[0];
    if (level == SOL_SOCKET && name == SO_REUSEPORT)
        object->shares_port = value[0];
    memcpy(&limit, value, sizeof limit);
    if (level == SOL_SOCKET && name == SO_RCVTIMEO)
        object->receive_limit = (uint64_t)limit.tv_sec * SECOND + (uint64_t)limit.tv_usec * 1000;
    struct option *option = option_of(object, level, name);
    if (!option) {
        option = calloc(1, sizeof *option);
        if (!option)
            abort();
        option->level = level;
        option->name = name;
        option->next = object->options;
        object->options = option;
    }
    option->size = size;
    memcpy(option->value, value, sizeof value);
    return answer(thread, 0);
}

/* What an option is where it was not set. */
static int first_value(const struct object *object, int level, int name)
{
    static const struct {
        int level, name, value;
    } known[] = {{SOL_SOCKET, SO_RCVBUF, 131072}, {SOL_SOCKET, SO_SNDBUF, 131072}, {SOL_SOCKET, SO_RCVLOWAT, 1}, {SOL_SOCKET, SO_SNDLOWAT, 1},
                 {IPPROTO_TCP, TCP_MAXSEG, 1460}, {IPPROTO_IP, IP_TTL, 64}, {IPPROTO_IP, IP_MTU, 65535}};
    if (level == SOL_SOCKET && name == SO_DOMAIN)
        return object->family;
    if (level == SOL_SOCKET && name == SO_PROTOCOL)
        return object->kind == STREAM ? IPPROTO_TCP : object->family == AF_NETLINK ? 0 : IPPROTO_UDP;
    if (level == SOL_SOCKET && name == SO_TYPE)
        return object->kind == STREAM ? SOCK_STREAM : SOCK_DGRAM;
    if (level == SOL_SOCKET && name == SO_ACCEPTCONN)
        return object->state == LISTENS;
    if (level == IPPROTO_IPV6 && name == IPV6_V6ONLY)
        return object->only_v6;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].level == level && known[i].name == name)
            return known[i].value;
    return 0;
}

static enum then get_enter(struct thread *thread)
{
    struct object *object = socket_of(thread);
    int level = (int)argument(thread, 1), name = (int)argument(thread, 2);
    unsigned char value[16] = {0};
    uint32_t room = 0, size = sizeof(int);
    if (!object)
        return NATIVE;
    if (memory_read(thread, argument(thread, 4), &room, sizeof room) != sizeof room)
        return answer(thread, -EFAULT);
    const struct option *option = option_of(object, level, name);
    if (level == SOL_SOCKET && name == SO_ERROR) {
        memcpy(value, &object->error, sizeof object->error);
        if (object->reset)
            memcpy(value, &(int){ECONNRESET}, sizeof(int));
        object->error = 0;
    } else if (option) {
        size = option->size;
        memcpy(value, option->value, sizeof value);
    } else {
        if (level == IPPROTO_TCP && name == TCP_INFO)
            name_uncontrolled(object->node, "getsockopt of TCP_INFO");
        memcpy(value, &(int){first_value(object, level, name)}, sizeof(int));
    }
    if (size > room)
        size = room;
    bool done = memory_write(thread, argument(thread, 3), value, size) && memory_write(thread, argument(thread, 4), &size, sizeof size);
    return answer(thread, done ? 0 : -EFAULT);
}

static enum then name_of(struct thread *thread, struct object *object, const struct address *address)
{
    uint32_t room = 0;
    bool done = memory_read(thread, argument(thread, 2), &room, sizeof room) == sizeof room &&
                address_write(thread, argument(thread, 1), argument(thread, 2), room, object->family, address);
    return answer(thread, done ? 0 : -EFAULT);
}

static enum then own_name_enter(struct thread *thread)
{
    struct object *object = socket_of(thread);
    if (!object)
        return NATIVE;
    struct address unbound = {.port = 0};
    if (object->family == AF_INET)
        memset(unbound.ip + 10, 0xff, 2);
    return name_of(thread, object, object->bound || object->family == AF_NETLINK ? &object->local : &unbound);
}

static enum then peer_name_enter(struct thread *thread)
{
    struct object *object = socket_of(thread);
    if (!object)
        return NATIVE;
    if (!object->has_peer || (object->kind == STREAM && object->state != CONNECTED))
        return answer(thread, -ENOTCONN);
    return name_of(thread, object, &object->peer);
}

const struct handler call_setsockopt = {set_enter, NULL, false};
const struct handler call_getsockopt = {get_enter, NULL, false};
const struct handler call_getsockname = {own_name_enter, NULL, false};
const struct handler call_getpeername = {peer_name_enter, NULL, false};
