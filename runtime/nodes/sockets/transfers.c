/* Calls that read and write: of sockets what is written goes to the caller, and a read waits until something has arrived. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nodes/parts.h"

#define RANDOM_MOST (1u << 20) /* bytes in one read */
#define LOCAL_MOST 4096u       /* bytes that fit wherever a pipe is writable */

static bool local_ready(const struct thread *thread, int fd, short events)
{
    struct pollfd one = {.fd = descriptor_ours(thread, fd), .events = events};
    bool is = one.fd < 0 || poll(&one, 1, 0) != 0;
    if (one.fd >= 0)
        close(one.fd);
    return is;
}

static uint64_t receive_limit(const struct object *object)
{
    return object && object->receive_limit ? due_after(object->node, object->receive_limit) : FOREVER;
}

/* Whether all of a MSG_WAITALL is there. */
static bool all_there(const struct thread *thread, const struct object *object, int fd, size_t wanted)
{
    int bytes = 0, ours = descriptor_ours(thread, fd);
    if (ours < 0)
        return true;
    ioctl(ours, FIONREAD, &bytes);
    close(ours);
    return (size_t)bytes >= wanted || object->finished || object->reset;
}

/* Who waits to write to a pipe may find room. */
static enum then reads(struct thread *thread, bool local, enum then then)
{
    if (local)
        thread->process->node->activity++;
    return then;
}

static enum then wait_for_bytes(struct thread *thread, struct object *object, int fd, int flags, size_t wanted, enum then otherwise)
{
    bool there;
    bool local = !object || object->kind == TIMER_FILE;
    if (flags & MSG_DONTWAIT)
        return reads(thread, local, otherwise);
    if (object && object->kind == STREAM)
        there = stream_readable(object) && (!(flags & MSG_WAITALL) || all_there(thread, object, fd, wanted));
    else if (object && object->kind == DATAGRAM)
        there = object->sources || object->finished;
    else
        there = local_ready(thread, fd, POLLIN);
    if (there || waits_not(thread, fd))
        return reads(thread, local, otherwise);
    return hold_until(thread, true, RESTARTED, receive_limit(object), true, -EAGAIN);
}

static enum then read_random(struct thread *thread, uint64_t to, size_t size)
{
    size = size > RANDOM_MOST ? RANDOM_MOST : size;
    unsigned char *bytes = malloc(size + 8);
    if (!bytes)
        abort();
    random_fill(thread->process->node, bytes, size);
    bool done = memory_write(thread, to, bytes, size);
    free(bytes);
    return answer(thread, done ? (int64_t)size : -EFAULT);
}

/* read, readv */
static enum then read_enter(struct thread *thread)
{
    int fd = (int)argument(thread, 0);
    struct object *object = object_at(thread, fd);
    bool vectored = thread->called.orig_rax != SYS_read;
    if (object && object->kind == RANDOM) {
        if (!vectored)
            return read_random(thread, argument(thread, 1), argument(thread, 2));
        name_uncontrolled(thread->process->node, "readv of random numbers");
    }
    if (!object && descriptor_plain(thread, fd))
        return NATIVE;
    return wait_for_bytes(thread, object, fd, 0, 0, object && object->kind == DATAGRAM ? AFTER : NATIVE);
}

static enum then read_leave(struct thread *thread)
{
    struct address from;
    if (thread->result >= 0)
        datagram_taken(object_at(thread, (int)argument(thread, 0)), &from);
    return ANSWER;
}

static void name_flags(struct thread *thread, int flags)
{
    if (flags & (MSG_OOB | MSG_ERRQUEUE | MSG_FASTOPEN | MSG_ZEROCOPY))
        name_uncontrolled(thread->process->node, "flags of a transfer: out of band, errors, fast open or no copy");
}

/* recvfrom */
static enum then receive_enter(struct thread *thread)
{
    int fd = (int)argument(thread, 0), flags = (int)argument(thread, 3);
    struct object *object = object_at(thread, fd);
    uint32_t room = 0;
    name_flags(thread, flags);
    if (argument(thread, 5))
        memory_read(thread, argument(thread, 5), &room, sizeof room);
    thread->room[0] = room;
    if (object && object->kind == STREAM && argument(thread, 4)) {
        thread->now.r8 = thread->now.r9 = 0;
        thread->changed = true;
    }
    return wait_for_bytes(thread, object, fd, flags, argument(thread, 2), object && object->kind == DATAGRAM ? AFTER : NATIVE);
}

static void taken(struct object *object, int flags, struct address *from)
{
    if (flags & MSG_PEEK)
        *from = object->sources->from;
    else
        datagram_taken(object, from);
}

