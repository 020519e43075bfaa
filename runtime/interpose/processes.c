/* Processes that end at once, fork, or become another program. */
#include <errno.h>
#include <unistd.h>

#include "interpose/model.h"
#include "recorder/events.h"
#include "recorder/locks.h"
#include "recorder/output.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"

/* What shells and forked children call: nothing is flushed, so nothing is missing. A shell's end does not show of the program
 * that it ran. A child of vfork, which has its parent's memory, records nothing. */
static _Noreturn void ends_at_once(int status)
{
    if (cc_records_calls()) {
        if (*cc_alive == 0)
            cc_child();
        if (cc_pid == (uint32_t)raw3(SYS_getpid, 0, 0, 0)) {
            cc_output(cc_from_outside());
            cc_process_ends(!cc_header->program);
        }
    }
    raw3(SYS_exit_group, status, 0, 0);
    __builtin_unreachable();
}
EXPORTED _Noreturn void cc_wrap__exit(int status);
EXPORTED _Noreturn void cc_wrap__exit(int status)
{
    ends_at_once(status);
}
EXPORTED _Noreturn void cc_wrap__Exit(int status) __attribute__((alias("cc_wrap__exit")));
#ifdef CC_SHARED
EXPORTED _Noreturn void _exit(int status) __attribute__((alias("cc_wrap__exit")));
EXPORTED _Noreturn void _Exit(int status) __attribute__((alias("cc_wrap__exit")));
#endif

/* fork ---------------------------------------------------------------------------------------------- */

static pid_t forked(where at, pid_t (*call)(void))
{
    uint64_t seq = cc_number(1); /* before anything the child records */
    uint64_t signals = cc_regions_lock();
    pid_t child = call();
    int saved = errno;
    if (child == 0) {
        if (*cc_alive == 0 || !cc_notices_forks())
            cc_child();
        cc_restore_signals(signals);
        return 0;
    }
    cc_regions_unlock(signals);
    if (child > 0 && !cc_traced)
        cc_event_at(at, (struct cc_event){.kind = CC_FORK, .seq = seq, .payload = (uint64_t)child});
    errno = saved;
    return child;
}

MODEL(pid_t, fork, (void), REAL(fork)(), forked(at, REAL(fork)))

/* exec ---------------------------------------------------------------------------------------------- */

static void executes(where at, const char *path)
{
    if (path && !cc_traced)
        cc_event_bytes(at, (struct cc_event){.kind = CC_EXEC}, NULL, 0, path, raw_length(path));
}

MODEL(int, execve, (const char *path, char *const arguments[], char *const environment[]),
      REAL(execve)(path, arguments, environment), (executes(at, path), REAL(execve)(path, arguments, environment)))
MODEL(int, execv, (const char *path, char *const arguments[]), REAL(execv)(path, arguments),
      (executes(at, path), REAL(execv)(path, arguments)))
MODEL(int, execvp, (const char *path, char *const arguments[]), REAL(execvp)(path, arguments),
      (executes(at, path), REAL(execvp)(path, arguments)))
