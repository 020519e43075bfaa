/* Calls that change what a file holds: writes, copies inside the kernel, truncation and fallocate. */
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define PARTS 64u
#define LONGEST 0x7ffff000u /* of one write, as in the kernel */

/* O_SYNC or O_DSYNC if the call writes and then syncs what it wrote. */
static int synced(const struct call *call)
{
    uint64_t rwf = call->number == SYS_pwritev2 ? call->argument[5] : 0;
    return (call->flags & O_SYNC) | (rwf & RWF_SYNC ? O_SYNC : rwf & RWF_DSYNC ? O_DSYNC : 0);
}

/* Whether the call orders updates of other files, too: it syncs or cuts its own. */
static bool orders_others(const struct call *call)
{
    return synced(call) || call->number == SYS_ftruncate || call->number == SYS_fallocate;
}

/* The file behind the descriptor: watched (its id in call->inode), or one whose output is seen (call->offset is the kind). */
static enum then file_enter(struct tracee *thread, int number, bool outputs)
{
    struct call *call = &thread->call;
    struct stat state;
    call->inode = 0;
    if (!call_opens(thread, number, &state))
        return SKIP;
    struct inode *inode = S_ISREG(state.st_mode) ? inode_of(&state) : NULL;
    if (inode) {
        call->inode = inode->id;
        call->flags = fcntl(call->fd, F_GETFL);
        call->size = (uint64_t)state.st_size;
        if (orders_others(call)) {
            shadows_compare_before(thread);
        } else if (inode->shadow) {
            stack_locate(thread);
            shadow_compare(thread, inode);
        }
        return UPDATE;
    }
    if (S_ISREG(state.st_mode) && !(fcntl(call->fd, F_GETFL) & O_DSYNC))
        outside_written(&state);
    int kind = outputs ? output_kind(call->fd, number, &state) : -1;
    call->offset = (uint64_t)kind;
    return kind < 0 ? SKIP : LEAVE;
}

void write_synced(struct tracee *thread, uint32_t inode, uint64_t offset, uint64_t size, int flags)
{
    uint32_t kind = (flags & O_SYNC) == O_SYNC ? CC_OSYNC : flags & O_DSYNC ? CC_ODSYNC : 0;
    if (!kind)
        return;
    struct cc_event event = {.kind = CC_SYNC_BEGIN, .aux = kind, .file = inode, .offset = offset, .size = (uint32_t)size};
    event.payload = trace_event(thread, event);
    event.kind = CC_SYNC_END;
    trace_event(thread, event);
}

/* Reads some iovecs; those of a 32-bit program are half as large. */
static bool read_parts(struct tracee *thread, uint64_t address, uint64_t from, struct iovec *parts, uint64_t count)
{
    if (!thread->call.narrow)
        return memory_read(thread, address + from * sizeof *parts, parts, count * sizeof *parts) == count * sizeof *parts;
    uint32_t halves[2 * PARTS];
    size_t each = 2 * sizeof *halves;
    if (memory_read(thread, address + from * each, halves, count * each) != count * each)
        return false;
    for (uint64_t i = 0; i < count; i++)
        parts[i] = (struct iovec){(void *)(uintptr_t)halves[2 * i], halves[2 * i + 1]};
    return true;
}

/* Reads the first `size` bytes that iovecs (or a buffer) hold. */
size_t content_gather(struct tracee *thread, bool vectored, uint64_t address, uint64_t parts, char *to, size_t size)
{
    if (!vectored)
        return memory_read(thread, address, to, size);
    struct iovec some[PARTS];
    size_t done = 0;
    for (uint64_t at = 0; at < parts && done < size; at++) {
        if (at % PARTS == 0 && !read_parts(thread, address, at, some, parts - at < PARTS ? parts - at : PARTS))
            break;
        size_t part = some[at % PARTS].iov_len < size - done ? some[at % PARTS].iov_len : size - done;
        if (memory_read(thread, (uintptr_t)some[at % PARTS].iov_base, to + done, part) != part)
            break;
        done += part;
    }
    return done;
}

static bool is_vectored(const struct call *call)
{
    return call->number == SYS_writev || call->number == SYS_pwritev || call->number == SYS_pwritev2;
}

static size_t gather(struct tracee *thread, char *to, size_t size)
{
    const struct call *call = &thread->call;
    return content_gather(thread, is_vectored(call), call->argument[1], call->argument[2], to, size);
}

static enum then write_enter(struct tracee *thread)
{
    return file_enter(thread, (int)thread->call.argument[0], true);
}

/* Where a write that has ended began. */
static uint64_t written_at(const struct call *call, bool append, size_t size)
{
    struct stat state;
    bool at_position = call->number == SYS_write || call->number == SYS_writev ||
                       (call->number == SYS_pwritev2 && (int64_t)call->argument[3] == -1);
    if (at_position)
        return (uint64_t)lseek(call->fd, 0, SEEK_CUR) - size;
    if (append && fstat(call->fd, &state) == 0)
        return (uint64_t)state.st_size - size;
    return call->argument[3];
}

