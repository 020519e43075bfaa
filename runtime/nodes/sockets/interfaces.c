/* The network interfaces that a node sees: `lo`, and `eth0` with its address. They are listed by netlink's requests and by ioctl. */
#include <errno.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "nodes/parts.h"

#define MAC 6u
#define INTERFACES 2u /* numbered from 1 */
#define UP (IFF_UP | IFF_RUNNING | 1u << 16) /* the bit is IFF_LOWER_UP, which <net/if.h> leaves out */

static const struct interface {
    const char *name;
    unsigned short type;
    unsigned flags;
    uint32_t mtu;
    unsigned char prefix, scope;
} interfaces[INTERFACES] = {
    {"lo", ARPHRD_LOOPBACK, UP | IFF_LOOPBACK, 65536, 8, RT_SCOPE_HOST},
    {"eth0", ARPHRD_ETHER, UP | IFF_BROADCAST | IFF_MULTICAST, 1500, 24, RT_SCOPE_UNIVERSE},
};

/* Its IPv4 address; with the bits of the host set to 0, or to 1 for a broadcast. */
static uint32_t address_at(const struct node *node, unsigned at, bool network, bool broadcast)
{
    struct address own = address_of_node(node, at == 0);
    uint32_t four, host = UINT32_MAX >> interfaces[at].prefix;
    memcpy(&four, own.ip + 12, sizeof four);
    four = ntohl(four);
    return htonl(network ? four & ~host : broadcast ? four | host : four);
}

static void mac_at(const struct node *node, unsigned at, unsigned char *mac)
{
    memset(mac, 0, MAC);
    if (at == 0)
        return;
    mac[0] = 2; /* given by hand */
    memcpy(mac + 2, &(uint32_t){address_at(node, at, false, false)}, 4);
}

struct reply {
    unsigned char *to;
    size_t size, begin; /* begin: of the last message */
    const struct nlmsghdr *request;
    uint32_t port;      /* of who asked */
};

static void put(struct reply *reply, const void *from, size_t size)
{
    if (reply->size + NLMSG_ALIGN(size) > INTERFACES_MOST)
        abort();
    memset(reply->to + reply->size, 0, NLMSG_ALIGN(size));
    memcpy(reply->to + reply->size, from, size);
    reply->size += NLMSG_ALIGN(size);
    memcpy(reply->to + reply->begin, &(uint32_t){(uint32_t)(reply->size - reply->begin)}, sizeof(uint32_t)); /* nlmsg_len */
}

static void put_message(struct reply *reply, uint16_t type, const void *body, size_t size)
{
    struct nlmsghdr header = {.nlmsg_type = type, .nlmsg_seq = reply->request->nlmsg_seq, .nlmsg_pid = reply->port};
    header.nlmsg_flags = type == NLMSG_ERROR ? 0 : NLM_F_MULTI;
    reply->begin = reply->size;
    put(reply, &header, sizeof header);
    put(reply, body, size);
}

static void put_attribute(struct reply *reply, uint16_t type, const void *value, size_t size)
{
    struct rtattr attribute = {.rta_type = type, .rta_len = (uint16_t)RTA_LENGTH(size)};
    put(reply, &attribute, sizeof attribute);
    put(reply, value, size);
}

static void put_link(struct reply *reply, const struct node *node, unsigned at)
{
    const struct interface *one = &interfaces[at];
    struct ifinfomsg body = {.ifi_type = one->type, .ifi_index = (int)at + 1, .ifi_flags = one->flags};
    unsigned char mac[MAC], every[MAC];
    mac_at(node, at, mac);
    memset(every, at ? 0xff : 0, sizeof every);
    put_message(reply, RTM_NEWLINK, &body, sizeof body);
    put_attribute(reply, IFLA_IFNAME, one->name, strlen(one->name) + 1);
    put_attribute(reply, IFLA_MTU, &one->mtu, sizeof one->mtu);
    put_attribute(reply, IFLA_TXQLEN, &(uint32_t){1000}, sizeof(uint32_t));
    put_attribute(reply, IFLA_ADDRESS, mac, sizeof mac);
    put_attribute(reply, IFLA_BROADCAST, every, sizeof every);
}

