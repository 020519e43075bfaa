/* The system calls of an explored check: those whose effect stays in the process are made or imitated, any other ends the
 * exploration (explorer/explore.c). */
#ifdef CC_SHARED
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "explorer/decisions.h"
#include "explorer/exploration.h"
#include "explorer/handlers.h"
#include "explorer/mapping_calls.h"
#include "explorer/section.h"
#include "explorer/state.h"

/* Reads from a file as its mapping has it, or, where none has, as its granules are in this process. */
HERE static long read_from(const ucontext_t *context, long number, const long *a, uint64_t offset)
{
    struct stat state;
    long got = raw4(SYS_pread64, a[0], a[1], a[2], (long)offset);
    if (got > 0 && cc_explore_is_ours(a[0]) && !raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0))) {
        stir(cc_run.history, (uint64_t)number); /* where it forks now is not where an access to memory would */
        stir(cc_run.history, offset);
        struct file_range range = {state.st_dev, state.st_ino, offset, offset + (uint64_t)got};
        cc_explore_reads_file(context, &range, (char *)a[1]);
    }
    return got;
}

/* Where this process is in a file: the kernel's own place is that of all processes. */
HERE static uint64_t *place_of(long number, long fd)
{
    if (fd < 0 || fd >= PLACES)
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    uint64_t *place = &cc_run.places[fd];
    if (*place == NO_PLACE) {
        long now = raw3(SYS_lseek, fd, 0, SEEK_CUR);
        if (raw_failed(now))
            cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
        *place = (uint64_t)now;
    }
    return place;
}

HERE static long read_at_place(const ucontext_t *context, long number, const long *a)
{
    if (number == SYS_pread64)
        return read_from(context, number, a, (uint64_t)a[3]);
    uint64_t *place = place_of(number, a[0]);
    long got = read_from(context, number, a, *place);
    if (got > 0)
        *place += (uint64_t)got;
    return got;
}

HERE static long seek(long number, const long *a)
{
    struct stat state;
    if (a[0] < 0 || a[0] >= PLACES)
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    long now = raw3(SYS_lseek, a[0], 0, SEEK_CUR);
    if (raw_failed(now))
        return now;
    if (cc_run.places[a[0]] == NO_PLACE)
        cc_run.places[a[0]] = (uint64_t)now;
    long base = a[2] == SEEK_SET ? 0 : (long)cc_run.places[a[0]];
    if (a[2] == SEEK_END && !raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0)))
        base = state.st_size;
    else if (a[2] != SEEK_SET && a[2] != SEEK_CUR)
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    if (base + a[1] < 0)
        return -EINVAL;
    cc_run.places[a[0]] = (uint64_t)(base + a[1]);
    return base + a[1];
}

/* The names in a folder, from this process's place on: no process changes them. */
HERE static long lists(long number, const long *a)
{
    if (lies_in_file((uintptr_t)a[1], (size_t)a[2]))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    uint64_t *place = place_of(number, a[0]);
    if (raw_failed(raw3(SYS_lseek, a[0], (long)*place, SEEK_SET)))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    long got = raw3(number, a[0], a[1], a[2]);
    *place = (uint64_t)raw3(SYS_lseek, a[0], 0, SEEK_CUR);
    return got;
}

HERE static long prints(long number, long fd, const void *from, size_t size)
{
    if (fd != 1 && fd != 2)
        cc_explore_refuse(cc_explore_is_ours(fd) ? CC_EXPLORE_FILE_READ : CC_EXPLORE_CALL, (uint32_t)number);
    if (lies_in_file((uintptr_t)from, size))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    stir(cc_run.history, (uint64_t)fd);
    cc_explore_stir_bytes(cc_run.history, from, size);
    if (fd == 2 && cc_run.table->apart)
        return (long)size;
    if (cc_run.output_bytes + size > OUTPUT_ROOM)
        cc_explore_refuse(CC_EXPLORE_ROOM, 2);
    raw_move(cc_run.output + cc_run.output_bytes, from, size);
    cc_run.output_bytes += size;
    return (long)size;
}