static void read_back(struct tracee *thread, char *space, size_t size, uint64_t offset)
{
    const struct call *call = &thread->call;
    int reader = readable(call->fd);
    if (pread(reader, space, size, (off_t)offset) != (ssize_t)size)
        unfollowed(thread, inode_at(call->inode), "a write whose bytes cannot be read");
    close(reader);
}

static void write_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    if (call->result <= 0)
        return;
    size_t size = (size_t)call->result;
    memory_beside(call->argument[1], is_vectored(call) ? 0 : size);
    stack_locate(thread);
    if (!call->inode) {
        size_t wanted = size;
        void *bytes = output_room((int)call->offset, &wanted);
        output_record(thread, (int)call->offset, size, bytes, gather(thread, bytes, wanted));
        return;
    }
    uint64_t rwf = call->number == SYS_pwritev2 ? call->argument[5] : 0;
    bool append = call->flags & O_APPEND || rwf & RWF_APPEND;
    uint64_t offset = written_at(call, append, size);
    struct cc_event event = {.kind = CC_WRITE,
                             .file = call->inode,
                             .offset = offset,
                             .size = (uint32_t)size,
                             .flags = (uint8_t)((append ? CC_WRITE_APPEND : 0) | (call->flags & O_DIRECT ? CC_WRITE_DIRECT : 0))};
    char *space = size <= sizeof event.payload ? (char *)&event.payload : trace_room(size, &event.payload);
    if (!space)
        return;
    size_t got = gather(thread, space, size);
    if (got < size) /* the thread was killed, or changed its memory meanwhile: the file has the bytes */
        read_back(thread, space, size, offset);
    trace_event(thread, event);
    shadow_refresh(inode_at(call->inode), offset, size);
    write_synced(thread, call->inode, offset, size, synced(call));
}

static void record_hole(struct tracee *thread, const struct inode *inode, uint64_t at, uint64_t stop)
{
    struct cc_event hole = {.kind = CC_ALLOCATE, .file = inode->id, .offset = at, .payload = stop - at};
    hole.aux = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
    trace_event(thread, hole);
}

/* Records the bytes of a range, in parts; false if they cannot be read. */
static bool record_bytes(struct tracee *thread, uint8_t kind, int fd, const struct inode *inode, uint64_t at, uint64_t stop)
{
    while (at < stop) {
        uint64_t part = stop - at < LONGEST ? stop - at : LONGEST;
        struct cc_event event = {.kind = kind, .file = inode->id, .offset = at, .size = (uint32_t)part};
        char *space = part <= sizeof event.payload ? (char *)&event.payload : trace_room(part, &event.payload);
        if (!space || pread(fd, space, part, (off_t)at) != (ssize_t)part)
            return false;
        trace_event(thread, event);
        at += part;
    }
    return true;
}

/* The next data (SEEK_DATA) or hole (SEEK_HOLE) from an offset on, or the end of the range. */
static uint64_t next_in(int fd, uint64_t at, uint64_t end, int whence)
{
    off_t found = lseek(fd, (off_t)at, whence);
    return found < 0 || (uint64_t)found > end ? end : (uint64_t)found;
}

/* Records what is in a range now, as writes or as content that came from outside. */
static void record_range(struct tracee *thread, uint8_t kind, int fd, struct inode *inode, uint64_t offset, uint64_t size)
{
    uint64_t end = offset + size, at = offset;
    while (at < end) {
        uint64_t data = next_in(fd, at, end, SEEK_DATA);
        if (data > at && kind == CC_WRITE)
            record_hole(thread, inode, at, data);
        if (data == end)
            return;
        at = next_in(fd, data, end, SEEK_HOLE);
        if (!record_bytes(thread, kind, fd, inode, data, at))
            return;
    }
}

void content_read(struct tracee *thread, int fd, struct inode *inode, uint64_t offset, uint64_t size)
{
    struct stat state;
    int reader = readable(fd);
    if (reader < 0 || fstat(reader, &state) != 0) {
        unfollowed(thread, inode, "a copy that cannot be read");
    } else {
        /* only a hole at the end shows no size by its bytes */
        uint64_t end = offset + size;
        off_t data = lseek(reader, (off_t)(end - 1), SEEK_DATA);
        if (data < 0 || (uint64_t)data >= end)
            trace_event(thread, (struct cc_event){.kind = CC_TRUNCATE, .file = inode->id, .offset = (uint64_t)state.st_size});
        record_range(thread, CC_WRITE, reader, inode, offset, size);
        shadow_refresh(inode, offset, size);
    }
    if (reader >= 0)
        close(reader);
}

