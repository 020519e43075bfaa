/* Addresses of sockets: node number n is 10.0.0.(n+1), and all nodes share 127.0.0.1. That of a netlink socket is a number. */
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>

#include "nodes/parts.h"

static const unsigned char mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

static bool is_four(const struct address *address)
{
    return memcmp(address->ip, mapped, sizeof mapped) == 0;
}

bool address_any(const struct address *address)
{
    static const unsigned char nothing[CC_ADDRESS];
    return is_four(address) ? memcmp(address->ip + 12, nothing, 4) == 0 : memcmp(address->ip, nothing, CC_ADDRESS) == 0;
}

bool address_loop(const struct address *address)
{
    static const unsigned char loop[CC_ADDRESS] = {[15] = 1};
    return is_four(address) ? address->ip[12] == 127 : memcmp(address->ip, loop, CC_ADDRESS) == 0;
}

bool address_same(const struct address *one, const struct address *other)
{
    return one->port == other->port && memcmp(one->ip, other->ip, CC_ADDRESS) == 0;
}

struct address address_of_node(const struct node *node, bool loop)
{
    struct address address = {.port = 0};
    memcpy(address.ip, mapped, sizeof mapped);
    memcpy(address.ip + 12, loop ? (unsigned char[]){127, 0, 0, 1} : (unsigned char[]){10, 0, 0, (unsigned char)(node->index + 1)}, 4);
    return address;
}

int address_read(const struct thread *thread, uint64_t at, uint64_t size, int family, struct address *address)
{
    union {
        struct sockaddr any;
        struct sockaddr_in four;
        struct sockaddr_in6 six;
        struct sockaddr_nl netlink;
    } from = {.six = {.sin6_family = 0}};
    if (size > sizeof from)
        size = sizeof from;
    size_t least = family == AF_NETLINK ? sizeof from.netlink : sizeof from.four;
    if (size < least || memory_read(thread, at, &from, size) != size)
        return size < least ? EINVAL : EFAULT;
    if (from.any.sa_family != family)
        return EAFNOSUPPORT;
    if (family == AF_NETLINK) {
        *address = (struct address){.port = 0};
        memcpy(address->ip, &from.netlink.nl_pid, sizeof from.netlink.nl_pid);
    } else if (family == AF_INET) {
        memcpy(address->ip, mapped, sizeof mapped);
        memcpy(address->ip + 12, &from.four.sin_addr, 4);
        address->port = ntohs(from.four.sin_port);
    } else {
        memcpy(address->ip, &from.six.sin6_addr, CC_ADDRESS);
        address->port = ntohs(from.six.sin6_port);
    }
    return 0;
}

bool address_write(const struct thread *thread, uint64_t at, uint64_t size_at, uint32_t room, int family, const struct address *address)
{
    struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(address->port)};
    struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons(address->port)};
    struct sockaddr_nl netlink = {.nl_family = AF_NETLINK};
    memcpy(&four.sin_addr, address->ip + 12, 4);
    memcpy(&six.sin6_addr, address->ip, CC_ADDRESS);
    memcpy(&netlink.nl_pid, address->ip, sizeof netlink.nl_pid);
    uint32_t size = family == AF_INET ? sizeof four : family == AF_INET6 ? sizeof six : sizeof netlink;
    const void *from = family == AF_INET ? (const void *)&four : family == AF_INET6 ? (const void *)&six : (const void *)&netlink;
    return memory_write(thread, at, from, room < size ? room : size) && (!size_at || memory_write(thread, size_at, &size, sizeof size));
}
