/* A recorded process: how recording starts and ends in it, its threads, its forks and what it becomes by exec. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#ifdef CC_SHARED
#include <dlfcn.h>
#endif

#include "explorer/exploration.h"
#include "interpose/model.h"
#include "interpose/streams.h"
#include "recorder/addresses.h"
#include "recorder/digests.h"
#include "recorder/events.h"
#include "recorder/loads.h"
#include "recorder/locks.h"
#include "recorder/notes.h"
#include "recorder/pool_files.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"
#include "recorder/snapshot.h"
#include "recorder/stacks.h"
#include "recorder/trace.h"
#include "recorder/traced.h"

__thread struct thread cc_thread TLS_MODEL;
uint32_t cc_pid;
_Atomic uint32_t cc_started;
static uint64_t always_alive = 1;
volatile uint64_t *cc_alive = &always_alive;
bool cc_loads, cc_all_memory;
static pthread_key_t thread_key;
static bool executed; /* this process runs a program of its own, not its parent's */

#ifdef CC_SHARED
/* The function that the program would have called without this library. */
void *cc_real(void **slot, const char *name)
{
    void *found = __atomic_load_n(slot, __ATOMIC_RELAXED);
    if (LIKELY(found != NULL))
        return found;
    found = dlsym(RTLD_NEXT, name);
    if (!found) {
        /* A library that was loaded later, or that precedes this one in the search order. */
        void *anywhere = dlsym(RTLD_DEFAULT, name);
        Dl_info theirs, ours;
        if (anywhere && dladdr(anywhere, &theirs) && dladdr((void *)&cc_recording, &ours) &&
            theirs.dli_fbase != ours.dli_fbase)
            found = anywhere;
    }
    if (!found) {
        static const char text[] = "crashcheck: the program calls a function that no loaded library has: ";
        raw3(SYS_write, 2, (long)text, sizeof text - 1);
        raw3(SYS_write, 2, (long)name, (long)raw_length(name));
        raw3(SYS_write, 2, (long)"\n", 1);
        abort();
    }
    __atomic_store_n(slot, found, __ATOMIC_RELAXED);
    return found;
}
#endif

/* Recording ends for this process, and for others when they need their next chunk; the program continues. */
void cc_stop(uint32_t status)
{
    __atomic_fetch_or(&cc_header->status, status, __ATOMIC_RELAXED);
    cc_recording = 0;
    cc_window_bytes = 0;
    cc_mapped_bytes = 0;
    cc_load_on = CC_LOADS_OFF;
    cc_load_window_bytes = 0;
}

static void thread_ends(void *unused)
{
    (void)unused;
    struct thread *thread = &cc_thread;
    for (uint32_t level = thread->level; level < LEVELS; level++) {
        struct writer *writer = thread->writers[level];
        if (!writer)
            continue;
        thread->writers[level] = NULL;
        cc_writer_forget(writer, true);
        raw3(SYS_munmap, (long)writer, sizeof *writer, 0);
    }
    cc_loads_forget(true);
}

/* So that its mappings go when it ends; a destructor that records later makes new ones, which is only a leak. */
void cc_thread_begins(void)
{
    pthread_setspecific(thread_key, &cc_thread);
}

static void watch_for_forks(void)
{
    long page = raw6(SYS_mmap, 0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw_failed(page))
        return;
    *(uint64_t *)page = 1;
    if (!raw_failed(raw3(SYS_madvise, page, PAGE, MADV_WIPEONFORK)))
        cc_alive = (volatile uint64_t *)page;
}

bool cc_notices_forks(void)
{
    return cc_alive != &always_alive;
}

