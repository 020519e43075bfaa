/* What goes past us: local sockets that lead out of the node, and ancillary data of messages. */
#include <sys/socket.h>
#include <unistd.h>

#include "nodes/parts.h"

#define CONTROL_MOST 2048u /* more than the most descriptors of a message take */

static bool passes_descriptors(const struct thread *thread, const struct msghdr *message)
{
    char control[CONTROL_MOST] __attribute__((aligned(sizeof(size_t))));
    size_t size = message->msg_controllen < sizeof control ? message->msg_controllen : sizeof control;
    struct msghdr read = {.msg_control = control, .msg_controllen = memory_read(thread, (uintptr_t)message->msg_control, control, size)};
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&read); part; part = CMSG_NXTHDR(&read, part))
        if (part->cmsg_level == SOL_SOCKET && part->cmsg_type == SCM_RIGHTS)
            return true;
    return false;
}

void name_ancillary(const struct thread *thread, const struct object *object, uint64_t message)
{
    struct msghdr header;
    if (memory_read(thread, message, &header, sizeof header) != sizeof header || !header.msg_control || !header.msg_controllen)
        return;
    if (object)
        name_uncontrolled(thread->process->node, "ancillary data of a network socket");
    else if (passes_descriptors(thread, &header))
        name_uncontrolled(thread->process->node, "descriptors that are passed on (SCM_RIGHTS)");
}

void name_local_peer(const struct thread *thread, int fd)
{
    struct ucred peer = {.pid = 0};
    socklen_t size = sizeof peer;
    int ours = descriptor_ours(thread, fd);
    bool connected = ours >= 0 && getsockopt(ours, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0;
    if (ours >= 0)
        close(ours);
    const struct process *process = connected ? process_of(peer.pid) : NULL;
    if (connected && (!process || process->node != thread->process->node))
        name_uncontrolled(thread->process->node, "a local socket of another program");
}

static bool is_local_datagram(const struct thread *thread, int fd)
{
    int type = 0, domain = 0, ours = descriptor_ours(thread, fd);
    socklen_t size = sizeof type;
    if (ours < 0)
        return false;
    getsockopt(ours, SOL_SOCKET, SO_TYPE, &type, &size);
    getsockopt(ours, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    close(ours);
    return domain == AF_UNIX && type == SOCK_DGRAM;
}

void name_local_target(const struct thread *thread, int fd)
{
    if (is_local_datagram(thread, fd))
        name_uncontrolled(thread->process->node, "a datagram to a local socket with a name");
}

void name_local_name(const struct thread *thread, int fd, uint64_t size)
{
    bool known = size > sizeof(sa_family_t); /* else the kernel finds one, which only those know that it sends to */
    if (known && is_local_datagram(thread, fd)) /* anybody may send to it */
        name_uncontrolled(thread->process->node, "a local datagram socket with a name");
}
