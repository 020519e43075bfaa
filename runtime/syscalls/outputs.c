/* What the world outside of the watched folder sees: output to terminals, pipes and sockets, and descriptors that are passed on. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define PAIRS 256u
#define MOST_PASSED 256u    /* descriptors of a message: SCM_MAX_FD is 253 */

static struct stat standard[3];   /* what the command finds as its descriptors 0, 1 and 2 */
static dev_t pipes;               /* the device of pipes without a name */
static ino_t pairs[PAIRS];        /* sockets of the latest socketpair calls: they lead from the program to itself */
static uint32_t pair_count;
static uint64_t stdout_bytes;
static int copy = -1;             /* a file that gets a copy of standard output, or -1 */
static struct timespec started;

void outputs_start(void)
{
    int ends[2];
    struct stat state;
    clock_gettime(CLOCK_REALTIME_COARSE, &started); /* the clock of file systems */
    for (int fd = 0; fd < 3; fd++)
        if (fstat(fd, &standard[fd]) != 0)
            standard[fd].st_ino = 0;
    if (pipe2(ends, O_CLOEXEC) == 0) {
        if (fstat(ends[0], &state) == 0)
            pipes = state.st_dev;
        close(ends[0]);
        close(ends[1]);
    }
}

void outputs_copy(const char *path)
{
    copy = open(path, O_WRONLY | O_CLOEXEC);
    if (copy < 0)
        die(path);
}

static bool same(const struct stat *left, const struct stat *right)
{
    return left->st_ino == right->st_ino && left->st_dev == right->st_dev && right->st_ino;
}

bool output_own(const struct place *place)
{
    struct statx state;
    if (statx(place->base, place->path, AT_SYMLINK_NOFOLLOW, STATX_BTIME, &state) != 0 || !(state.stx_mask & STATX_BTIME))
        return false;
    int64_t seconds = state.stx_btime.tv_sec;
    return seconds > started.tv_sec || (seconds == started.tv_sec && state.stx_btime.tv_nsec >= started.tv_nsec);
}

static bool terminal(unsigned kind)
{
    return kind == 4 || kind == 5 || (kind >= 136 && kind <= 143);
}

/* Whether a socket may lead out of the program: it is none of a pair that the program made. */
static bool leads_outside(int fd, const struct stat *state)
{
    int domain = 0;
    socklen_t size = sizeof domain;
    for (uint32_t i = 0; i < PAIRS && i < pair_count; i++)
        if (pairs[i] == state->st_ino)
            return false;
    getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size);
    return domain == AF_INET || domain == AF_INET6 || domain == AF_UNIX;
}

int output_kind(int fd, int number, const struct stat *state)
{
    bool null = S_ISCHR(state->st_mode) && major(state->st_rdev) == 1;
    if (same(state, &standard[1]) && !null) /* both may be one terminal */
        return number == 2 && same(state, &standard[2]) ? CC_OUTPUT_STDERR : CC_OUTPUT_STDOUT;
    if (same(state, &standard[2]) && !null)
        return CC_OUTPUT_STDERR;
    if (S_ISCHR(state->st_mode))
        return terminal(major(state->st_rdev)) ? CC_OUTPUT_TERMINAL : -1;
    if (S_ISFIFO(state->st_mode)) /* a pipe that the program made leads to itself */
        return state->st_dev != pipes || same(state, &standard[0]) ? CC_OUTPUT_PIPE : -1;
    if (S_ISSOCK(state->st_mode))
        return leads_outside(fd, state) ? CC_OUTPUT_SOCKET : -1;
    return -1;
}

/* What is not known of it is zeros, so that what follows is where it was. */
static void copy_out(uint64_t at, uint64_t size, const void *bytes, size_t known)
{
    if (known < size)
        trace_note("stdout", "bytes unknown");
    if ((known && pwrite(copy, bytes, known, (off_t)at) != (ssize_t)known) || ftruncate(copy, (off_t)(at + size)) != 0)
        trace_status(CC_STATUS_DISK_FULL);
}

void *output_room(int kind, size_t *size)
{
    static char *room;
    static size_t capacity;
    if (*size > CC_OUTPUT_BYTES && (kind != CC_OUTPUT_STDOUT || copy < 0))
        *size = CC_OUTPUT_BYTES;
    if (*size > capacity) {
        free(room);
        room = malloc(*size);
        capacity = room ? *size : 0;
    }
    if (!room)
        *size = 0;
    return room;
}

/* The line that standard output ends with, as far as it was printed. */
static struct {
    char text[CC_OUTPUT_BYTES];
    size_t bytes;
    uint64_t event; /* 0: it has ended, or not all of it is known */
} line;

static uint64_t record(struct tracee *thread, int kind, const void *bytes, size_t known)
{
    struct cc_event event = {.kind = CC_OUTPUT, .aux = (uint32_t)kind, .offset = stdout_bytes};
    return trace_bytes(thread, event, NULL, 0, bytes, known < CC_OUTPUT_BYTES ? known : CC_OUTPUT_BYTES);
}

static bool continue_line(struct tracee *thread, uint64_t size, const void *bytes)
{
    if (!line.event || size > sizeof line.text - line.bytes)
        return false;
    memcpy(line.text + line.bytes, bytes, size);
    if (!trace_continue(thread, line.event, stdout_bytes, line.text, line.bytes + size))
        return false;
    line.bytes += size;
    return true;
}