static void put_address(struct reply *reply, const struct node *node, unsigned at)
{
    const struct interface *one = &interfaces[at];
    struct ifaddrmsg body = {AF_INET, one->prefix, IFA_F_PERMANENT, one->scope, at + 1};
    uint32_t own = address_at(node, at, false, false), every = address_at(node, at, false, true);
    put_message(reply, RTM_NEWADDR, &body, sizeof body);
    put_attribute(reply, IFA_ADDRESS, &own, sizeof own);
    put_attribute(reply, IFA_LOCAL, &own, sizeof own);
    if (one->flags & IFF_BROADCAST)
        put_attribute(reply, IFA_BROADCAST, &every, sizeof every);
    put_attribute(reply, IFA_LABEL, one->name, strlen(one->name) + 1);
}

static void put_loop_of_six(struct reply *reply)
{
    struct ifaddrmsg body = {AF_INET6, 128, IFA_F_PERMANENT, RT_SCOPE_HOST, 1};
    put_message(reply, RTM_NEWADDR, &body, sizeof body);
    put_attribute(reply, IFA_ADDRESS, &in6addr_loopback, sizeof in6addr_loopback);
}

static void put_route(struct reply *reply, const struct node *node, unsigned at)
{
    const struct interface *one = &interfaces[at];
    struct rtmsg body = {.rtm_family = AF_INET, .rtm_dst_len = one->prefix, .rtm_table = at ? RT_TABLE_MAIN : RT_TABLE_LOCAL,
                         .rtm_protocol = RTPROT_KERNEL, .rtm_scope = at ? RT_SCOPE_LINK : RT_SCOPE_HOST, .rtm_type = at ? RTN_UNICAST : RTN_LOCAL};
    uint32_t network = address_at(node, at, true, false), own = address_at(node, at, false, false), index = at + 1;
    put_message(reply, RTM_NEWROUTE, &body, sizeof body);
    put_attribute(reply, RTA_DST, &network, sizeof network);
    put_attribute(reply, RTA_PREFSRC, &own, sizeof own);
    put_attribute(reply, RTA_OIF, &index, sizeof index);
}

static void put_list(struct reply *reply, const struct node *node, unsigned char family)
{
    uint16_t type = reply->request->nlmsg_type;
    bool four = family == AF_UNSPEC || family == AF_INET, six = family == AF_UNSPEC || family == AF_INET6;
    for (unsigned at = 0; at < INTERFACES; at++) {
        if (type == RTM_GETLINK)
            put_link(reply, node, at);
        else if (type == RTM_GETADDR && four)
            put_address(reply, node, at);
        else if (type == RTM_GETROUTE && four)
            put_route(reply, node, at);
    }
    if (type == RTM_GETADDR && six)
        put_loop_of_six(reply);
    put_message(reply, NLMSG_DONE, &(int){0}, sizeof(int));
}

/* Other requests than lists are refused, and named. */
size_t interfaces_reply(const struct object *object, const void *bytes, size_t size, void *to)
{
    struct {
        struct nlmsghdr header;
        unsigned char family;
    } request = {.family = AF_UNSPEC};
    struct reply reply = {.to = to, .request = &request.header};
    memcpy(&request, bytes, size < sizeof request ? size : sizeof request);
    memcpy(&reply.port, object->local.ip, sizeof reply.port);
    uint16_t type = request.header.nlmsg_type;
    bool listed = type == RTM_GETLINK || type == RTM_GETADDR || type == RTM_GETROUTE;
    if (listed && (request.header.nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP) {
        put_list(&reply, object->node, request.family);
    } else {
        struct nlmsgerr error = {-EOPNOTSUPP, request.header};
        char text[64];
        snprintf(text, sizeof text, "netlink request of type %u", type);
        name_uncontrolled(object->node, text);
        put_message(&reply, NLMSG_ERROR, &error, sizeof error);
    }
    return reply.size;
}

static int named(const char *name)
{
    for (unsigned at = 0; at < INTERFACES; at++)
        if (strncmp(interfaces[at].name, name, IFNAMSIZ) == 0)
            return (int)at;
    return -1;
}

static struct sockaddr sockaddr_of(uint32_t four)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {four}};
    struct sockaddr any;
    memcpy(&any, &address, sizeof any);
    return any;
}

