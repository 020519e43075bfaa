/* Shared mappings of watched files: what is stored through them no call shows (shadows.c). */
#include <fcntl.h>
#include <sys/mman.h>

#include "syscalls/recorder.h"

#define PAGE 4096u

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
            mapping_add(process, (struct mapping){old.start, low, old.offset, old.inode});
        if (old.end > high)
            mapping_add(process, (struct mapping){high, old.end, old.offset + (high - old.start), old.inode});
        drop(thread, process, i);
    }
}

void mappings_end(struct tracee *thread)
{
    struct process *process = thread->process;
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
    mapping_add(thread->process, mapping);
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
            shadow_compare(thread, inode_at(mapping.inode));
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
    mapping_add(thread->process, (struct mapping){start, end, old.offset + (from - old.start), old.inode});
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
    shadows_compare_all(thread);
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