/* A line that is printed in pieces, with nothing recorded in between, is one output: half of it promises nothing. */
static void print(struct tracee *thread, uint64_t size, const void *bytes, size_t known)
{
    if (!size)
        return;
    if (copy >= 0)
        copy_out(stdout_bytes, size, bytes, known < size ? known : size);
    stdout_bytes += size;
    if (known < size || !continue_line(thread, size, bytes)) {
        line.event = record(thread, CC_OUTPUT_STDOUT, bytes, known);
        line.bytes = known < size || size > sizeof line.text ? 0 : size;
        if (line.bytes)
            memcpy(line.text, bytes, line.bytes);
    }
    if (!line.bytes || line.text[line.bytes - 1] == '\n')
        line.event = 0;
}

void output_record(struct tracee *thread, int kind, uint64_t size, const void *bytes, size_t known)
{
    shadows_compare_all(thread);
    if (kind == CC_OUTPUT_STDOUT)
        print(thread, size, bytes, known);
    else
        record(thread, kind, bytes, known);
}

/* Whether the other end of a socket is none of the recorded processes. */
static bool leads_away(int fd)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
        return false;
    return peer.pid <= 0 || (!process_alive(peer.pid) && (kill(peer.pid, 0) == 0 || errno == EPERM));
}

/* Descriptors that a struct msghdr has sent: whoever got them may write. */
static void passed(struct tracee *thread, uint64_t message)
{
    static char control[CMSG_SPACE(MOST_PASSED * sizeof(int))];
    struct msghdr head;
    if (memory_read(thread, message, &head, sizeof head) != sizeof head || !head.msg_control ||
        head.msg_controllen < sizeof(struct cmsghdr) || head.msg_controllen > sizeof control ||
        memory_read(thread, (uintptr_t)head.msg_control, control, head.msg_controllen) != head.msg_controllen ||
        !leads_away(thread->call.fd))
        return;
    head.msg_control = control;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(&head); part; part = CMSG_NXTHDR(&head, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS || part->cmsg_len < CMSG_LEN(0))
            continue;
        for (size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int number;
            struct stat state;
            memcpy(&number, CMSG_DATA(part) + i * sizeof number, sizeof number);
            int fd = descriptor_of(thread, number);
            bool writes = fd >= 0 && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
            const struct inode *inode = writes && fstat(fd, &state) == 0 ? inode_of(&state) : NULL;
            if (fd >= 0)
                close(fd);
            if (inode)
                unfollowed(thread, inode, "a descriptor passed to another process");
        }
    }
}

static enum then send_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    if (!call_opens(thread, (int)call->argument[0], &state))
        return SKIP;
    int kind = output_kind(call->fd, (int)call->argument[0], &state);
    call->offset = (uint64_t)kind;
    return kind < 0 ? SKIP : LEAVE;
}

static void send_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct msghdr message;
    struct iovec part;
    uint64_t address = call->argument[1], size = call->argument[2];
    if (call->result <= 0)
        return;
    if (call->number != SYS_sendto) { /* sendmsg; sendmmsg's first message begins the same way */
        if (call->number == SYS_sendmsg)
            passed(thread, address);
        if (memory_read(thread, address, &message, sizeof message) != sizeof message || !message.msg_iovlen ||
            memory_read(thread, (uintptr_t)message.msg_iov, &part, sizeof part) != sizeof part)
            return;
        address = (uintptr_t)part.iov_base;
        size = part.iov_len;
    }
    stack_locate(thread);
    size_t wanted = size < (uint64_t)call->result ? size : (size_t)call->result;
    void *bytes = output_room((int)call->offset, &wanted);
    output_record(thread, (int)call->offset, (uint64_t)call->result, bytes, memory_read(thread, address, bytes, wanted));
}

static enum then pair_enter(struct tracee *thread)
{
    (void)thread;
    return LEAVE;
}

static void pair_leave(struct tracee *thread)
{
    int ends[2];
    if (thread->call.result != 0 || memory_read(thread, thread->call.argument[3], ends, sizeof ends) != sizeof ends)
        return;
    for (int i = 0; i < 2; i++) {
        struct stat state;
        int fd = descriptor_of(thread, ends[i]);
        if (fd >= 0 && fstat(fd, &state) == 0)
            pairs[pair_count++ % PAIRS] = state.st_ino;
        if (fd >= 0)
            close(fd);
    }
}

/* An operation begins or ends (crashcheck.h), or our other recorder, in the program, asks for a number. */
static enum then mark_enter(struct tracee *thread)
{
    const struct call *call = &thread->call;
    if (call->argument[1] == CC_ASK_THREAD) {
        thread->called = call->argument[2];
        thread->answer = trace_thread(thread);
        thread->answered = true;
    } else if (call->argument[1] == CC_ASK_FILE) {
        const struct inode *inode = call_inode(thread, (int)call->argument[2]);
        thread->answer = inode ? inode->id : 0;
        thread->answered = true;
    } else if (call->argument[1] == CC_MARK_BEGINS) {
        uint32_t ordinal = trace_header()->next_operation;
        if (thread->operation_depth == OPERATIONS_NESTED) {
            trace_note("operations", "operations are nested too deeply to be recorded");
            trace_status(CC_STATUS_TOO_MANY);
            return SKIP;
        }
        trace_header()->next_operation = ordinal + 1;
        thread->operations[thread->operation_depth++] = ordinal;
        trace_event(thread, (struct cc_event){.kind = CC_MARK_BEGIN, .aux = ordinal});
    } else if (thread->operation_depth) {
        shadows_compare_all(thread);
        uint32_t ordinal = thread->operations[--thread->operation_depth];
        trace_event(thread, (struct cc_event){.kind = CC_MARK_END, .aux = ordinal});
    } else {
        trace_note("mark", "crashcheck_op_end without crashcheck_op_begin in the same thread");
    }
    return SKIP;
}

const struct handler output_mark = {mark_enter, NULL, true};
const struct handler output_send = {send_enter, send_leave, false};
const struct handler output_pair = {pair_enter, pair_leave, true};