/* SIOCGIFCONF */
static enum then configured(struct thread *thread)
{
    struct ifconf room;
    struct ifreq all[INTERFACES] = {{.ifr_ifru = {.ifru_flags = 0}}};
    if (memory_read(thread, argument(thread, 2), &room, sizeof room) != sizeof room)
        return answer(thread, -EFAULT);
    for (unsigned at = 0; at < INTERFACES; at++) {
        strcpy(all[at].ifr_name, interfaces[at].name);
        all[at].ifr_addr = sockaddr_of(address_at(thread->process->node, at, false, false));
    }
    size_t size = (size_t)room.ifc_len / sizeof *all * sizeof *all;
    if (!room.ifc_buf || size > sizeof all)
        size = sizeof all;
    room.ifc_len = (int)size;
    bool done = (!room.ifc_buf || memory_write(thread, (uintptr_t)room.ifc_buf, all, size)) &&
                memory_write(thread, argument(thread, 2), &room, sizeof room);
    return answer(thread, done ? 0 : -EFAULT);
}

/* Another of these is named. */
static bool fill(const struct node *node, uint32_t command, unsigned at, struct ifreq *request)
{
    switch (command) {
    case SIOCGIFNAME:
        strcpy(request->ifr_name, interfaces[at].name);
        return true;
    case SIOCGIFINDEX:
        request->ifr_ifindex = (int)at + 1;
        return true;
    case SIOCGIFFLAGS:
        request->ifr_flags = (short)interfaces[at].flags;
        return true;
    case SIOCGIFMTU:
        request->ifr_mtu = (int)interfaces[at].mtu;
        return true;
    case SIOCGIFADDR:
        request->ifr_addr = sockaddr_of(address_at(node, at, false, false));
        return true;
    case SIOCGIFBRDADDR:
        request->ifr_addr = sockaddr_of(at ? address_at(node, at, false, true) : 0);
        return true;
    case SIOCGIFNETMASK:
        request->ifr_addr = sockaddr_of(htonl(~(UINT32_MAX >> interfaces[at].prefix)));
        return true;
    case SIOCGIFHWADDR:
        request->ifr_hwaddr = (struct sockaddr){.sa_family = interfaces[at].type};
        mac_at(node, at, (unsigned char *)request->ifr_hwaddr.sa_data);
        return true;
    default:
        return false;
    }
}

enum then interfaces_ioctl(struct thread *thread)
{
    uint32_t command = (uint32_t)argument(thread, 1);
    struct ifreq request;
    if (command == SIOCGIFCONF)
        return configured(thread);
    bool read = memory_read(thread, argument(thread, 2), &request, sizeof request) == sizeof request;
    int at = !read ? -1 : command == SIOCGIFNAME ? request.ifr_ifindex - 1 : named(request.ifr_name);
    bool known = at >= 0 && at < (int)INTERFACES;
    if (fill(thread->process->node, command, known ? (unsigned)at : 0, &request)) {
        if (!known)
            return answer(thread, read ? -ENODEV : -EFAULT);
        return answer(thread, memory_write(thread, argument(thread, 2), &request, sizeof request) ? 0 : -EFAULT);
    }
    char text[32];
    snprintf(text, sizeof text, "ioctl %#x", command);
    name_uncontrolled(thread->process->node, text);
    return answer(thread, -ENOTTY);
}
