/* What instrumented code calls and reads: the contract between analyzer/compile (which emits it) and the runtimes behind it.
 *
 * A runtime defines everything that this header declares. There are several, and a program is linked with one of them: the
 * recorder (runtime/recorder) writes a trace; another may only count, or act. One that is not the recorder is a folder,
 * which crashcheck-cc is given in CRASHCHECK_RUNTIME: libcrashcheck.so, libcrashcheck.a for -static, include/, and
 * models.def, which names the library functions that it has models for and may name none.
 *
 * Bump CC_HOOKS_VERSION when a signature or the layout of a struct below changes; it is part of the unit descriptor, so that
 * a runtime can refuse what was compiled for another.
 *
 * Parameters that several hooks have:
 *   unit, index   the site: the unit's descriptor and the index in the unit's site table, as program facts have it
 *   depth         of the caller's shadow stack, held in an SSA value since function entry
 *   instance      address of the outermost struct instance that the target belongs to, or 0
 *   flags         enum cc_store_flags (trace_format.h), of loads too
 *   flush_kind, fence_kind   enum cc_flush_kind, cc_fence_kind (trace_format.h)
 */
#ifndef CRASHCHECK_HOOKS_H
#define CRASHCHECK_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#include "compared.h"

#define CC_HOOKS_VERSION 5u

/* -- Units and stacks: memory that instrumented code has and a runtime may use ----------------------------------------- */

/* One a compiled source. The bases are for the runtime, which gives them when it first meets the unit: no constructor is
 * needed. */
struct cc_unit {
    uint32_t site_base;          /* 0 until then; what site 0 of the unit is called */
    uint32_t sites;              /* number of sites in the unit's table */
    uint64_t key;                /* identifies the unit's facts in the ELF section "crashcheck_facts" */
    uint32_t hooks_version;      /* CC_HOOKS_VERSION it was compiled for */
    uint32_t load_base;          /* like site_base, for a runtime that numbers the sites of loads apart */
    const void *facts;           /* keeps the facts alive through --gc-sections */
};

/* Shadow stack, initial-exec TLS. A function loads `depth` at entry (its own depth d, clamped to
 * CC_STACK_MAX - 1 by the function); one that calls sets depth = d + 1 and frames[d] = its first call site at once,
 * and before each call frames[d].index = that call's site; it sets depth = d + 1 again in a landing pad and after
 * setjmp, and depth = d on return. Events carry d. */
#define CC_STACK_MAX 512u
struct cc_frame {
    struct cc_unit *unit;
    uint64_t index;
};
struct cc_shadow {
    uint32_t depth;
    uint32_t reserved;
    struct cc_frame frames[CC_STACK_MAX];
};
extern __thread struct cc_shadow cc_shadow __attribute__((tls_model("initial-exec")));

/* -- Switches: what a runtime wants to be called for ------------------------------------------------------------------ */

/* Addresses that count: instrumented code calls the hooks of updates, atomics and flushes only for
 * address - cc_window_start < cc_window_bytes (unsigned). The recorder's window is the smallest that holds every mapping of a
 * recorded file; with zero bytes none is called. */
extern uintptr_t cc_window_start;
extern uintptr_t cc_window_bytes;
/* Non-zero while reads are reported. */
extern uint8_t cc_load_on;
/* Non-zero while this thread has a flush or non-temporal store that no fence has followed: locked
 * instructions on memory outside of the window are reported (as fences) only then. */
extern __thread uint32_t cc_fence_wanted __attribute__((tls_model("initial-exec")));
/* Non-zero while fences are reported. */
extern uint32_t cc_recording;

/* -- Updates, each before it executes --------------------------------------------------------------------------------- */

/* `value` points at `size` bytes to be stored; of an assembly store, which is reported after it executed, it is the target. */
void cc_store(const void *target, const void *value, uint64_t size, uint64_t instance, struct cc_unit *unit,
              uint32_t index, uint32_t depth, uint32_t flags);
/* The same for up to 8 bytes, the value in a register. */
void cc_store_word(const void *target, uint64_t value, uint32_t size, uint64_t instance, struct cc_unit *unit,
                   uint32_t index, uint32_t depth, uint32_t flags);
