/* Prints the network interfaces that it finds, by netlink and by ioctl. */
#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

static const char *text(const struct sockaddr *from)
{
    static char to[2][INET6_ADDRSTRLEN];
    static int next;
    char *place = to[next = !next];
    if (!from)
        return "-";
    if (from->sa_family == AF_PACKET) {
        const unsigned char *mac = ((const struct sockaddr_ll *)from)->sll_addr;
        snprintf(place, sizeof to[0], "%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]);
        return place;
    }
    return inet_ntop(from->sa_family,
                     from->sa_family == AF_INET ? (const void *)&((const struct sockaddr_in *)from)->sin_addr
                                                : (const void *)&((const struct sockaddr_in6 *)from)->sin6_addr,
                     place, sizeof to[0]);
}

static void by_ioctl(int fd, const char *name)
{
    struct ifreq request;
    struct sockaddr found[3];
    const unsigned long commands[] = {SIOCGIFADDR, SIOCGIFNETMASK, SIOCGIFBRDADDR};
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        strcpy(request.ifr_name, name);
        if (ioctl(fd, commands[i], &request) != 0) {
            printf("%s: %s\n", name, strerror(errno));
            return;
        }
        found[i] = request.ifr_addr;
    }
    printf("%s %s", name, text(&found[0]));
    printf(" mask %s", text(&found[1]));
    printf(" broadcast %s", text(&found[2]));
    ioctl(fd, SIOCGIFMTU, &request);
    printf(" mtu %d", request.ifr_mtu);
    ioctl(fd, SIOCGIFFLAGS, &request);
    printf(" flags %#x\n", (unsigned short)request.ifr_flags);
}

int main(void)
{
    struct ifaddrs *all, *one;
    struct ifreq found[8];
    struct ifconf list = {.ifc_len = sizeof found, .ifc_req = found};
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (getifaddrs(&all) != 0 || ioctl(fd, SIOCGIFCONF, &list) != 0)
        return 1;
    for (one = all; one; one = one->ifa_next) {
        printf("%u %s %s", if_nametoindex(one->ifa_name), one->ifa_name, text(one->ifa_addr));
        printf(" mask %s", text(one->ifa_netmask));
        printf(" broadcast %s flags %#x\n", one->ifa_flags & IFF_BROADCAST ? text(one->ifa_broadaddr) : "-", one->ifa_flags);
    }
    freeifaddrs(all);
    for (size_t i = 0; i < (size_t)list.ifc_len / sizeof *found; i++)
        by_ioctl(fd, found[i].ifr_name);
    by_ioctl(fd, "eth1");
    return 0;
}
