/* What is stored through shared mappings of watched files. No call shows a store: each file that may be stored to has a shadow,
 * its content when it was last compared, and is compared again where the order of stores matters. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define PAGE 4096u
#define BLOCK (64u * 1024)

struct shadow {
    int fd;
    char *bytes;
    uint64_t size, room;
    struct inode *inode;
    struct shadow *next;
};

static struct shadow *shadows;

static void need(struct shadow *shadow, uint64_t size)
{
    if (size > shadow->room) {
        uint64_t room = (size + size / 2 + BLOCK) & ~(uint64_t)(BLOCK - 1);
        char *at = shadow->bytes ? mremap(shadow->bytes, shadow->room, room, MREMAP_MAYMOVE)
                                 : mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            die("no memory for a copy of a mapped file");
        shadow->bytes = at;
        shadow->room = room;
    }
    shadow->size = size > shadow->size ? size : shadow->size;
}

/* What changed in a page is one store, with the equal bytes in between: parts of it, in an order that nobody knows, would be contents that
 * the page never had. */
static void compare_block(struct tracee *thread, struct shadow *shadow, uint64_t base, const char *now, uint64_t size)
{
    char *was = shadow->bytes + base;
    for (uint64_t page = 0; page < size; page += PAGE) {
        uint64_t low = page, high = page + PAGE < size ? page + PAGE : size;
        if (memcmp(was + low, now + low, high - low) == 0)
            continue;
        while (was[low] == now[low])
            low++;
        while (was[high - 1] == now[high - 1])
            high--;
        struct cc_event event = {.kind = CC_STORE, .flags = CC_STORE_COMPARED, .file = shadow->inode->id, .offset = base + low};
        trace_bytes(thread, event, NULL, 0, now + low, high - low);
        memcpy(was + low, now + low, high - low);
    }
}

/* Calls `each` for the data of a file; what is a hole on both sides is not read. */
static void with_blocks(struct shadow *shadow, uint64_t from, uint64_t to, struct tracee *thread,
                        void (*each)(struct tracee *, struct shadow *, uint64_t, const char *, uint64_t))
{
    static char block[BLOCK];
    while (from < to) {
        off_t data = lseek(shadow->fd, (off_t)from, SEEK_DATA);
        if (data < 0 || (uint64_t)data >= to)
            return;
        off_t hole = lseek(shadow->fd, data, SEEK_HOLE);
        uint64_t end = hole < 0 ? to : ((uint64_t)hole + PAGE - 1) / PAGE * PAGE; /* whole pages, whatever the blocks of the disk */
        end = end < to ? end : to;
        for (from = (uint64_t)data / PAGE * PAGE; from < end;) {
            uint64_t part = BLOCK - from % BLOCK < end - from ? BLOCK - from % BLOCK : end - from;
            ssize_t got = pread(shadow->fd, block, part, (off_t)from);
            if (got <= 0)
                return;
            each(thread, shadow, from, block, (uint64_t)got);
            from += (uint64_t)got;
        }
    }
}

static void take_block(struct tracee *thread, struct shadow *shadow, uint64_t base, const char *now, uint64_t size)
{
    (void)thread;
    memcpy(shadow->bytes + base, now, size);
}

static uint64_t size_now(struct shadow *shadow)
{
    struct stat state;
    return fstat(shadow->fd, &state) == 0 ? (uint64_t)state.st_size : 0;
}

void mappings_compare(struct tracee *thread, struct inode *inode)
{
    struct shadow *shadow = inode->shadow;
    if (!shadow)
        return;
    stores_take();
    uint64_t size = size_now(shadow);
    need(shadow, size);
    with_blocks(shadow, 0, size, thread, compare_block);
}

void mappings_stored(uint32_t inode, uint64_t offset, const void *bytes, uint64_t size)
{
    struct shadow *shadow = inode <= inodes_count() ? inode_at(inode)->shadow : NULL;
    if (!shadow)
        return;
    need(shadow, offset + size);
    memcpy(shadow->bytes + offset, bytes, size);
}

void mappings_compare_all(struct tracee *thread)
{
    for (struct shadow *shadow = shadows; shadow; shadow = shadow->next)
        mappings_compare(thread, shadow->inode);
}