HERE static long opens_file(long number, const long *a)
{
    if (is_mapped((uintptr_t)a[number == SYS_openat]))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    const long *rest = number == SYS_openat ? a + 1 : a;
    long folder = number == SYS_openat ? a[0] : AT_FDCWD;
    if ((rest[1] & O_TRUNC) || (rest[1] & __O_TMPFILE) == __O_TMPFILE) /* which has the bit of O_DIRECTORY, too */
        cc_explore_refuse(CC_EXPLORE_FILE_READ, (uint32_t)number);
    if ((rest[1] & O_CREAT) && raw_failed(raw4(SYS_faccessat, folder, rest[0], 0, 0)))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    const char *path = (const char *)rest[0];
    cc_explore_stir_bytes(cc_run.history, path, raw_length(path));
    long fd = raw4(SYS_openat, folder, rest[0], rest[1], rest[2]);
    if (fd >= 0 && fd < (long)PLACES)
        cc_run.places[fd] = NO_PLACE;
    return fd;
}

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

HERE static long syncs(long number, const long *a)
{
    return raw3(number, a[0], a[1], a[2]);
}

HERE static long resizes(long number, const long *a)
{
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0)) || state.st_size != a[1])
        cc_explore_refuse(CC_EXPLORE_FILE_READ, (uint32_t)number);
    return 0;
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

HERE static long reads(const ucontext_t *context, long number, const long *a)
{
    if (lies_in_file((uintptr_t)a[1], (size_t)a[2]))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    return read_at_place(context, number, a);
}

HERE static long writes(long number, const long *a)
{
    return prints(number, a[0], (const void *)a[1], (size_t)a[2]);
}

