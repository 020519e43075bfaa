/* The table of calls: which are answered, and how; which the kernel makes as they are; all others are named as not controlled. */
#include <fcntl.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "nodes/parts.h"

static const struct handler *const answered[LAST_CALL + 1] = {
    [SYS_socket] = &call_socket,
    [SYS_bind] = &call_bind,
    [SYS_listen] = &call_listen,
    [SYS_connect] = &call_connect,
    [SYS_accept] = &call_accept,
    [SYS_accept4] = &call_accept,
    [SYS_shutdown] = &call_shutdown,
    [SYS_setsockopt] = &call_setsockopt,
    [SYS_getsockopt] = &call_getsockopt,
    [SYS_getsockname] = &call_getsockname,
    [SYS_getpeername] = &call_getpeername,
    [SYS_read] = &call_read,
    [SYS_readv] = &call_read,
    [SYS_write] = &call_write,
    [SYS_writev] = &call_write,
    [SYS_recvfrom] = &call_receive,
    [SYS_recvmsg] = &call_receive_message,
    [SYS_recvmmsg] = &call_receive_messages,
    [SYS_sendto] = &call_send,
    [SYS_sendmsg] = &call_send_message,
    [SYS_sendmmsg] = &call_send_messages,
    [SYS_sendfile] = &call_copies,
    [SYS_splice] = &call_copies,
    [SYS_copy_file_range] = &call_copies,
    [SYS_open] = &call_open,
    [SYS_openat] = &call_open,
    [SYS_openat2] = &call_open,
    [SYS_stat] = &call_stat,
    [SYS_fstat] = &call_stat,
    [SYS_lstat] = &call_stat,
    [SYS_newfstatat] = &call_stat,
    [SYS_statx] = &call_statx,
    [SYS_statfs] = &call_statfs,
    [SYS_fstatfs] = &call_statfs,
    [SYS_getdents64] = &call_list,
    [SYS_fsync] = &call_sync,
    [SYS_fdatasync] = &call_sync,
    [SYS_sync] = &call_sync,
    [SYS_syncfs] = &call_sync,
    [SYS_close] = &call_close,
    [SYS_close_range] = &call_close_range,
    [SYS_dup] = &call_dup,
    [SYS_dup2] = &call_dup2,
    [SYS_dup3] = &call_dup2,
    [SYS_fcntl] = &call_fcntl,
    [SYS_flock] = &call_flock,
    [SYS_ioctl] = &call_ioctl,
    [SYS_poll] = &call_poll,
    [SYS_ppoll] = &call_ppoll,
    [SYS_select] = &call_select,
    [SYS_pselect6] = &call_select,
    [SYS_epoll_wait] = &call_epoll,
    [SYS_epoll_pwait] = &call_epoll,
    [SYS_epoll_pwait2] = &call_epoll,
    [SYS_clock_gettime] = &call_clock_gettime,
    [SYS_clock_getres] = &call_clock_getres,
    [SYS_gettimeofday] = &call_gettimeofday,
    [SYS_time] = &call_time,
    [SYS_times] = &call_times,
    [SYS_nanosleep] = &call_nanosleep,
    [SYS_clock_nanosleep] = &call_clock_nanosleep,
    [SYS_clock_settime] = &call_refused,
    [SYS_settimeofday] = &call_refused,
    [SYS_adjtimex] = &call_refused,
    [SYS_clock_adjtime] = &call_refused,
    [SYS_timerfd_create] = &call_timerfd_create,
    [SYS_timerfd_settime] = &call_timerfd_settime,
    [SYS_timerfd_gettime] = &call_timerfd_gettime,
    [SYS_alarm] = &call_alarm,
    [SYS_setitimer] = &call_setitimer,
    [SYS_getitimer] = &call_getitimer,
    [SYS_timer_create] = &call_timer_create,
    [SYS_timer_settime] = &call_timer_settime,
    [SYS_timer_gettime] = &call_timer_gettime,
    [SYS_timer_getoverrun] = &call_timer_getoverrun,
    [SYS_timer_delete] = &call_timer_delete,
    [SYS_futex] = &call_futex,
    [SYS_sched_yield] = &call_yield,
    [SYS_kill] = &call_kill,
    [SYS_tkill] = &call_kill,
    [SYS_tgkill] = &call_kill,
    [SYS_rt_sigqueueinfo] = &call_kill,
    [SYS_rt_tgsigqueueinfo] = &call_kill,
    [SYS_pause] = &call_suspend,
    [SYS_rt_sigsuspend] = &call_suspend,
    [SYS_rt_sigtimedwait] = &call_signal_wait,
    [SYS_clone] = &call_clone,
    [SYS_clone3] = &call_clone,
    [SYS_wait4] = &call_wait,
    [SYS_waitid] = &call_waitid,
    [SYS_exit] = &call_exit,
    [SYS_exit_group] = &call_exit_group,
    [SYS_getrandom] = &call_getrandom,
    [SYS_uname] = &call_uname,
    [SYS_sysinfo] = &call_sysinfo,
    [SYS_getcpu] = &call_getcpu,
    [SYS_sched_getaffinity] = &call_affinity,
    [SYS_sched_setaffinity] = &call_nothing,
    [SYS_getrusage] = &call_usage,
    [SYS_rseq] = &call_refused,
    [SYS_io_uring_setup] = &call_refused,
    [SYS_perf_event_open] = &call_refused,
    [SYS_shmget] = &call_segments,
    [SYS_shmat] = &call_segments,
    [SYS_shmdt] = &call_segments,
    [SYS_shmctl] = &call_segments,
    [SYS_io_submit] = &call_submit,
    [SYS_io_getevents] = &call_get_events,
    [SYS_io_pgetevents] = &call_get_events,
    [SYS_io_destroy] = &call_destroy_ring,
};

