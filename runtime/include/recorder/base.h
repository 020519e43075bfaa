/* What every part of the recorder may use: attributes, sizes, and the contracts with instrumented code and the trace.
 *
 * The private headers, one per part, include only those above them in this list:
 *
 *   base         the contracts (hooks.h, trace_format.h) and raw system calls
 *   real         libc's own functions
 *   locks        locks that signal handlers cannot deadlock on
 *   process      what each process and thread keeps
 *   traced       whether the recorder of system calls follows it
 *   notes        reasons why something was not recorded
 *   pool_files   which files are recorded
 *   pool_walk    visits them
 *   snapshot     a copy of them as a crash would leave them
 *   digests      digests of them, at many events
 *   sequence     the one order of all events
 *   addresses    at which addresses they are mapped
 *   kernel_maps  the kernel's list of the process's mappings
 *   regions      which address ranges hold them
 *   trace        the trace file and its writers
 *   stacks       numbers for sites and call stacks
 *   loads        records of reads
 *   events       records of updates, flushes, fences and syncs
 *   file_ids     numbers of the files, each defined with an event
 *   output       how much standard output was printed
 *   recording    how it all starts, begins again in a forked child, and ends
 *   marks        operations that the program marks
 *   timers       comparisons that time decides
 *
 * So do the C files: what one needs of another is in a file above it in this list. Two calls run the other way, through
 * variables that the part above sets: cc_child (process.h) and cc_flush_streams (recording.h). The models in interpose/
 * use all of these; the explorer, which recording starts, uses base and registers. */
#ifndef CRASHCHECK_RECORDER_BASE_H
#define CRASHCHECK_RECORDER_BASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Compiled with -fvisibility=hidden: only what instrumented code needs is seen outside. */
#pragma GCC visibility push(default)
#include "hooks.h"
#pragma GCC visibility pop
#include "recorder/raw.h"
#include "trace_format.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HIDDEN __attribute__((visibility("hidden")))
#define EXPORTED __attribute__((visibility("default")))
#define TLS_MODEL __attribute__((tls_model("initial-exec")))
#define PAGE 4096ul
#define PATH_ROOM 4096u

/* The header of the trace file, mapped shared by all processes of the run: every number comes from it. */
extern HIDDEN struct cc_trace_header *cc_header;

extern HIDDEN uintptr_t cc_mapped_start, cc_mapped_bytes; /* the window, whatever instrumented code reports */
extern HIDDEN uintptr_t cc_load_window_start, cc_load_window_bytes; /* the window of reads that may be recorded */

/* Where a modelled call came from: `unit` NULL if unknown, then `depth` includes the call itself. */
typedef struct cc_call_site where;

/* Of a call from instrumented code, which has just named its site. */
static inline where cc_from_wrapper(void)
{
    where at = cc_call_site;
    cc_call_site.unit = NULL;
    if (!at.unit)
        at.depth = cc_shadow.depth;
    return at;
}

/* Of a call from other code: the stack of its last instrumented caller. */
static inline where cc_from_outside(void)
{
    return (where){.unit = NULL, .index = 0, .depth = cc_shadow.depth};
}

#endif
