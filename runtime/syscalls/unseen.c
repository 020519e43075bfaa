/* Calls that may change a watched file and whose effect is not followed. Where one succeeds, the trace names it: then a run that finds
 * nothing proves nothing. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "syscalls/recorder.h"

#define LOOP_SET_FD 0x4c00u
#define LOOP_CHANGE_FD 0x4c06u
#define LOOP_CONFIGURE 0x4c0au
#define CLOSE_RANGE_APART 2 /* CLOSE_RANGE_UNSHARE */

/* By their type and number: of a file or folder they change content or names. */
const uint16_t filter_controls[] = {
    0x9409, 0x940d,                                                 /* FICLONE, FICLONERANGE */
    0x4c00, 0x4c06, 0x4c0a,                                         /* loop devices */
    0x9401, 0x940e, 0x940f, 0x9417, 0x9418, 0x943f, 0x9440,         /* btrfs: subvolumes, snapshots, encoded writes */
    0x660f, 0x6611,                                                 /* ext4: MOVE_EXT, SWAP_BOOT */
    0x580a, 0x580b, 0x5824, 0x5825, 0x5828, 0x5829, 0x582a, 0x582b, /* allocation, as of xfs */
    0x5839, 0x586d, 0x5881, 0x5883,                                 /* zeroed and exchanged ranges, as of xfs */
    0xf501, 0xf502, 0xf503, 0xf509, 0xf517,                         /* f2fs: atomic writes, moved ranges */
    0,
};

static bool uring_allowed;

void unseen_allow_uring(void)
{
    uring_allowed = true;
}

static void name_unseen(struct tracee *thread)
{
    if (thread->call.result >= 0)
        unfollowed(thread, NULL, thread->call.unseen);
}

/* Calls by which the kernel writes later, on its own account, or that leave this recorder out. */
static enum then unseen_enter(struct tracee *thread)
{
    static const struct {
        long number;
        const char *name;
    } known[] = {{SYS_acct, "acct"}, {SYS_swapon, "swapon"}, {SYS_remap_file_pages, "remap_file_pages"}, {SYS_seccomp, "seccomp with a listener"}};
    struct call *call = &thread->call;
    struct stat state;
    if (call->number == SYS_remap_file_pages && !thread->process->mapping_count)
        return SKIP;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (call->number == known[i].number)
            call->unseen = known[i].name;
    if (call->number == SYS_acct || call->number == SYS_swapon) {
        if (!place_of(thread, AT_FDCWD, call->argument[0], &call->from) || !place_stat(&call->from, &state, true) || !inode_of(&state))
            return SKIP;
    }
    return LEAVE;
}

/* io_uring: the kernel writes what rings in memory ask for. Programs find none, and use other calls. */
static enum then uring_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    call->unseen = "io_uring";
    if (uring_allowed || call->number != SYS_io_uring_setup)
        return LEAVE;
    static bool noted;
    if (!noted)
        trace_note("io_uring", "refused");
    noted = true;
    thread->answered = true;
    thread->answer = (uint64_t)-ENOSYS;
    return SKIP;
}

/* What changes where paths lead. */
static enum then mounts_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    struct stat state;
    bool apart = call->number == SYS_unshare || call->number == SYS_close_range;
    if (apart && (call->number == SYS_unshare ? !(call->argument[0] & (CLONE_FILES | CLONE_NEWNS)) : !(call->argument[2] & CLOSE_RANGE_APART)))
        return SKIP;
    bool moves = call->number == SYS_move_mount;
    if (call->number != SYS_mount && !moves)
        return LEAVE;
    if (!place_of(thread, moves ? (int)call->argument[2] : AT_FDCWD, call->argument[moves ? 3 : 1], &call->to) ||
        !place_stat(&call->to, &state, true))
        return LEAVE;
    const struct inode *inode = inode_of(&state);
    bool only_settings = !moves && call->argument[3] & (MS_PRIVATE | MS_SHARED | MS_SLAVE | MS_UNBINDABLE | MS_REMOUNT);
    call->inode = inode && !only_settings ? inode->id : 0;
    return LEAVE;
}

static void mounts_leave(struct tracee *thread)
{
    const struct call *call = &thread->call;
    if (call->result != 0)
        return;
    bool files = call->number == SYS_close_range || (call->number == SYS_unshare && call->argument[0] & CLONE_FILES);
    thread->apart = thread->apart || (files && thread->process->threads > 1);
    thread->process->elsewhere = thread->process->elsewhere || !files || call->argument[0] & CLONE_NEWNS;
    if (call->inode)
        unfollowed(thread, inode_at(call->inode), "mount");
}

/* A child that asks not to be traced would find no tracer for its calls: it is traced. */
static enum then clones_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    uint64_t flags = call->argument[0];
    bool by_structure = call->number == SYS_clone3;
    if (by_structure && memory_read(thread, call->argument[0], &flags, sizeof flags) != sizeof flags)
        return SKIP;
    if (flags & CLONE_NEWNS)
        thread->process->elsewhere = true; /* its children inherit that */
    if (!(flags & CLONE_UNTRACED))
        return SKIP;
    flags &= ~(uint64_t)CLONE_UNTRACED;
    struct iovec here = {&flags, sizeof flags}, there = {(void *)(uintptr_t)call->argument[0], sizeof flags};
    if (by_structure && process_vm_writev(thread->tid, &here, 1, &there, 1, 0) != sizeof flags)
        unfollowed(thread, NULL, "a process that is not traced");
    if (!by_structure) {
        call->argument[0] = flags;
        thread->changed = true;
    }
    return SKIP;
}

/* ioctl: reflinks are followed (content.c), other calls that write are named. */
static enum then controls_enter(struct tracee *thread)
{
    struct call *call = &thread->call;
    uint32_t command = (uint32_t)call->argument[1], kind = command & 0xffff;
    int number = (int)call->argument[0];
    static char name[64];
    if (kind == 0x9409 || kind == 0x940d) {
        thread->handler = &content_clone;
        return content_clone.enter(thread);
    }
    if (command == LOOP_SET_FD || command == LOOP_CHANGE_FD)
        number = (int)call->argument[2];
    else if (command == LOOP_CONFIGURE && memory_read(thread, call->argument[2], &number, sizeof number) != sizeof number)
        return SKIP;
    const struct inode *inode = call_inode(thread, number);
    if (!inode)
        return SKIP;
    snprintf(name, sizeof name, kind >> 8 == 0x4c ? "loop device" : "ioctl %#x", command);
    call->inode = inode->id;
    call->unseen = name;
    return UPDATE; /* `name` is of one call at a time */
}

static void controls_leave(struct tracee *thread)
{
    const struct call *call = &thread->call;
    if (call->result >= 0)
        unfollowed(thread, inode_at(call->inode), call->unseen);
}

const struct handler call_unseen = {unseen_enter, name_unseen, true};
const struct handler call_uring = {uring_enter, name_unseen, true};
const struct handler call_mounts = {mounts_enter, mounts_leave, true};
const struct handler call_clones = {clones_enter, NULL, true};
const struct handler call_controls = {controls_enter, controls_leave, false};