static enum then receive_leave(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    struct address from;
    if (thread->result < 0 || !object->sources)
        return ANSWER;
    taken(object, (int)argument(thread, 3), &from);
    if (argument(thread, 4))
        address_write(thread, argument(thread, 4), argument(thread, 5), (uint32_t)thread->room[0], object->family, &from);
    return ANSWER;
}

/* recvmsg */
static enum then receive_message_enter(struct thread *thread)
{
    int fd = (int)argument(thread, 0), flags = (int)argument(thread, 2);
    struct object *object = object_at(thread, fd);
    struct msghdr header = {.msg_name = NULL};
    memory_read(thread, argument(thread, 1), &header, sizeof header);
    name_flags(thread, flags);
    thread->room[0] = header.msg_namelen;
    size_t wanted = 0;
    unsigned char *bytes;
    if (flags & MSG_WAITALL) {
        wanted = memory_gather(thread, (uintptr_t)header.msg_iov, header.msg_iovlen, &bytes);
        free(bytes);
    }
    return wait_for_bytes(thread, object, fd, flags, wanted, object && object->kind >= STREAM ? AFTER : NATIVE);
}

static void write_source(struct thread *thread, struct object *object, uint64_t at, uint32_t room, int flags)
{
    struct msghdr header;
    struct address from;
    uint64_t size_at = at + offsetof(struct msghdr, msg_namelen);
    if (memory_read(thread, at, &header, sizeof header) != sizeof header)
        return;
    if (object->kind == STREAM || !object->sources) {
        memory_write(thread, size_at, &(uint32_t){0}, sizeof(uint32_t));
        return;
    }
    taken(object, flags, &from);
    if (header.msg_name)
        address_write(thread, (uintptr_t)header.msg_name, size_at, room, object->family, &from);
}

static enum then receive_message_leave(struct thread *thread)
{
    if (thread->result >= 0)
        write_source(thread, object_at(thread, (int)argument(thread, 0)), argument(thread, 1), (uint32_t)thread->room[0], (int)argument(thread, 2));
    return ANSWER;
}

/* recvmmsg: one at a time, which is what it may do */
static enum then receive_messages_enter(struct thread *thread)
{
    int fd = (int)argument(thread, 0);
    struct object *object = object_at(thread, fd);
    uint64_t limit = 0;
    struct msghdr header;
    if (argument(thread, 4) && !time_read(thread, argument(thread, 4), &limit))
        return answer(thread, -EINVAL);
    if (argument(thread, 2) == 0 || memory_read(thread, argument(thread, 1), &header, sizeof header) != sizeof header)
        return NATIVE;
    thread->room[0] = header.msg_namelen;
    thread->now.rdx = 1;
    thread->now.r8 = 0;
    thread->changed = true;
    return wait_for_bytes(thread, object, fd, (int)argument(thread, 3) & ~MSG_WAITALL, 0, object && object->kind >= STREAM ? AFTER : NATIVE);
}

static enum then receive_messages_leave(struct thread *thread)
{
    if (thread->result > 0)
        write_source(thread, object_at(thread, (int)argument(thread, 0)), argument(thread, 1), (uint32_t)thread->room[0], (int)argument(thread, 3));
    return ANSWER;
}

/* Takes a write to a socket or an output; NATIVE: it is neither. */
static enum then take(struct thread *thread, struct object *object, int flags, uint64_t name, uint32_t name_size, const void *bytes, size_t size)
{
    if (object->kind == OUTPUT) {
        wire_event((struct cc_frame){.tag = CC_OUTPUT, .node = object->node->index, .number = object->number, .size = (uint32_t)size}, bytes, NULL, 0);
        return answer(thread, (int64_t)size);
    }
    if (object->kind == STREAM)
        return stream_send(thread, object, bytes, size, flags & MSG_NOSIGNAL);
    return datagram_send(thread, object, name, name_size, bytes, size);
}

/* To pipes and local sockets: waits while there is no room, and writes no more than there is. */
static enum then write_local(struct thread *thread, int fd)
{
    if (descriptor_plain(thread, fd))
        return NATIVE;
    if (local_ready(thread, fd, POLLOUT)) {
        thread->process->node->activity++;
        bool shortens = thread->called.orig_rax == SYS_write && argument(thread, 2) > LOCAL_MOST && !waits_not(thread, fd);
        if (shortens) {
            thread->now.rdx = LOCAL_MOST;
            thread->changed = true;
        }
        return NATIVE;
    }
    return waits_not(thread, fd) ? NATIVE : hold(thread, true, RESTARTED);
}