/* Neither wait nor differ from run to run, and concern no other node. */
static const bool untouched[LAST_CALL + 1] = {
    [SYS_access] = true,
    [SYS_faccessat] = true, [SYS_faccessat2] = true, [SYS_lseek] = true, [SYS_pread64] = true, [SYS_pwrite64] = true,
    [SYS_preadv] = true, [SYS_pwritev] = true, [SYS_preadv2] = true, [SYS_pwritev2] = true, [SYS_mmap] = true,
    [SYS_munmap] = true, [SYS_mprotect] = true, [SYS_mremap] = true, [SYS_madvise] = true, [SYS_brk] = true,
    [SYS_msync] = true, [SYS_mincore] = true, [SYS_mlock] = true, [SYS_mlock2] = true, [SYS_munlock] = true,
    [SYS_mlockall] = true, [SYS_munlockall] = true, [SYS_rt_sigaction] = true, [SYS_rt_sigprocmask] = true,
    [SYS_rt_sigreturn] = true, [SYS_rt_sigpending] = true, [SYS_sigaltstack] = true, [SYS_pipe] = true, [SYS_pipe2] = true,
    [SYS_socketpair] = true, [SYS_eventfd] = true, [SYS_eventfd2] = true, [SYS_signalfd] = true, [SYS_signalfd4] = true,
    [SYS_epoll_create] = true, [SYS_epoll_create1] = true, [SYS_epoll_ctl] = true, [SYS_memfd_create] = true,
    [SYS_truncate] = true, [SYS_ftruncate] = true, [SYS_fallocate] = true,
    [SYS_sync_file_range] = true, [SYS_fadvise64] = true, [SYS_readahead] = true,
    [SYS_getcwd] = true, [SYS_chdir] = true, [SYS_fchdir] = true,
    [SYS_rename] = true, [SYS_renameat] = true, [SYS_renameat2] = true, [SYS_mkdir] = true, [SYS_mkdirat] = true,
    [SYS_rmdir] = true, [SYS_creat] = true, [SYS_link] = true, [SYS_linkat] = true, [SYS_unlink] = true,
    [SYS_unlinkat] = true, [SYS_symlink] = true, [SYS_symlinkat] = true, [SYS_readlink] = true, [SYS_readlinkat] = true,
    [SYS_chmod] = true, [SYS_fchmod] = true, [SYS_fchmodat] = true, [SYS_chown] = true, [SYS_fchown] = true,
    [SYS_lchown] = true, [SYS_fchownat] = true, [SYS_umask] = true, [SYS_utime] = true, [SYS_utimes] = true,
    [SYS_utimensat] = true, [SYS_futimesat] = true, [SYS_getxattr] = true,
    [SYS_fgetxattr] = true, [SYS_lgetxattr] = true, [SYS_setxattr] = true, [SYS_fsetxattr] = true, [SYS_listxattr] = true,
    [SYS_execve] = true, [SYS_execveat] = true, [SYS_fork] = true, [SYS_vfork] = true, [SYS_getpid] = true,
    [SYS_gettid] = true, [SYS_getppid] = true, [SYS_getpgrp] = true, [SYS_getpgid] = true, [SYS_setpgid] = true,
    [SYS_setsid] = true, [SYS_getsid] = true, [SYS_getuid] = true, [SYS_geteuid] = true, [SYS_getgid] = true,
    [SYS_getegid] = true, [SYS_getgroups] = true, [SYS_getresuid] = true, [SYS_getresgid] = true, [SYS_setuid] = true,
    [SYS_setgid] = true, [SYS_setresuid] = true, [SYS_setresgid] = true, [SYS_setreuid] = true, [SYS_setregid] = true,
    [SYS_setgroups] = true, [SYS_capget] = true, [SYS_capset] = true, [SYS_prctl] = true, [SYS_arch_prctl] = true,
    [SYS_set_tid_address] = true, [SYS_set_robust_list] = true, [SYS_get_robust_list] = true, [SYS_getrlimit] = true,
    [SYS_setrlimit] = true, [SYS_prlimit64] = true, [SYS_getpriority] = true, [SYS_setpriority] = true,
    [SYS_sched_getparam] = true, [SYS_sched_setparam] = true, [SYS_sched_getscheduler] = true, [SYS_sched_setscheduler] = true,
    [SYS_sched_get_priority_max] = true, [SYS_sched_get_priority_min] = true, [SYS_ioprio_get] = true, [SYS_ioprio_set] = true,
    [SYS_membarrier] = true, [SYS_personality] = true, [SYS_restart_syscall] = true, [SYS_get_mempolicy] = true,
    [SYS_set_mempolicy] = true, [SYS_mbind] = true, [SYS_pkey_alloc] = true, [SYS_pkey_free] = true, [SYS_pkey_mprotect] = true,
    [SYS_sethostname] = true, [SYS_seccomp] = true, [SYS_inotify_init1] = true, [SYS_inotify_add_watch] = true,
    [SYS_inotify_rm_watch] = true, [SYS_io_setup] = true, [SYS_io_cancel] = true,
};

