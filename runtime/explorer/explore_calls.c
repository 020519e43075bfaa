/* The system calls of an explored check: those whose effect stays in the process are made or imitated, any other ends the
 * exploration (explorer/explore.c). */
#ifdef CC_SHARED
#include <errno.h>
#include <linux/futex.h>

#include "explorer/exploration.h"
#include "explorer/file_calls.h"
#include "explorer/handlers.h"
#include "explorer/mapping_calls.h"
#include "explorer/section.h"
#include "explorer/state.h"
#include "explorer/written.h"

HERE static long enters_folder(long number, const long *a)
{
    const char *path = (const char *)a[0];
    if (is_mapped((uintptr_t)path))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    long result = raw3(number, a[0], 0, 0);
    if (!raw_failed(result))
        cc_explore_stir_bytes(cc_run.history, path, raw_length(path));
    return result;
}

HERE static long syncs_mapping(long number, const long *a)
{
    return raw3(number, a[0], a[1], a[2]);
}

HERE static long masks(ucontext_t *context, const long *a)
{
    uint64_t *mask = (uint64_t *)(void *)&context->uc_sigmask;
    if (a[2])
        raw_move((void *)a[2], mask, sizeof *mask);
    if (!a[1])
        return 0;
    uint64_t given;
    raw_move(&given, (const void *)a[1], sizeof given);
    uint64_t now = a[0] == SIG_BLOCK ? *mask | given : a[0] == SIG_UNBLOCK ? *mask & ~given : given;
    *mask = now & ~(1ull << (SIGSEGV - 1) | 1ull << (SIGTRAP - 1) | 1ull << (SIGSYS - 1));
    return 0;
}

HERE static long kills(long number, const long *a)
{
    long thread = number == SYS_tgkill ? a[1] : a[0], signal = number == SYS_tgkill ? a[2] : a[1];
    if (thread != cc_run.first_process || (number == SYS_tgkill && a[0] != cc_run.first_process) || signal < 0 || signal > 64)
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    if (signal)
        cc_explore_signalled((int32_t)signal);
    return 0; /* it was asked whether there is such a process */
}

/* What the program wants done on a signal is kept here alone: if it comes, the exploration ends. */
HERE static long acts(long number, const long *a)
{
    size_t size = sizeof(struct kernel_action);
    if (lies_in_file((uintptr_t)a[1], size) || lies_in_file((uintptr_t)a[2], size))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    if (a[0] < 1 || a[0] > SIGNALS || a[3] != 8 || (a[1] && (a[0] == SIGKILL || a[0] == SIGSTOP)))
        return -EINVAL;
    struct kernel_action *now = &cc_run.actions[a[0] - 1], was = *now;
    if (a[1]) {
        raw_move(now, (const void *)a[1], size);
        cc_explore_stir_bytes(cc_run.history, now, size);
    }
    if (a[2])
        raw_move((void *)a[2], &was, size);
    return 0;
}

HERE static long ends(long number, const long *a)
{
    (void)number;
    cc_explore_ends((int32_t)(a[0] & 0xff) << 8);
}

HERE static long identifies(long number, const long *a)
{
    (void)number;
    (void)a;
    return cc_run.first_process;
}

HERE static long identifies_parent(long number, const long *a)
{
    (void)number;
    (void)a;
    return cc_run.first_parent;
}

HERE static long reads_limit(long number, const long *a)
{
    if (a[2])
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    return raw4(SYS_prlimit64, a[0], a[1], 0, a[3]);
}

HERE static long wakes(long number, const long *a)
{
    if ((a[1] & FUTEX_CMD_MASK) != FUTEX_WAKE)
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    return 0; /* there is no other thread */
}

/* What a system call does here: it is refused if one of its first `outside` arguments, those that may be addresses, is in the
 * file. Without `performs` it is made as it is, and only its result is seen. */
struct followed {
    long (*performs)(long number, const long *arguments);
    unsigned outside;
};