void mappings_refresh(struct inode *inode, uint64_t offset, uint64_t size)
{
    struct shadow *shadow = inode->shadow;
    if (!shadow)
        return;
    stores_take();
    uint64_t end = size_now(shadow);
    need(shadow, end);
    if (shadow->size > end) { /* it was cut: what comes there later begins as zeros */
        madvise(shadow->bytes + (end + PAGE - 1) / PAGE * PAGE, shadow->room - (end + PAGE - 1) / PAGE * PAGE, MADV_DONTNEED);
        if (end % PAGE)
            memset(shadow->bytes + end, 0, PAGE - end % PAGE);
        shadow->size = end;
    }
    if (offset + size < end)
        end = offset + size;
    if (offset < end) {
        memset(shadow->bytes + offset, 0, end - offset);
        with_blocks(shadow, offset, end, NULL, take_block);
    }
}

static void shadow_begin(struct tracee *thread, struct inode *inode, int fd)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    struct shadow *shadow = calloc(1, sizeof *shadow);
    if (!shadow)
        die("no memory");
    shadow->fd = open(path, O_RDONLY | O_CLOEXEC);
    shadow->inode = inode;
    if (shadow->fd < 0) {
        unfollowed(thread, inode, "a mapping that cannot be read");
        free(shadow);
        return;
    }
    inode->shadow = shadow;
    shadow->next = shadows;
    shadows = shadow;
    mappings_refresh(inode, 0, UINT64_MAX / 2);
}

static void shadow_end(struct tracee *thread, struct inode *inode)
{
    struct shadow *shadow = inode->shadow, **at = &shadows;
    if (!shadow)
        return;
    mappings_compare(thread, inode);
    while (*at != shadow)
        at = &(*at)->next;
    *at = shadow->next;
    if (shadow->bytes)
        munmap(shadow->bytes, shadow->room);
    close(shadow->fd);
    free(shadow);
    inode->shadow = NULL;
}

static void add(struct process *process, struct mapping mapping)
{
    struct mapping *wider = realloc(process->mappings, (process->mapping_count + 1) * sizeof *wider);
    if (!wider)
        die("no memory");
    process->mappings = wider;
    wider[process->mapping_count++] = mapping;
    inode_at(mapping.inode)->mappings++;
}

static void drop(struct tracee *thread, struct process *process, size_t which)
{
    struct inode *inode = inode_at(process->mappings[which].inode);
    process->mappings[which] = process->mappings[--process->mapping_count];
    if (--inode->mappings == 0)
        shadow_end(thread, inode);
}

static uint64_t pages(uint64_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* A range of addresses has no mapping any more, or another one. */
static void cut(struct tracee *thread, uint64_t low, uint64_t high)
{
    struct process *process = thread->process;
    for (size_t i = process->mapping_count; i-- > 0;) {
        struct mapping old = process->mappings[i];
        if (old.start >= high || old.end <= low)
            continue;
        if (old.start < low)
            add(process, (struct mapping){old.start, low, old.offset, old.inode});
        if (old.end > high)
            add(process, (struct mapping){high, old.end, old.offset + (high - old.start), old.inode});
        drop(thread, process, i);
    }
}

void mappings_inherit(struct process *child, const struct process *parent)
{
    for (size_t i = 0; i < parent->mapping_count; i++)
        add(child, parent->mappings[i]);
}

void mappings_end(struct tracee *thread, struct process *process)
{
    while (process->mapping_count)
        drop(thread, process, process->mapping_count - 1);
}

static void map_event(struct tracee *thread, uint8_t kind, struct mapping mapping)
{
    uint64_t where[2] = {mapping.start, mapping.end - mapping.start};
    struct cc_event event = {
        .kind = kind, .file = mapping.inode, .offset = mapping.offset, .aux = CC_MAP_SHARED | CC_MAP_WRITE};
    trace_bytes(thread, event, NULL, 0, where, sizeof where);
}

static enum then map_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    stack_forget(thread->process);
    if (!(call->argument[3] & MAP_SHARED))
        return SKIP; /* code */
    call->fd = descriptor_of(thread, (int)call->argument[4]);
    struct stat state;
    int flags = call->fd < 0 ? -1 : fcntl(call->fd, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || fstat(call->fd, &state) != 0 || !S_ISREG(state.st_mode))
        return SKIP; /* a file that is open for reading alone is never mapped for writing */
    struct inode *inode = inode_of(&state);
    if (!inode)
        return SKIP;
    call->inode = inode->id;
    if (!inode->shadow)
        shadow_begin(thread, inode, call->fd);
    return UPDATE;
}

