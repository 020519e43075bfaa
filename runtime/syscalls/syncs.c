/* Calls that make files or names durable. They are intervals: other threads continue meanwhile. */
#include <errno.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "syscalls/recorder.h"

static enum then begin(struct tracee *thread, struct cc_event event)
{
    event.kind = CC_SYNC_BEGIN;
    thread->call.inode = event.file;
    thread->call.flags = (int)event.aux;
    thread->call.size = event.size;
    thread->call.offset = trace_event(thread, event);
    return LEAVE;
}

static void leave(struct tracee *thread)
{
    const struct call *call = &thread->call;
    struct cc_event event = {.kind = CC_SYNC_END,
                             .aux = (uint32_t)call->flags,
                             .file = call->inode,
                             .offset = call->number == SYS_sync_file_range ? call->argument[1] : 0,
                             .size = (uint32_t)call->size,
                             .payload = call->offset,
                             .flags = call->result < 0 && call->number != SYS_sync};
    trace_event(thread, event);
}

static void leave_all(struct tracee *thread)
{
    if (thread->call.number == SYS_sync || thread->call.result == 0)
        outside_all_synced();
    leave(thread);
}

/* fsync, fdatasync and sync_file_range of a file or directory in the folder. */
static enum then file_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    if (!call_opens(thread, (int)call->argument[0], &state))
        return SKIP;
    struct inode *inode = inode_of(&state);
    if (!inode && call->number != SYS_sync_file_range)
        outside_synced(&state);
    if (!inode || !(S_ISREG(state.st_mode) || S_ISDIR(state.st_mode)))
        return SKIP;
    stack_locate(thread);
    shadows_compare_all(thread);
    if (call->number == SYS_sync_file_range) {
        uint64_t size = call->argument[2] < UINT32_MAX ? call->argument[2] : 0;
        struct cc_event event = {
            .aux = CC_SYNC_RANGE, .file = inode->id, .offset = call->argument[1], .size = (uint32_t)size};
        return begin(thread, event);
    }
    struct cc_event event = {.aux = call->number == SYS_fsync ? CC_FSYNC : CC_FDATASYNC, .file = inode->id};
    return begin(thread, event);
}

static enum then all_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    if (call->number == SYS_syncfs) {
        if (!call_opens(thread, (int)call->argument[0], &state) || state.st_dev != inodes_device())
            return SKIP;
    }
    stack_locate(thread);
    shadows_compare_all(thread);
    return begin(thread, (struct cc_event){.aux = CC_SYNC});
}

const struct handler sync_file = {file_enter, leave, true};
const struct handler sync_all = {all_enter, leave_all, true};