const struct handler *handler_of(uint64_t number)
{
    if (number > LAST_CALL || (!answered[number] && !untouched[number]))
        return &call_unknown;
    return answered[number];
}

/* Change files, at least where they write to them. */
static const bool changing[LAST_CALL + 1] = {
    [SYS_write] = true, [SYS_writev] = true, [SYS_pwrite64] = true, [SYS_pwritev] = true, [SYS_pwritev2] = true,
    [SYS_sendfile] = true, [SYS_splice] = true, [SYS_copy_file_range] = true, [SYS_truncate] = true,
    [SYS_ftruncate] = true, [SYS_fallocate] = true, [SYS_open] = true, [SYS_openat] = true, [SYS_openat2] = true,
    [SYS_creat] = true, [SYS_mkdir] = true, [SYS_mkdirat] = true, [SYS_rmdir] = true, [SYS_link] = true,
    [SYS_linkat] = true, [SYS_unlink] = true, [SYS_unlinkat] = true, [SYS_symlink] = true, [SYS_symlinkat] = true,
    [SYS_rename] = true, [SYS_renameat] = true, [SYS_renameat2] = true, [SYS_mmap] = true,
};

bool call_may_change_files(uint64_t number)
{
    return number <= LAST_CALL && changing[number];
}

bool call_changes_files(const struct thread *thread)
{
    uint64_t number = thread->called.orig_rax;
    if (number == SYS_open || number == SYS_openat)
        return argument(thread, number == SYS_open ? 1 : 2) & (O_CREAT | O_TRUNC);
    if (number == SYS_write || number == SYS_writev)
        return descriptor_plain(thread, (int)argument(thread, 0));
    if (number == SYS_mmap) {
        thread->process->node->maps_files |= (argument(thread, 3) & (MAP_SHARED | MAP_ANONYMOUS)) == MAP_SHARED;
        return false;
    }
    return call_may_change_files(number) || handler_of(number) == &call_unknown;
}