HERE static long writes_parts(long number, const long *a)
{
    const struct iovec *parts = (const struct iovec *)a[1];
    long all = 0;
    if (lies_in_file((uintptr_t)a[1], (size_t)a[2] * sizeof *parts))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    for (long i = 0; i < a[2]; i++)
        all += prints(number, a[0], parts[i].iov_base, parts[i].iov_len);
    return all;
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

/* A lock of the whole process: there is no other that could hold one, and those that wait for their children must not. */
HERE static bool is_lock(long command)
{
    return command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
}

HERE static bool asks_for_lock(long command)
{
    return command == F_GETLK || command == F_OFD_GETLK;
}

HERE static long locks(const long *a)
{
    struct flock *lock = (struct flock *)a[2];
    long mode = raw3(SYS_fcntl, a[0], F_GETFL, 0);
    if (raw_failed(mode))
        return mode;
    if (lies_in_file((uintptr_t)a[2], sizeof(struct flock)))
        cc_explore_refuse(CC_EXPLORE_PASSED, SYS_fcntl);
    short type = lock->l_type;
    if (asks_for_lock(a[1])) {
        lock->l_type = F_UNLCK;
        return type == F_RDLCK || type == F_WRLCK ? 0 : -EINVAL;
    }
    bool may = type == F_UNLCK || (mode & O_ACCMODE) == O_RDWR || (mode & O_ACCMODE) == (type == F_WRLCK ? O_WRONLY : O_RDONLY);
    return may ? 0 : -EBADF;
}

HERE static long controls(long number, const long *a)
{
    if (number == SYS_fcntl && (is_lock(a[1]) || asks_for_lock(a[1])))
        return locks(a);
    bool followed = number == SYS_ioctl ? a[1] == TCGETS || a[1] == TIOCGWINSZ || a[1] == FIOCLEX : a[1] == F_GETFD || a[1] == F_SETFD || a[1] == F_GETFL;
    if (!followed)
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    return raw3(number, a[0], a[1], a[2]);
}

/* What a system call does here. `plain`: it is made as it is, unless one of its first `plain` arguments, those that may be
 * addresses, is in the file; of these calls only the result is seen. */
struct followed {
    long (*performs)(long number, const long *arguments);
    unsigned plain;
};

static const struct followed followed[] = {
    [SYS_exit] = {ends, 0},
    [SYS_exit_group] = {ends, 0},
    [SYS_lseek] = {seek, 0},
    [SYS_write] = {writes, 0},
    [SYS_writev] = {writes_parts, 0},
    [SYS_getdents64] = {lists, 0},
    [SYS_chdir] = {enters_folder, 0},
    [SYS_open] = {opens_file, 0},
    [SYS_openat] = {opens_file, 0},
    [SYS_mmap] = {cc_explore_maps, 0},
    [SYS_munmap] = {cc_explore_unmaps, 0},
    [SYS_msync] = {syncs, 0},
    [SYS_mprotect] = {cc_explore_protects, 0},
    [SYS_madvise] = {cc_explore_advises, 0},
    [SYS_mremap] = {cc_explore_remaps, 0},
    [SYS_ftruncate] = {resizes, 0},
    [SYS_getpid] = {identifies, 0},
    [SYS_gettid] = {identifies, 0},
    [SYS_getppid] = {identifies_parent, 0},
    [SYS_kill] = {kills, 0},
    [SYS_tkill] = {kills, 0},
    [SYS_tgkill] = {kills, 0},
    [SYS_rt_sigaction] = {acts, 0},
    [SYS_prlimit64] = {reads_limit, 0},
    [SYS_futex] = {wakes, 0},
    [SYS_ioctl] = {controls, 0},
    [SYS_fcntl] = {controls, 0},
    [SYS_close] = {NULL, 1},
    [SYS_fchdir] = {NULL, 1},
    [SYS_umask] = {NULL, 1},
    [SYS_times] = {NULL, 1},
    [SYS_brk] = {NULL, 1},
    [SYS_fsync] = {NULL, 1},
    [SYS_fdatasync] = {NULL, 1},
    [SYS_flock] = {NULL, 1},
    [SYS_getuid] = {NULL, 1},
    [SYS_geteuid] = {NULL, 1},
    [SYS_getgid] = {NULL, 1},
    [SYS_getegid] = {NULL, 1},
    [SYS_sched_yield] = {NULL, 1},
    [SYS_uname] = {NULL, 1},
    [SYS_sysinfo] = {NULL, 1},
    [SYS_set_tid_address] = {NULL, 1},
    [SYS_fstat] = {NULL, 2},
    [SYS_stat] = {NULL, 2},
    [SYS_lstat] = {NULL, 2},
    [SYS_access] = {NULL, 2},
    [SYS_getcwd] = {NULL, 2},
    [SYS_nanosleep] = {NULL, 2},
    [SYS_statfs] = {NULL, 2},
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
    [SYS_readlink] = {NULL, 3},
    [SYS_getrandom] = {NULL, 3},
    [SYS_sched_getaffinity] = {NULL, 3},
    [SYS_faccessat] = {NULL, 3},
    [SYS_newfstatat] = {NULL, 4},
    [SYS_readlinkat] = {NULL, 4},
    [SYS_clock_nanosleep] = {NULL, 4},
    [SYS_fadvise64] = {NULL, 4},
    [SYS_faccessat2] = {NULL, 4},
    [SYS_statx] = {NULL, 5},
};

HERE static long performs(ucontext_t *context, long number, const long *a)
{
    if (number == SYS_rt_sigprocmask)
        return masks(context, a);
    if (number == SYS_read || number == SYS_pread64)
        return reads(context, number, a);
    bool listed = number >= 0 && number < (long)(sizeof followed / sizeof *followed);
    const struct followed *call = listed ? &followed[number] : NULL;
    if (call && call->performs)
        return call->performs(number, a);
    if (!call || !call->plain)
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    for (unsigned i = 0; i < call->plain; i++)
        if (is_mapped((uintptr_t)a[i]))
            cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
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
