/* How recording starts in a process, begins again in a forked child and ends: each of the parts below does its share. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "explorer/exploration.h"
#include "recorder/addresses.h"
#include "recorder/digests.h"
#include "recorder/events.h"
#include "recorder/file_ids.h"
#include "recorder/loads.h"
#include "recorder/notes.h"
#include "recorder/output.h"
#include "recorder/pool_files.h"
#include "recorder/real.h"
#include "recorder/recording.h"
#include "recorder/regions.h"
#include "recorder/sequence.h"
#include "recorder/snapshot.h"
#include "recorder/stacks.h"
#include "recorder/trace.h"
#include "recorder/traced.h"

_Atomic uint32_t cc_started;
void (*cc_flush_streams)(where at);

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

/* In a forked child, before its first event: nothing of the parent's place in the trace may be used. */
static void child(void)
{
    cc_pid = (uint32_t)raw3(SYS_getpid, 0, 0, 0);
    struct thread *thread = &cc_thread;
    thread->id = 0;
    thread->sole = 0;
    thread->inside = 0;
    thread->operation_depth = 0;
    thread->named_depth = 0;
    cc_executed = false;
    for (uint32_t level = 0; level < LEVELS; level++)
        if (thread->writers[level])
            cc_writer_forget(thread->writers[level], true);
    cc_loads_forget(false);
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
    cc_has_dax = getenv("CRASHCHECK_DAX") != NULL;
    if (!trace || !*trace) {
        const char *marks = getenv("CRASHCHECK_MARKS");
        cc_marks_by_call = marks && *marks;
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
    cc_loads = getenv("CRASHCHECK_LOADS") != NULL;
    if (!cc_stacks_start() || !cc_process_start(child, thread_ends)) {
        cc_stop(CC_STATUS_TOO_MANY);
        return;
    }
    cc_sequence_start();
    cc_snapshot_start(getenv("CRASHCHECK_SNAPSHOT_SEQ"), getenv("CRASHCHECK_SNAPSHOT_AFTER"), getenv("CRASHCHECK_SNAPSHOT_DIR"));
    cc_digests_start(getenv("CRASHCHECK_DIGESTS"), getenv("CRASHCHECK_DIGESTS_AT"));
    cc_output_start(getenv("CRASHCHECK_STDOUT"));
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
void cc_process_ends(bool counts)
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
    where at = {.unit = NULL, .index = 0, .depth = 0};
    if (cc_flush_streams) /* what libc would flush after this moment, unseen */
        cc_flush_streams(at);
    REAL(fflush)(stdout);
    cc_output(at);
    cc_process_ends(true);
}