static const struct followed followed[] = {
    [SYS_exit] = {ends, 0},
    [SYS_exit_group] = {ends, 0},
    [SYS_lseek] = {cc_explore_seeks, 0},
    [SYS_write] = {cc_explore_writes, 0},
    [SYS_pwrite64] = {cc_explore_writes, 0},
    [SYS_writev] = {cc_explore_writes_parts, 0},
    [SYS_getdents64] = {cc_explore_lists, 0},
    [SYS_chdir] = {enters_folder, 0},
    [SYS_open] = {cc_explore_opens, 1},
    [SYS_openat] = {cc_explore_opens, 2},
    [SYS_creat] = {cc_explore_opens, 1},
    [SYS_dup] = {cc_explore_duplicates, 0},
    [SYS_dup2] = {cc_explore_duplicates, 0},
    [SYS_dup3] = {cc_explore_duplicates, 0},
    [SYS_mmap] = {cc_explore_maps, 0},
    [SYS_munmap] = {cc_explore_unmaps, 0},
    [SYS_msync] = {syncs_mapping, 0},
    [SYS_mprotect] = {cc_explore_protects, 0},
    [SYS_madvise] = {cc_explore_advises, 0},
    [SYS_mremap] = {cc_explore_remaps, 0},
    [SYS_ftruncate] = {cc_explore_resizes, 0},
    [SYS_getpid] = {identifies, 0},
    [SYS_gettid] = {identifies, 0},
    [SYS_getppid] = {identifies_parent, 0},
    [SYS_kill] = {kills, 0},
    [SYS_tkill] = {kills, 0},
    [SYS_tgkill] = {kills, 0},
    [SYS_rt_sigaction] = {acts, 0},
    [SYS_prlimit64] = {reads_limit, 0},
    [SYS_futex] = {wakes, 0},
    [SYS_ioctl] = {cc_explore_controls, 0},
    [SYS_fcntl] = {cc_explore_controls, 0},
    [SYS_close] = {NULL, 1},
    [SYS_fchdir] = {NULL, 1},
    [SYS_umask] = {NULL, 1},
    [SYS_times] = {NULL, 1},
    [SYS_brk] = {NULL, 1},
    [SYS_fsync] = {cc_explore_syncs, 1},
    [SYS_fdatasync] = {cc_explore_syncs, 1},
    [SYS_flock] = {NULL, 1},
    [SYS_getuid] = {NULL, 1},
    [SYS_geteuid] = {NULL, 1},
    [SYS_getgid] = {NULL, 1},
    [SYS_getegid] = {NULL, 1},
    [SYS_sched_yield] = {NULL, 1},
    [SYS_uname] = {NULL, 1},
    [SYS_sysinfo] = {NULL, 1},
    [SYS_set_tid_address] = {NULL, 1},
    [SYS_fstat] = {cc_explore_asks, 2},
    [SYS_stat] = {cc_explore_asks, 2},
    [SYS_lstat] = {cc_explore_asks, 2},
    [SYS_access] = {cc_explore_asks, 2},
    [SYS_getcwd] = {NULL, 2},
    [SYS_nanosleep] = {NULL, 2},
    [SYS_statfs] = {cc_explore_asks, 2},
    [SYS_fstatfs] = {NULL, 2},
    [SYS_gettimeofday] = {NULL, 2},
    [SYS_clock_gettime] = {NULL, 2},
    [SYS_clock_getres] = {NULL, 2},
    [SYS_set_robust_list] = {NULL, 2},
    [SYS_getrlimit] = {NULL, 2},
    [SYS_getrusage] = {NULL, 2},
    [SYS_getgroups] = {NULL, 2},
    [SYS_readahead] = {NULL, 3},
    [SYS_getresuid] = {NULL, 3},
    [SYS_getresgid] = {NULL, 3},
    [SYS_readlink] = {cc_explore_asks, 3},
    [SYS_getrandom] = {NULL, 3},
    [SYS_sched_getaffinity] = {NULL, 3},
    [SYS_faccessat] = {cc_explore_asks, 3},
    [SYS_newfstatat] = {cc_explore_asks, 4},
    [SYS_readlinkat] = {cc_explore_asks, 4},
    [SYS_clock_nanosleep] = {NULL, 4},
    [SYS_fadvise64] = {NULL, 4},
    [SYS_faccessat2] = {cc_explore_asks, 4},
    [SYS_statx] = {cc_explore_asks, 5},
};

HERE static long performs(ucontext_t *context, long number, const long *a)
{
    if (number == SYS_rt_sigprocmask)
        return masks(context, a);
    if (number == SYS_read || number == SYS_pread64)
        return cc_explore_reads(context, number, a);
    bool listed = number >= 0 && number < (long)(sizeof followed / sizeof *followed);
    const struct followed *call = listed ? &followed[number] : NULL;
    if (!call || !(call->performs || call->outside))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    for (unsigned i = 0; i < call->outside; i++)
        if (is_mapped((uintptr_t)a[i]))
            cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    if (call->performs)
        return call->performs(number, a);
    return raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

HERE void cc_explore_asked(int number, siginfo_t *info, void *given)
{
    (void)number;
    ucontext_t *context = given;
    greg_t *registers = context->uc_mcontext.gregs;
    long arguments[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                         registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
    long result = performs(context, info->si_syscall, arguments);
    stir(cc_run.history, (uint64_t)info->si_syscall);
    for (int i = 0; i < 6; i++)
        stir(cc_run.history, (uint64_t)arguments[i]);
    stir(cc_run.history, (uint64_t)result);
    if (result == -EFAULT) /* perhaps of a closed page */
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)info->si_syscall);
    registers[REG_RAX] = result;
}
#endif
