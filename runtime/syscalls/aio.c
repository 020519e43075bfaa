/* Asynchronous requests (io_submit). A write is issued when it is submitted, and has ended when the kernel reports it in a ring that it shares
 * with the program: only syncs that begin after that cover it. A sync begins when it is submitted, and ends there likewise. The ring is read
 * before each call that is recorded: a program that knows of an end has made no call since that is not. */
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define RING_MAGIC 0xa10a10a1u
#define LONGEST 0x7ffff000u /* of one write, as in the kernel */

struct ring_head { /* struct aio_ring of the kernel's fs/aio.c; then come its events */
    uint32_t id, count, head, tail, magic, compatible, incompatible, bytes;
};

struct request {
    uint64_t iocb;          /* the program's address of it */
    uint64_t place;         /* in its call */
    bool syncs;
    int flags;              /* of the file, with what the request adds: O_SYNC, O_DSYNC, O_APPEND, O_DIRECT */
    struct cc_event event;  /* CC_WRITE or CC_SYNC_BEGIN; once recorded, `seq` is its number */
    uint64_t old_size;      /* of the file, before it was submitted */
    bool ended;
    int64_t result;
    pid_t tid;
    struct request *next;
};

struct ring {
    const struct process *process;
    uint64_t address;
    uint32_t tail;            /* what is before it was read */
    struct request *requests; /* under way, the latest first */
    struct ring *next;
};

static struct ring *rings;            /* with requests under way */
static const struct ring *submitting; /* the one of the call that is being made, or NULL: it may have none yet */
static struct request *submitted;     /* by the call that is being made, in its order */
static size_t submitted_count, submitted_room;

static bool ring_head(struct tracee *thread, uint64_t address, struct ring_head *head)
{
    return memory_read(thread, address, head, sizeof *head) == sizeof *head && head->magic == RING_MAGIC && head->count &&
           head->tail < head->count;
}

static struct ring **ring_of(const struct process *process, uint64_t address)
{
    struct ring **at = &rings;
    while (*at && ((*at)->process != process || (*at)->address != address))
        at = &(*at)->next;
    return at;
}

/* An event that belongs to a request: its place and thread are those of where it was submitted. */
static uint64_t put(struct tracee *thread, const struct request *request, struct cc_event event)
{
    struct tracee *submitter = tracee_known(request->tid);
    event.site = request->event.site;
    event.stack = request->event.stack;
    event.call = SYS_io_submit + 1;
    return trace_event(submitter ? submitter : thread, event);
}

/* What is known of a request that has ended. `early`: the call that submitted it has not returned. */
static void finish(struct tracee *thread, const struct request *request, int64_t result, bool early)
{
    const struct cc_event *event = &request->event;
    if (request->syncs) {
        struct cc_event end = *event;
        end.kind = CC_SYNC_END;
        end.payload = event->seq;
        end.flags = result < 0;
        put(thread, request, end);
        return;
    }
    struct inode *inode = inode_at(event->file);
    if (!early)
        put(thread, request, (struct cc_event){.kind = CC_WRITE_END, .file = event->file, .payload = event->seq});
    if (!early && result != (int64_t)event->size)
        unfollowed(thread, inode, "an io_submit that failed later");
    shadow_refresh(inode, event->offset, event->size);
    if (result > 0) {
        struct tracee *submitter = tracee_known(request->tid);
        write_synced(submitter ? submitter : thread, event->file, event->offset, (uint64_t)result, request->flags);
    }
}

static void ended(struct tracee *thread, struct ring *ring, const struct io_event *event)
{
    struct request **oldest = NULL;
    for (struct request **at = &ring->requests; *at; at = &(*at)->next)
        if ((*at)->iocb == event->obj)
            oldest = at;
    if (oldest) {
        struct request *request = *oldest;
        *oldest = request->next;
        finish(thread, request, event->res, false);
        free(request);
        return;
    }
    for (size_t i = 0; i < submitted_count; i++) {
        if (submitted[i].iocb == event->obj && !submitted[i].ended) {
            submitted[i].ended = true;
            submitted[i].result = event->res;
            return;
        }
    }
}