/* A masked vector store: lane i is `lane_bytes` bytes at value + i * lane_bytes, and is stored if
 * enabled[i] is not 0. The enabled bytes of one aligned word persist together, those of different words in any order. */
#define CC_VECTOR_BYTES 64u /* the most that one instruction stores */
void cc_store_masked(const void *target, const void *value, const unsigned char *enabled, uint32_t lanes, uint32_t lane_bytes,
                     uint64_t instance, struct cc_unit *unit, uint32_t index, uint32_t depth, uint32_t flags);
/* memcpy/memmove and memset as intrinsics or calls. What a copy reads is reported before, by cc_load. */
void cc_copy(const void *target, const void *source, uint64_t size, uint64_t instance, struct cc_unit *unit,
             uint32_t index, uint32_t depth);
void cc_fill(const void *target, uint32_t byte, uint64_t size, uint64_t instance, struct cc_unit *unit,
             uint32_t index, uint32_t depth);

/* -- Accesses that cc_load_on asks for, each before it executes --------------------------------------------------------- */

/* What an ordinary load calls, in assembly: on the stack are the access, the return address and the unit, which is taken
 * off. All registers are kept (registers.h). A store to memory that is certainly no file's, such as a global, comes here, too. */
struct cc_access {
    uint64_t delta;              /* bytes from its outermost struct instance, or UINT64_MAX */
    uint64_t packed;             /* size << 9 | flags << 1 | whether its function has a frame of its own */
    uint64_t site;
    uint64_t address;
};
#define CC_ACCESS_WRITES 128u    /* among its flags: it is a store */
void cc_access_entry(void);
/* A copy or comparison that reads `size` bytes. */
void cc_load(const void *source, uint64_t size, uint64_t instance, struct cc_unit *unit, uint32_t index, uint32_t depth,
             uint32_t flags);
/* A string that is read up to its end, or up to `most` bytes. */
void cc_load_string(const void *source, uint64_t most, struct cc_unit *unit, uint32_t index, uint32_t depth);

/* -- Atomic operations on memory in the window -------------------------------------------------------------------------- */

/* Each is bracketed: nothing between begin and end calls out, unwinds or returns, so that a runtime may hold a lock there.
 * `locked`: it orders flushes like a fence; `done`: what it did to the target, enum cc_atomic_done. Outside of the window a
 * locked operation calls cc_fence(CC_LOCKED) if cc_fence_wanted. */
enum cc_atomic_done { CC_ATOMIC_STORED = 1, CC_ATOMIC_READ = 2 };
void cc_atomic_begin(const void *target);
void cc_atomic_end(const void *target, uint32_t size, uint32_t locked, uint32_t done, uint64_t instance,
                   struct cc_unit *unit, uint32_t index, uint32_t depth);

/* -- Order ------------------------------------------------------------------------------------------------------------- */

void cc_flush(const void *address, uint64_t size, uint32_t flush_kind, struct cc_unit *unit, uint32_t index, uint32_t depth);
void cc_fence(uint32_t fence_kind, struct cc_unit *unit, uint32_t index, uint32_t depth);

/* -- Implicit timers ---------------------------------------------------------------------------------------------------- */

/* Before a comparison that time decides (compared.h) is made. What is compared is an integer of 64 bits, or the bits of a
 * double. */
void cc_compared(const struct cc_timer *timer, uint64_t left, uint64_t right);

/* -- Operations and calls of libraries ----------------------------------------------------------------------------------- */

/* A function that [workload] operations names: before its code, and after it on return or when an exception passes. The
 * outermost one of a thread is a marked operation (crashcheck.h). */
void cc_operation_enter(void);
void cc_operation_leave(void);

/* Library models: instrumented code that calls (or takes the address of) one of the functions in models.def
 * refers to cc_wrap_<name> instead, same signature, after naming the site of the call with cc_at (a cheap TLS store; the wrapper
 * consumes it), or to a function of its own unit that jumps there and refers to <name> as well, where libraries may lack
 * that: it must fail to link where plain code would. An indirect call has no site and gets site 0 with the stack of the caller. */
struct cc_call_site {
    struct cc_unit *unit;
    uint32_t index;
    uint32_t depth;
};
extern __thread struct cc_call_site cc_call_site __attribute__((tls_model("initial-exec")));

#endif
