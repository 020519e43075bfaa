/* The seccomp filter: only calls in the table stop, and of those that are frequent only what may concern a file's content. */
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define MOST 2048

static struct sock_filter program[MOST];
static unsigned short length;

static void add(uint16_t code, uint32_t value, uint8_t yes, uint8_t no)
{
    program[length++] = (struct sock_filter)BPF_JUMP(code, value, yes, no);
}

static void load(size_t offset)
{
    program[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset);
}

static void load_argument(unsigned which)
{
    load(offsetof(struct seccomp_data, args) + 8 * which); /* its low half */
}

static void end(uint32_t action)
{
    program[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, action);
}

/* The next instructions, `many` of them, are only for this call. */
static void only(long call, uint8_t checks)
{
    add(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)call, 0, checks);
}

/* `test` of an argument and a value: BPF_JSET, BPF_JEQ. */
static void stop_where(long call, unsigned argument, uint16_t test, uint32_t value)
{
    only(call, 4);
    load_argument(argument);
    add(BPF_JMP | test | BPF_K, value, 0, 1);
    end(SECCOMP_RET_TRACE);
    end(SECCOMP_RET_ALLOW);
}

static void stop_where_any_bit(long call, unsigned argument, uint32_t bits)
{
    stop_where(call, argument, BPF_JSET, bits);
}

static void stop_where_equal(long call, unsigned argument, uint32_t value)
{
    stop_where(call, argument, BPF_JEQ, value);
}

static void build_controls(void)
{
    uint8_t controls = 0;
    while (filter_controls[controls])
        controls++;
    only(SYS_ioctl, (uint8_t)(controls + 4));
    load_argument(1);
    program[length++] = (struct sock_filter)BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff);
    for (uint8_t i = 0; i < controls; i++)
        add(BPF_JMP | BPF_JEQ | BPF_K, filter_controls[i], (uint8_t)(controls - i), 0);
    end(SECCOMP_RET_ALLOW);
    end(SECCOMP_RET_TRACE);
}

/* Whether a call stops only with some arguments. */
static bool has_rule(long call)
{
    static const long calls[] = {SYS_open,  SYS_openat,  SYS_mmap,        SYS_ioctl,   SYS_prctl,
                                 SYS_clone, SYS_unshare, SYS_close_range, SYS_seccomp, SYS_access};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i] == call)
            return true;
    return false;
}

static void build(void)
{
    load(offsetof(struct seccomp_data, arch));
    add(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 1, 0);
    end(SECCOMP_RET_TRACE | FILTER_NARROW);
    load(offsetof(struct seccomp_data, nr));
    add(BPF_JMP | BPF_JGE | BPF_K, 0x40000000, 0, 1); /* x32 */
    end(SECCOMP_RET_TRACE | FILTER_X32);
    add(BPF_JMP | BPF_JGT | BPF_K, LAST_CALL, 0, 1); /* not known */
    end(SECCOMP_RET_TRACE);
    stop_where_any_bit(SYS_open, 1, O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY));
    stop_where_any_bit(SYS_openat, 2, O_CREAT | O_TRUNC | (O_TMPFILE & ~O_DIRECTORY));
    only(SYS_mmap, 9); /* shared or executable, of a file */
    load_argument(4);
    add(BPF_JMP | BPF_JEQ | BPF_K, UINT32_MAX, 6, 0);
    load_argument(3);
    add(BPF_JMP | BPF_JSET | BPF_K, MAP_SHARED, 3, 0);
    load_argument(2);
    add(BPF_JMP | BPF_JSET | BPF_K, PROT_EXEC, 1, 0);
    end(SECCOMP_RET_ALLOW);
    end(SECCOMP_RET_TRACE);
    end(SECCOMP_RET_ALLOW);
    stop_where_any_bit(SYS_clone, 0, CLONE_UNTRACED | CLONE_NEWNS);
    stop_where_any_bit(SYS_unshare, 0, CLONE_FILES | CLONE_NEWNS);
    stop_where_any_bit(SYS_close_range, 2, CLOSE_RANGE_UNSHARE);
    stop_where_any_bit(SYS_seccomp, 1, SECCOMP_FILTER_FLAG_NEW_LISTENER);
    build_controls();
    stop_where_equal(SYS_prctl, 0, CC_MARK_CALL);
    stop_where_equal(SYS_access, 1, R_OK | W_OK | X_OK); /* rare, and what javascript.js asks for */
    for (long call = 0; call <= LAST_CALL; call++) {
        if (!handler_of(call) || has_rule(call))
            continue;
        only(call, 1);
        end(SECCOMP_RET_TRACE);
    }
    end(SECCOMP_RET_ALLOW);
}

/* What the kernel does with a filter: what its program returns for a call. */
static uint32_t answer(const struct seccomp_data *call)
{
    uint32_t value = 0;
    for (const struct sock_filter *at = program;; at++) {
        switch (at->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            memcpy(&value, (const char *)call + at->k, sizeof value);
            break;
        case BPF_ALU | BPF_AND | BPF_K:
            value &= at->k;
            break;
        case BPF_JMP | BPF_JEQ | BPF_K:
            at += value == at->k ? at->jt : at->jf;
            break;
        case BPF_JMP | BPF_JSET | BPF_K:
            at += value & at->k ? at->jt : at->jf;
            break;
        case BPF_JMP | BPF_JGE | BPF_K:
            at += value >= at->k ? at->jt : at->jf;
            break;
        case BPF_JMP | BPF_JGT | BPF_K:
            at += value > at->k ? at->jt : at->jf;
            break;
        default: /* BPF_RET | BPF_K */
            return at->k;
        }
    }
}

bool filter_stops(uint32_t arch, uint64_t number, const uint64_t *arguments, enum filter_data *kind)
{
    struct seccomp_data call = {.nr = (int)number, .arch = arch};
    memcpy(call.args, arguments, sizeof call.args);
    if (!length)
        build();
    uint32_t action = answer(&call);
    *kind = (enum filter_data)(action & SECCOMP_RET_DATA);
    return (action & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_TRACE;
}

bool filter_send(int socket)
{
    build();
    size_t size = length * sizeof *program;
    return write(socket, program, size) == (ssize_t)size;
}

bool filter_install(void)
{
    build();
    struct sock_fprog whole = {length, program};
    if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole) == 0)
        return true;
    /* without privileges only for programs that can gain none */
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &whole) == 0;
}