void content_arrive(struct tracee *thread, int fd, struct inode *inode, uint64_t size)
{
    struct stat state;
    if (size && fstat(fd, &state) == 0 && outside_unsynced(&state)) {
        content_read(thread, fd, inode, 0, size);
        return;
    }
    trace_event(thread, (struct cc_event){.kind = CC_TRUNCATE, .file = inode->id, .offset = size});
    record_range(thread, CC_CONTENT, fd, inode, 0, size);
}

/* sendfile, splice, copy_file_range: the bytes are those that the target holds afterwards. */
static enum then range_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    bool to_first = call->number == SYS_sendfile;
    int from = (int)call->argument[to_first ? 1 : 0], to = (int)call->argument[to_first ? 0 : 2];
    enum then then = file_enter(thread, to, true);
    if (then != UPDATE)
        return then;
    if (!to_first && call->argument[3] &&
        memory_read(thread, call->argument[3], &call->offset, sizeof call->offset) != sizeof call->offset)
        return SKIP;
    struct stat state;
    call->other = descriptor_of(thread, from);
    if (call->other < 0 || fstat(call->other, &state) != 0)
        return SKIP;
    return S_ISREG(state.st_mode) ? UPDATE : LEAVE; /* a pipe may have nothing to read for long */
}

static void range_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    if (call->result <= 0)
        return;
    uint64_t size = (uint64_t)call->result;
    stack_locate(thread);
    if (!call->inode) {
        output_record(thread, (int)call->offset, size, NULL, 0);
        return;
    }
    bool at_position = call->number == SYS_sendfile || !call->argument[3];
    uint64_t offset = at_position ? (uint64_t)lseek(call->fd, 0, SEEK_CUR) - size : call->offset;
    content_read(thread, call->fd, inode_at(call->inode), offset, size);
    write_synced(thread, call->inode, offset, size, call->flags);
}

/* FICLONE and FICLONERANGE: the target shares blocks with the source. */
static enum then clone_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct file_clone_range range = {.src_fd = (int)call->argument[2]};
    struct stat state;
    if (file_enter(thread, (int)call->argument[0], false) != UPDATE)
        return SKIP;
    if ((uint32_t)call->argument[1] == (uint32_t)FICLONERANGE &&
        memory_read(thread, call->argument[2], &range, sizeof range) != sizeof range)
        return SKIP;
    call->other = descriptor_of(thread, (int)range.src_fd);
    if (call->other < 0 || fstat(call->other, &state) != 0)
        return SKIP;
    call->offset = range.dest_offset;
    call->size = range.src_length ? range.src_length : (uint64_t)state.st_size - range.src_offset;
    return UPDATE;
}

static void clone_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    if (call->result != 0 || !call->size)
        return;
    stack_locate(thread);
    content_read(thread, call->fd, inode_at(call->inode), call->offset, call->size);
}

static void resized(struct tracee *thread, uint64_t size)
{
    uint32_t inode = thread->call.inode;
    trace_event(thread, (struct cc_event){.kind = CC_TRUNCATE, .file = inode, .offset = size});
    shadow_refresh(inode_at(inode), 0, 0);
}

static enum then truncate_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    if (!place_of(thread, AT_FDCWD, call->argument[0], &call->from) || !place_stat(&call->from, &state, true))
        return SKIP;
    struct inode *inode = inode_of(&state);
    if (!inode || !S_ISREG(state.st_mode))
        return SKIP;
    call->inode = inode->id;
    shadows_compare_before(thread);
    return UPDATE;
}

static enum then ftruncate_enter(struct tracee *thread)
{
    return file_enter(thread, (int)thread->call.argument[0], false);
}

static void truncate_leave(struct tracee *thread)
{
    if (thread->call.result != 0)
        return;
    stack_locate(thread);
    resized(thread, thread->call.argument[1]);
}

static void allocate_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    if (call->result != 0)
        return;
    stack_locate(thread);
    uint64_t before = call->size, low = call->argument[2], size = call->argument[3];
    struct cc_event event = {
        .kind = CC_ALLOCATE, .file = call->inode, .aux = (uint32_t)call->argument[1], .offset = low, .payload = size};
    trace_event(thread, event);
    bool moves = call->argument[1] & (FALLOC_FL_COLLAPSE_RANGE | FALLOC_FL_INSERT_RANGE);
    shadow_refresh(inode_at(call->inode), low, moves ? UINT64_MAX / 2 : size);
    if (fstat(call->fd, &state) == 0 && (uint64_t)state.st_size != before)
        resized(thread, (uint64_t)state.st_size);
}

const struct handler content_write = {write_enter, write_leave, false};
const struct handler content_range = {range_enter, range_leave, false};
const struct handler content_clone = {clone_enter, clone_leave, false};
const struct handler content_truncate = {truncate_enter, truncate_leave, false};
const struct handler content_ftruncate = {ftruncate_enter, truncate_leave, false};
const struct handler content_allocate = {ftruncate_enter, allocate_leave, false};