/* This process uses a pool file: it is the program, unless another is. A shell before it is not. */
void cc_uses_pool_file(void)
{
    uint32_t program = __atomic_load_n(&cc_header->program, __ATOMIC_RELAXED);
    bool over = __atomic_load_n(&cc_header->status, __ATOMIC_RELAXED) & CC_STATUS_CLEAN_EXIT;
    if (program && !(over && executed && program != cc_pid))
        return;
    if (__atomic_compare_exchange_n(&cc_header->program, &program, cc_pid, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        __atomic_fetch_and(&cc_header->status, ~(uint32_t)CC_STATUS_CLEAN_EXIT, __ATOMIC_RELAXED);
}

/* In a forked child, before its first event: nothing of the parent's place in the trace may be used. */
void cc_child(void)
{
    cc_pid = (uint32_t)raw3(SYS_getpid, 0, 0, 0);
    struct thread *thread = &cc_thread;
    thread->id = 0;
    thread->sole = 0;
    thread->inside = 0;
    thread->operation_depth = 0;
    thread->named_depth = 0;
    executed = false;
    for (uint32_t level = 0; level < LEVELS; level++)
        if (thread->writers[level])
            cc_writer_forget(thread->writers[level], true);
    cc_loads_forget(false);
    cc_turn_reset();
    cc_regions_reset_lock();
    cc_stripes_reset();
    cc_file_ids_reset_lock();
    cc_snapshot_child();
    cc_examine_reset_lock();
    *cc_alive = 1;
}

static void start(void)
{
    const char *trace = getenv("CRASHCHECK_TRACE"), *pool = getenv("CRASHCHECK_POOL"),
               *addresses = getenv("CRASHCHECK_ADDRESSES");
    cc_pid = (uint32_t)raw3(SYS_getpid, 0, 0, 0);
    if (!pool || !*pool)
        return;
    const char *patterns = getenv("CRASHCHECK_FILES");
    cc_pool_files_start(pool, patterns ? patterns : "*");
    if (addresses && *addresses)
        cc_addresses_start(addresses);
    cc_learns_places = getenv("CRASHCHECK_LEARN_ADDRESSES") != NULL;
    if (!trace || !*trace) {
        cc_marks_start(getenv("CRASHCHECK_MARKS"));
#ifdef CC_SHARED
        const char *table = getenv("CRASHCHECK_EXPLORE");
        if (table && *table)
            cc_explore_start(table);
#endif
        trace = getenv("CRASHCHECK_STORES");
        if (!trace || !*trace)
            return;
        cc_traced = true;
    }
    if (!cc_trace_open(trace)) {
        static const char text[] = "crashcheck: the trace file cannot be opened; nothing is recorded\n";
        raw3(SYS_write, 2, (long)text, sizeof text - 1);
        return;
    }
    cc_notes_start(trace);
    cc_loads_start(getenv("CRASHCHECK_LOADS"), getenv("CRASHCHECK_MEMORY"));
    if (!cc_stacks_start() || pthread_key_create(&thread_key, thread_ends)) {
        cc_stop(CC_STATUS_TOO_MANY);
        return;
    }
    uint32_t none = 0;
    __atomic_compare_exchange_n(&cc_header->main_pid, &none, cc_pid, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    watch_for_forks();
    cc_sequence_start();
    cc_snapshot_start(getenv("CRASHCHECK_SNAPSHOT_SEQ"), getenv("CRASHCHECK_SNAPSHOT_AFTER"), getenv("CRASHCHECK_SNAPSHOT_DIR"));
    cc_digests_start(getenv("CRASHCHECK_DIGESTS"), getenv("CRASHCHECK_DIGESTS_AT"));
    cc_output_start(getenv("CRASHCHECK_STDOUT"));
    executed = true;
    cc_recording = 1;
}

/* Runs before main, or earlier if a library's constructor makes a modelled call. */
__attribute__((constructor(101))) void cc_start(void)
{
    uint32_t not_yet = 0;
    if (!atomic_compare_exchange_strong(&cc_started, &not_yet, 1))
        return;
    int saved = errno;
    start();
    errno = saved;
    atomic_store_explicit(&cc_started, 2, memory_order_release);
}

/* Records the end of a process whose events are complete; `counts`: whether the trace is then, if no program is known. */
static void ends(bool counts)
{
    where at = {.unit = NULL, .index = 0, .depth = 0};
    uint32_t program = __atomic_load_n(&cc_header->program, __ATOMIC_RELAXED);
    bool whole = program == cc_pid || (counts && cc_header->main_pid == cc_pid);
    cc_event_at(at, (struct cc_event){.kind = CC_EXIT, .aux = whole});
    if (whole)
        __atomic_fetch_or(&cc_header->status, CC_STATUS_CLEAN_EXIT, __ATOMIC_RELAXED);
}

__attribute__((destructor(101))) static void finish(void)
{
    if (!cc_recording || cc_traced)
        return;
    cc_streams_finish((where){.unit = NULL, .index = 0, .depth = 0}); /* what libc would flush after this moment, unseen */
    ends(true);
}

/* What shells and forked children call: nothing is flushed, so nothing is missing. A shell's end does not show of the program
 * that it ran. A child of vfork, which has its parent's memory, records nothing. */
static _Noreturn void ends_at_once(int status)
{
    if (cc_records_calls()) {
        if (*cc_alive == 0)
            cc_child();
        if (cc_pid == (uint32_t)raw3(SYS_getpid, 0, 0, 0)) {
            cc_output(cc_from_outside());
            ends(!cc_header->program);
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