/* Reads what the ring has more than the last time. */
static void take(struct tracee *thread, struct ring *ring)
{
    struct tracee *reader = thread->process == ring->process ? thread : tracee_within(ring->process);
    struct ring_head head;
    if (!reader || !ring_head(reader, ring->address, &head))
        return;
    while (ring->tail != head.tail) {
        struct io_event event;
        uint64_t at = ring->address + sizeof head + ring->tail * sizeof event;
        if (memory_read(reader, at, &event, sizeof event) != sizeof event)
            return;
        ended(thread, ring, &event);
        ring->tail = (ring->tail + 1) % head.count;
    }
}

static void drop_idle(void)
{
    for (struct ring **at = &rings; *at;) {
        struct ring *ring = *at;
        if (ring->requests || ring == submitting) {
            at = &ring->next;
            continue;
        }
        *at = ring->next;
        free(ring);
    }
}

void aio_take(struct tracee *thread)
{
    if (!rings)
        return;
    for (struct ring *ring = rings; ring; ring = ring->next)
        take(thread, ring);
    drop_idle();
}

/* Nobody learns how they ended: syncs among them promise nothing. */
static void abandon(struct ring *ring)
{
    for (struct request *request; (request = ring->requests);) {
        ring->requests = request->next;
        struct cc_event event = {.kind = CC_WRITE_END, .file = request->event.file, .payload = request->event.seq};
        if (!request->syncs)
            put(NULL, request, event);
        free(request);
    }
}

void aio_end(const struct process *process)
{
    for (struct ring *ring = rings; ring; ring = ring->next)
        if (ring->process == process)
            abandon(ring);
    if (submitting && submitting->process == process)
        submitting = NULL;
    drop_idle();
}

static uint64_t vector_bytes(struct tracee *thread, uint64_t address, uint64_t parts)
{
    uint64_t bytes = 0;
    struct iovec part;
    for (uint64_t i = 0; i < parts && i < IOV_MAX; i++)
        if (memory_read(thread, address + i * sizeof part, &part, sizeof part) == sizeof part)
            bytes += part.iov_len;
    return bytes;
}

static struct request *more(void)
{
    if (submitted_count == submitted_room) {
        submitted_room = submitted_room ? 2 * submitted_room : 64;
        submitted = realloc(submitted, submitted_room * sizeof *submitted);
        if (!submitted)
            die("no memory");
    }
    struct request *request = &submitted[submitted_count++];
    *request = (struct request){0};
    return request;
}

/* The bytes of a write, as long as no other thread can use their memory for something else. */
static bool take_bytes(struct tracee *thread, const struct iocb *iocb, struct cc_event *event)
{
    bool vectored = iocb->aio_lio_opcode == IOCB_CMD_PWRITEV;
    uint64_t size = vectored ? vector_bytes(thread, iocb->aio_buf, iocb->aio_nbytes) : iocb->aio_nbytes;
    event->size = (uint32_t)(size < LONGEST ? size : LONGEST);
    char *space = event->size <= sizeof event->payload ? (char *)&event->payload : trace_room(event->size, &event->payload);
    return space && content_gather(thread, vectored, iocb->aio_buf, iocb->aio_nbytes, space, event->size) == event->size;
}

static void prepare(struct tracee *thread, uint64_t address, uint64_t place)
{
    struct iocb iocb;
    struct stat state;
    if (memory_read(thread, address, &iocb, sizeof iocb) != sizeof iocb)
        return;
    int code = iocb.aio_lio_opcode;
    bool writes = code == IOCB_CMD_PWRITE || code == IOCB_CMD_PWRITEV, syncs = code == IOCB_CMD_FSYNC || code == IOCB_CMD_FDSYNC;
    int fd = writes || syncs ? descriptor_of(thread, (int)iocb.aio_fildes) : -1;
    struct inode *inode = fd >= 0 && fstat(fd, &state) == 0 ? inode_of(&state) : NULL;
    int flags = fd < 0 ? 0 : fcntl(fd, F_GETFL);
    if (fd >= 0)
        close(fd);
    if (!inode || !(S_ISREG(state.st_mode) || (syncs && S_ISDIR(state.st_mode))))
        return;
    stack_locate(thread);
    if (!submitted_count) /* once for all that the call submits */
        shadows_compare_all(thread);
    struct request *request = more();
    uint32_t rwf = (uint32_t)iocb.aio_rw_flags;
    request->iocb = address;
    request->place = place;
    request->syncs = syncs;
    request->flags = flags | (rwf & RWF_SYNC ? O_SYNC : rwf & RWF_DSYNC ? O_DSYNC : 0) | (rwf & RWF_APPEND ? O_APPEND : 0);
    request->old_size = (uint64_t)state.st_size;
    request->tid = thread->tid;
    request->event = (struct cc_event){.file = inode->id, .site = thread->site, .stack = thread->stack};
    if (syncs) {
        request->event.kind = CC_SYNC_BEGIN;
        request->event.aux = code == IOCB_CMD_FSYNC ? CC_FSYNC : CC_FDATASYNC;
        return;
    }
    request->event.kind = CC_WRITE;
    request->event.offset = (uint64_t)iocb.aio_offset;
    request->event.flags = (uint8_t)((request->flags & O_APPEND ? CC_WRITE_APPEND : 0) | (flags & O_DIRECT ? CC_WRITE_DIRECT : 0));
    if (!take_bytes(thread, &iocb, &request->event)) {
        unfollowed(thread, inode, "an io_submit whose bytes cannot be read");
        submitted_count--;
    }
}

