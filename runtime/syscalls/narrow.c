/* The calls of 32-bit programs, which have numbers of their own, as calls of x86-64 with the same arguments. */
#include <stddef.h>
#include <sys/syscall.h>

#include "syscalls/recorder.h"

#define X32 0x40000000 /* bit of a number: a call of x32 */

/* Two of its arguments are one of 64 bits. */
enum pairs { NONE, FROM_2ND = 1, FROM_3RD = 2, FROM_4TH = 3 };

/* What can change or sync a file, or is output. Of other numbers up to LAST_CALL nothing can, or `unseen` names them. */
static const struct narrow {
    long number, same;  /* same: 0: it is not followed */
    enum pairs joined;
    const char *unseen;
} calls[] = {
    {4, SYS_write, NONE, NULL},
    {5, SYS_open, NONE, NULL},
    {8, SYS_creat, NONE, NULL},
    {9, SYS_link, NONE, NULL},
    {10, SYS_unlink, NONE, NULL},
    {14, SYS_mknod, NONE, NULL},
    {36, SYS_sync, NONE, NULL},
    {38, SYS_rename, NONE, NULL},
    {39, SYS_mkdir, NONE, NULL},
    {40, SYS_rmdir, NONE, NULL},
    {54, SYS_ioctl, NONE, NULL},
    {61, SYS_chroot, NONE, NULL},
    {83, SYS_symlink, NONE, NULL},
    {91, SYS_munmap, NONE, NULL},
    {92, SYS_truncate, NONE, NULL},
    {93, SYS_ftruncate, NONE, NULL},
    {118, SYS_fsync, NONE, NULL},
    {120, SYS_clone, NONE, NULL},
    {144, SYS_msync, NONE, NULL},
    {146, SYS_writev, NONE, NULL},
    {148, SYS_fdatasync, NONE, NULL},
    {163, SYS_mremap, NONE, NULL},
    {181, SYS_pwrite64, FROM_4TH, NULL},
    {187, SYS_sendfile, NONE, NULL},
    {192, SYS_mmap, NONE, NULL},
    {193, SYS_truncate, FROM_2ND, NULL},
    {194, SYS_ftruncate, FROM_2ND, NULL},
    {239, SYS_sendfile, NONE, NULL},
    {248, 0, NONE, "32-bit io_submit"},
    {295, SYS_openat, NONE, NULL},
    {296, SYS_mkdirat, NONE, NULL},
    {297, SYS_mknodat, NONE, NULL},
    {301, SYS_unlinkat, NONE, NULL},
    {302, SYS_renameat, NONE, NULL},
    {303, SYS_linkat, NONE, NULL},
    {304, SYS_symlinkat, NONE, NULL},
    {310, SYS_unshare, NONE, NULL},
    {313, SYS_splice, NONE, NULL},
    {324, SYS_fallocate, FROM_3RD, NULL},
    {334, SYS_pwritev, FROM_4TH, NULL},
    {344, SYS_syncfs, NONE, NULL},
    {346, SYS_setns, NONE, NULL},
    {353, SYS_renameat2, NONE, NULL},
    {361, SYS_bind, NONE, NULL},
    {369, SYS_sendto, NONE, NULL},
    {377, SYS_copy_file_range, NONE, NULL},
    {379, SYS_pwritev2, FROM_4TH, NULL},
    {425, SYS_io_uring_setup, NONE, NULL},
    {426, SYS_io_uring_enter, NONE, NULL},
    {435, SYS_clone3, NONE, NULL},
    {437, SYS_openat2, NONE, NULL},
};

/* Arguments of 64 bits come as two: the lower half first. */
static void join(struct call *call, enum pairs from)
{
    uint64_t *a = call->argument;
    if (from == NONE)
        return;
    a[from] |= a[from + 1] << 32;
    if (from == FROM_3RD)
        a[3] = a[4] | a[5] << 32;
}

static const struct handler *by_x32(struct call *call)
{
    call->number &= ~X32;
    return call->number < 512 ? handler_of(call->number) : &call_unseen; /* the others have structures of their own */
}

const struct handler *narrow_call(struct call *call, bool x32)
{
    call->narrow = !x32;
    call->unseen = x32 ? "x32 call" : "32-bit call";
    if (x32)
        return by_x32(call);
    long number = call->number;
    call->number = -1;
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        const struct narrow *known = &calls[i];
        if (known->number != number)
            continue;
        if (known->unseen) {
            call->unseen = known->unseen;
            return &call_unseen;
        }
        call->number = known->same;
        join(call, known->joined);
        if (number == 192) /* mmap2: its offset counts pages */
            call->argument[5] *= 4096;
        return handler_of(call->number);
    }
    return number > LAST_CALL ? &call_unseen : NULL;
}