/* write, writev */
static enum then write_enter(struct thread *thread)
{
    int fd = (int)argument(thread, 0);
    struct object *object = object_at(thread, fd);
    unsigned char *bytes;
    if (!object || object->kind == RANDOM || object->kind == TIMER_FILE)
        return write_local(thread, fd);
    size_t size = argument(thread, 2);
    if (thread->called.orig_rax == SYS_writev) {
        size = memory_gather(thread, argument(thread, 1), size, &bytes);
    } else {
        bytes = malloc(size + 1);
        if (!bytes || memory_read(thread, argument(thread, 1), bytes, size) != size) {
            free(bytes);
            return answer(thread, -EFAULT);
        }
    }
    enum then then = take(thread, object, 0, 0, 0, bytes, size);
    free(bytes);
    return then;
}

/* sendto */
static enum then send_enter(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    size_t size = argument(thread, 2);
    if (!object && argument(thread, 4))
        name_local_target(thread, (int)argument(thread, 0));
    if (!object || object->kind < STREAM)
        return write_local(thread, (int)argument(thread, 0));
    name_flags(thread, (int)argument(thread, 3));
    unsigned char *bytes = malloc(size + 1);
    if (!bytes || memory_read(thread, argument(thread, 1), bytes, size) != size) {
        free(bytes);
        return answer(thread, -EFAULT);
    }
    enum then then = take(thread, object, (int)argument(thread, 3), argument(thread, 4), (uint32_t)argument(thread, 5), bytes, size);
    free(bytes);
    return then;
}

static enum then send_header(struct thread *thread, struct object *object, const struct msghdr *header, int flags)
{
    unsigned char *bytes;
    size_t size = memory_gather(thread, (uintptr_t)header->msg_iov, header->msg_iovlen, &bytes);
    name_flags(thread, flags);
    enum then then = take(thread, object, flags, (uintptr_t)header->msg_name, header->msg_namelen, bytes, size);
    free(bytes);
    return then;
}

/* sendmsg */
static enum then send_message_enter(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    struct msghdr header;
    name_ancillary(thread, object, argument(thread, 1));
    if (!object && memory_read(thread, argument(thread, 1), &header, sizeof header) == sizeof header && header.msg_name)
        name_local_target(thread, (int)argument(thread, 0));
    if (!object || object->kind < STREAM)
        return write_local(thread, (int)argument(thread, 0));
    if (memory_read(thread, argument(thread, 1), &header, sizeof header) != sizeof header)
        return answer(thread, -EFAULT);
    return send_header(thread, object, &header, (int)argument(thread, 2));
}

/* sendmmsg */
static enum then send_messages_enter(struct thread *thread)
{
    struct object *object = object_at(thread, (int)argument(thread, 0));
    struct mmsghdr one;
    int64_t sent = 0;
    for (uint64_t i = 0; i < argument(thread, 2) && i < IOV_MAX; i++)
        name_ancillary(thread, object, argument(thread, 1) + i * sizeof one);
    if (!object || object->kind < STREAM)
        return write_local(thread, (int)argument(thread, 0));
    for (; sent < (int64_t)argument(thread, 2); sent++) {
        uint64_t at = argument(thread, 1) + (uint64_t)sent * sizeof one;
        if (memory_read(thread, at, &one, sizeof one) != sizeof one)
            return answer(thread, sent ? sent : -EFAULT);
        send_header(thread, object, &one.msg_hdr, (int)argument(thread, 3));
        if (thread->result < 0)
            return sent ? answer(thread, sent) : ANSWER;
        one.msg_len = (unsigned)thread->result;
        memory_write(thread, at + offsetof(struct mmsghdr, msg_len), &one.msg_len, sizeof one.msg_len);
    }
    return answer(thread, sent);
}

/* sendfile, splice, copy_file_range: where one of the two is ours, the program has to do with reads and writes. */
static enum then copies_enter(struct thread *thread)
{
    bool splices = thread->called.orig_rax == SYS_splice;
    const struct object *from = object_at(thread, (int)argument(thread, splices ? 0 : 1));
    const struct object *to = object_at(thread, (int)argument(thread, splices ? 2 : 0));
    return from || to ? answer(thread, -EINVAL) : NATIVE;
}

const struct handler call_read = {read_enter, read_leave, false};
const struct handler call_receive = {receive_enter, receive_leave, false};
const struct handler call_receive_message = {receive_message_enter, receive_message_leave, false};
const struct handler call_receive_messages = {receive_messages_enter, receive_messages_leave, false};
const struct handler call_write = {write_enter, NULL, false};
const struct handler call_send = {send_enter, NULL, false};
const struct handler call_send_message = {send_message_enter, NULL, false};
const struct handler call_send_messages = {send_messages_enter, NULL, false};
const struct handler call_copies = {copies_enter, NULL, true};