static enum then submit_enter(struct tracee *thread)
{
    const struct call *call = &thread->call;
    struct ring_head head;
    submitted_count = 0;
    for (uint64_t i = 0; i < call->argument[1]; i++) {
        uint64_t address;
        if (memory_read(thread, call->argument[2] + i * sizeof address, &address, sizeof address) != sizeof address)
            break;
        prepare(thread, address, i);
    }
    if (!submitted_count)
        return SKIP;
    struct ring **at = ring_of(thread->process, call->argument[0]);
    if (!*at && ring_head(thread, call->argument[0], &head)) {
        struct ring *ring = calloc(1, sizeof *ring);
        if (!ring)
            die("no memory");
        *ring = (struct ring){.process = thread->process, .address = call->argument[0], .tail = head.tail};
        *at = ring;
    }
    submitting = *at;
    return UPDATE;
}

/* Where an appending write began: after those before it in the same call. */
static uint64_t appended_at(const struct request *request)
{
    uint64_t at = request->old_size;
    for (const struct request *before = submitted; before < request; before++)
        if (before->event.file == request->event.file && before->flags & O_APPEND && before->ended && before->result > 0)
            at += (uint64_t)before->result;
    return at;
}

static void submit_one(struct tracee *thread, struct ring *ring, struct request *request)
{
    struct cc_event *event = &request->event;
    if (!request->syncs) {
        if (request->ended && request->result <= 0)
            return;
        if (request->flags & O_APPEND)
            event->offset = appended_at(request);
        if (request->ended)
            event->size = (uint32_t)request->result;
        else
            event->flags |= CC_WRITE_PENDING;
    }
    event->seq = trace_event(thread, *event);
    if (request->ended) {
        finish(thread, request, request->result, true);
        return;
    }
    struct request *kept = malloc(sizeof *kept);
    if (!kept)
        die("no memory");
    *kept = *request;
    kept->next = ring->requests;
    ring->requests = kept;
}

static void submit_leave(struct tracee *thread)
{
    const struct call *call = &thread->call;
    struct ring *ring = *ring_of(thread->process, call->argument[0]);
    size_t accepted = 0;
    submitting = NULL;
    stack_locate(thread);
    while (accepted < submitted_count && (int64_t)submitted[accepted].place < call->result)
        accepted++;
    submitted_count = accepted;
    if (!ring) {
        if (accepted)
            unfollowed(thread, NULL, "io_submit");
        return;
    }
    take(thread, ring);
    for (size_t i = 0; i < accepted; i++)
        submit_one(thread, ring, &submitted[i]);
    submitted_count = 0;
    drop_idle();
}

/* io_destroy waits for all requests. */
static enum then destroy_enter(struct tracee *thread)
{
    return *ring_of(thread->process, thread->call.argument[0]) ? LEAVE : SKIP;
}

static void destroy_leave(struct tracee *thread)
{
    struct ring *ring = *ring_of(thread->process, thread->call.argument[0]);
    if (thread->call.result == 0 && ring)
        abandon(ring);
    drop_idle();
}

const struct handler aio_submit = {submit_enter, submit_leave, false};
const struct handler aio_destroy = {destroy_enter, destroy_leave, true};
