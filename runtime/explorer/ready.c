/* crashcheck_ready(): a check waits there, and the rest of each of its runs is a copy of it (a deferred fork server).
 *
 * The checker (checker/execution/waiting.py) leaves a socket to the check that it starts, and names it in the environment:
 * CRASHCHECK_READY=DESCRIPTOR:INODE. Each message is one packet. The check sends `struct here`, then the checker answers
 * by `struct order`:
 *   r   run on: this process is the run, as without a socket
 *   f   fork: a new process is the run, and this one sends its number, or -errno, and waits for the next order
 * The new process is a child of the checker, which waits for it as if it had started it, and has a group of its own.
 * When the checker closes its end, or dies, this process ends, and nothing that it holds in buffers is written. */
#include <errno.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>

#pragma GCC visibility push(default)
#include "crashcheck.h"
#pragma GCC visibility pop
#include "recorder/base.h"

struct here {
    int32_t pid;
    uint32_t has_timer;   /* one that a new process would not inherit */
    uint32_t takes_acked; /* whether it learns here how many operations were acknowledged */
};

struct order {
    int32_t what;
    int32_t tells_acked;
    int64_t acked; /* of the run that is forked, if it gets one */
};

struct thread_state { /* what the kernel keeps of this thread for libc, and a new process loses */
    long number_at;   /* where libc has the thread's number */
    long locks;       /* its list of robust locks */
    size_t locks_bytes;
};

static bool read_number(const char **text, unsigned long *value)
{
    const char *start = *text;
    for (*value = 0; **text >= '0' && **text <= '9'; (*text)++)
        *value = *value * 10 + (unsigned long)(**text - '0');
    return *text > start;
}

/* The descriptor of the socket; -1: there is none, or the number is another file's by now. */
static int socket_left(void)
{
    const char *text = getenv("CRASHCHECK_READY");
    unsigned long descriptor, inode;
    struct stat state;
    if (!text || !read_number(&text, &descriptor) || *text++ != ':' || !read_number(&text, &inode))
        return -1;
    if (raw3(SYS_fstat, (long)descriptor, (long)&state, 0) != 0 || !S_ISSOCK(state.st_mode) || state.st_ino != inode)
        return -1;
    return (int)descriptor;
}

static bool has_timer(void)
{
    for (long which = ITIMER_REAL; which <= ITIMER_PROF; which++) {
        struct itimerval left = {{0, 0}, {0, 0}};
        raw3(SYS_getitimer, which, (long)&left, 0);
        if (left.it_value.tv_sec || left.it_value.tv_usec)
            return true;
    }
    return false;
}

static bool sent(int to, const void *packet, size_t size)
{
    long done;
    do
        done = raw6(SYS_sendto, to, (long)packet, (long)size, MSG_NOSIGNAL, 0, 0);
    while (done == -EINTR);
    return done == (long)size;
}

/* The checker's next order; of kind 0: it is gone. */
static struct order next_order(int from)
{
    struct order order, gone = {.what = 0};
    long done;
    do
        done = raw6(SYS_recvfrom, from, (long)&order, sizeof order, 0, 0, 0);
    while (done == -EINTR);
    return done == sizeof order ? order : gone;
}

static bool know_thread(struct thread_state *state)
{
    return raw3(SYS_prctl, PR_GET_TID_ADDRESS, (long)&state->number_at, 0) == 0 && state->number_at &&
           raw3(SYS_get_robust_list, 0, (long)&state->locks, (long)&state->locks_bytes) == 0;
}

/* As fork(), without the handlers of pthread_atfork: the new process takes this one's place, and must not notice. */
static long forked(int leaving)
{
    struct thread_state state;
    if (!know_thread(&state))
        return -ENOSYS;
    long pid = raw6(SYS_clone, CLONE_PARENT | CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | SIGCHLD, 0, 0, state.number_at, 0, 0);
    if (pid != 0)
        return pid;
    raw3(SYS_close, leaving, 0, 0);
    raw3(SYS_setpgid, 0, 0, 0);
    if (state.locks)
        raw3(SYS_set_robust_list, state.locks, (long)state.locks_bytes, 0);
    return 0;
}

/* Wait to be copied. In a copy, and only there, `*acked` is set to the number of its run. */
static void wait_for_runs(long *acked, bool takes_acked)
{
    int checker = socket_left();
    if (checker < 0)
        return;
    struct here here = {
        .pid = (int32_t)raw3(SYS_getpid, 0, 0, 0), .has_timer = has_timer(), .takes_acked = takes_acked};
    struct order order = {.what = 'r'};
    if (sent(checker, &here, sizeof here))
        order = next_order(checker);
    while (order.what == 'f') {
        int32_t pid = (int32_t)forked(checker);
        if (pid == 0) {
            if (order.tells_acked)
                *acked = order.acked;
            return;
        }
        order = sent(checker, &pid, sizeof pid) ? next_order(checker) : (struct order){.what = 0};
    }
    raw3(SYS_close, checker, 0, 0);
    if (order.what != 'r')
        raw3(SYS_exit_group, 0, 0, 0);
}

EXPORTED void crashcheck_ready(void)
{
    long unused = 0;
    wait_for_runs(&unused, false);
}

EXPORTED long crashcheck_ready_acked(long acked)
{
    wait_for_runs(&acked, true);
    return acked;
}