static void map_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct inode *inode = inode_at(call->inode);
    if (call->result < 0 && call->result > -4096) {
        if (!inode->mappings)
            shadow_end(thread, inode);
        return;
    }
    uint64_t start = (uint64_t)call->result, end = start + pages(call->argument[1]);
    struct mapping mapping = {start, end, call->argument[5], call->inode};
    inode->mappings++; /* it may replace the last other one */
    cut(thread, start, end);
    add(thread->process, mapping);
    inode->mappings--;
    map_event(thread, CC_MAP, mapping);
}

static enum then unmap_enter(struct tracee *thread)
{
    if (!thread->process->mapping_count)
        return SKIP;
    struct call *call = &thread->call;
    uint64_t low = call->argument[0], high = low + pages(call->argument[1]);
    bool found = false;
    for (size_t i = 0; i < thread->process->mapping_count; i++) {
        struct mapping mapping = thread->process->mappings[i];
        if (mapping.start < high && mapping.end > low) {
            stack_locate(thread);
            mappings_compare(thread, inode_at(mapping.inode));
            found = true;
        }
    }
    return found ? UPDATE : SKIP;
}

static void unmap_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    if (call->result == 0)
        cut(thread, call->argument[0], call->argument[0] + pages(call->argument[1]));
}

/* The mapping that an address is in, or NULL. */
static const struct mapping *mapping_at(const struct process *process, uint64_t address)
{
    for (size_t i = 0; i < process->mapping_count; i++)
        if (process->mappings[i].start <= address && address < process->mappings[i].end)
            return &process->mappings[i];
    return NULL;
}

static enum then move_enter(struct tracee *thread)
{
    return mapping_at(thread->process, thread->call.argument[0]) ? UPDATE : SKIP;
}

static void move_leave(struct tracee *thread)
{
    struct call *call = &thread->call;
    const struct mapping *found = mapping_at(thread->process, call->argument[0]);
    if (!found || (call->result < 0 && call->result > -4096))
        return;
    struct mapping old = *found;
    uint64_t from = call->argument[0], start = (uint64_t)call->result, end = start + pages(call->argument[2]);
    inode_at(old.inode)->mappings++; /* it may be the last one until it is added again */
    if (!(call->argument[3] & MREMAP_DONTUNMAP))
        cut(thread, from, from + pages(call->argument[1]));
    cut(thread, start, end);
    add(thread->process, (struct mapping){start, end, old.offset + (from - old.start), old.inode});
    inode_at(old.inode)->mappings--;
}

/* msync: each file in the range as a sync of its own. */
static void msync_events(struct tracee *thread, bool begins)
{
    struct call *call = &thread->call;
    uint64_t low = call->argument[0], high = low + pages(call->argument[1]);
    uint32_t kind = call->argument[2] & MS_SYNC ? CC_MSYNC : CC_MSYNC_ASYNC;
    for (size_t i = 0; i < thread->process->mapping_count; i++) {
        struct mapping mapping = thread->process->mappings[i];
        uint64_t start = mapping.start > low ? mapping.start : low, end = mapping.end < high ? mapping.end : high;
        if (start >= end)
            continue;
        struct cc_event event = {.kind = begins ? CC_SYNC_BEGIN : CC_SYNC_END,
                                 .aux = kind,
                                 .file = mapping.inode,
                                 .offset = mapping.offset + (start - mapping.start),
                                 .size = end - start > UINT32_MAX ? 0 : (uint32_t)(end - start)};
        if (begins) {
            call->inode = mapping.inode;
            call->offset = trace_event(thread, event);
            call->size++;
        } else {
            event.payload = call->offset - --call->size; /* they began one after another */
            event.flags = call->result != 0;
            trace_event(thread, event);
        }
    }
}

static enum then msync_enter(struct tracee *thread)
{
    thread->call.size = 0;
    if (!thread->process->mapping_count || !(thread->call.argument[2] & (MS_SYNC | MS_ASYNC)))
        return SKIP;
    stack_locate(thread);
    for (size_t i = 0; i < thread->process->mapping_count; i++)
        mappings_compare(thread, inode_at(thread->process->mappings[i].inode));
    msync_events(thread, true);
    return thread->call.size ? LEAVE : SKIP;
}

static void msync_leave(struct tracee *thread)
{
    msync_events(thread, false);
}

const struct handler map_map = {map_enter, map_leave, false};
const struct handler map_unmap = {unmap_enter, unmap_leave, false};
const struct handler map_move = {move_enter, move_leave, false};
const struct handler map_sync = {msync_enter, msync_leave, false};
