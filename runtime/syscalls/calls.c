/* The table of calls that stop, by number. */
#include <sys/syscall.h>

#include "syscalls/recorder.h"

static const struct handler *const table[] = {
    [SYS_write] = &content_write,
    [SYS_pwrite64] = &content_write,
    [SYS_writev] = &content_write,
    [SYS_pwritev] = &content_write,
    [SYS_pwritev2] = &content_write,
    [SYS_sendfile] = &content_range,
    [SYS_splice] = &content_range,
    [SYS_copy_file_range] = &content_range,
    [SYS_ioctl] = &content_clone,
    [SYS_truncate] = &content_truncate,
    [SYS_ftruncate] = &content_ftruncate,
    [SYS_fallocate] = &content_allocate,
    [SYS_open] = &name_open,
    [SYS_openat] = &name_open,
    [SYS_openat2] = &name_open,
    [SYS_creat] = &name_open,
    [SYS_mkdir] = &name_make,
    [SYS_mkdirat] = &name_make,
    [SYS_mknod] = &name_make,
    [SYS_mknodat] = &name_make,
    [SYS_bind] = &name_bind,
    [SYS_symlink] = &name_symlink,
    [SYS_symlinkat] = &name_symlink,
    [SYS_link] = &name_link,
    [SYS_linkat] = &name_link,
    [SYS_unlink] = &name_unlink,
    [SYS_unlinkat] = &name_unlink,
    [SYS_rmdir] = &name_unlink,
    [SYS_rename] = &name_rename,
    [SYS_renameat] = &name_rename,
    [SYS_renameat2] = &name_rename,
    [SYS_mmap] = &map_map,
    [SYS_munmap] = &map_unmap,
    [SYS_mremap] = &map_move,
    [SYS_msync] = &map_sync,
    [SYS_fsync] = &sync_file,
    [SYS_fdatasync] = &sync_file,
    [SYS_sync_file_range] = &sync_file,
    [SYS_sync] = &sync_all,
    [SYS_syncfs] = &sync_all,
    [SYS_sendto] = &output_send,
    [SYS_sendmsg] = &output_send,
    [SYS_sendmmsg] = &output_send,
    [SYS_socketpair] = &output_pair,
    [SYS_prctl] = &output_mark,
    [SYS_io_uring_setup] = &call_unmodelled,
    [SYS_io_submit] = &call_unmodelled,
    [SYS_pidfd_getfd] = &call_unmodelled,
};

const struct handler *handler_of(long number)
{
    return number >= 0 && number < (long)(sizeof table / sizeof *table) ? table[number] : NULL;
}
