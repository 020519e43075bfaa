/* The calls that instrumented code makes into the recorder: the contract between analyzer/compile (which
 * emits them) and the C runtime (which implements them). Bump CC_HOOKS_VERSION when a signature or
 * the layout of a struct below changes; it is part of the unit descriptor and checked at run time.
 *
 * `unit`/`index` name the site: the unit's descriptor and the index in its site table. The recorder
 * gives a unit its global site base when it first meets it, so no constructor is needed.
 * `depth` is the caller's shadow-stack depth, held in an SSA value since function entry.
 */
#ifndef CRASHCHECK_HOOKS_H
#define CRASHCHECK_HOOKS_H

#include <stddef.h>
#include <stdint.h>

#define CC_HOOKS_VERSION 3u

struct cc_unit {
    uint32_t site_base;          /* 0 until the recorder has met the unit */
    uint32_t sites;              /* number of sites in the unit's table */
    uint64_t key;                /* identifies the unit's facts in the ELF section "crashcheck_facts" */
    uint32_t hooks_version;      /* CC_HOOKS_VERSION it was compiled for */
    uint32_t load_base;          /* the same for the sites of loads, which are numbered apart */
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

/* Smallest window that holds every persistent mapping: instrumented code calls the slow path only for
 * address - cc_window_start < cc_window_bytes (unsigned). Zero bytes when nothing is recorded. */
extern uintptr_t cc_window_start;
extern uintptr_t cc_window_bytes;
/* What loads cost: nothing (CC_LOADS_OFF), those of files are recorded, or all accesses to all memory are, in an order that
 * is exact across threads: then the window is everything, and after each access, before the next call or jump at the latest,
 * cc_access_done_entry gives up the turn that the access took. */
enum cc_load_mode { CC_LOADS_OFF = 0, CC_LOADS_OF_FILES = 1, CC_LOADS_ALL = 2 };
extern uint8_t cc_load_on;
/* Non-zero while this thread has a flush or non-temporal store that no fence has followed: locked
 * instructions on ordinary memory are reported (as fences) only then. */
extern __thread uint32_t cc_fence_wanted __attribute__((tls_model("initial-exec")));
/* Non-zero while recording is on. */
extern uint32_t cc_recording;

/* Slow paths. `instance` is the address of the outermost struct instance the target belongs to, or 0.
 * cc_store: called before the store executes; `value` points at `size` bytes to be stored. */
void cc_store(const void *target, const void *value, uint64_t size, uint64_t instance, struct cc_unit *unit,
              uint32_t index, uint32_t depth, uint32_t flags);
/* The same for up to 8 bytes, the value in a register. */
void cc_store_word(const void *target, uint64_t value, uint32_t size, uint64_t instance, struct cc_unit *unit,
                   uint32_t index, uint32_t depth, uint32_t flags);
/* A masked vector store, before it executes: lane i is `lane_bytes` bytes at value + i * lane_bytes, and is stored if
 * enabled[i] is not 0. The enabled bytes of one aligned word persist together, those of different words in any order. */
#define CC_VECTOR_BYTES 64u /* the most that one instruction stores */
void cc_store_masked(const void *target, const void *value, const unsigned char *enabled, uint32_t lanes, uint32_t lane_bytes,
                     uint64_t instance, struct cc_unit *unit, uint32_t index, uint32_t depth, uint32_t flags);
/* memcpy/memmove and memset as intrinsics or calls, before they execute. */
void cc_copy(const void *target, const void *source, uint64_t size, uint64_t instance, struct cc_unit *unit,
             uint32_t index, uint32_t depth);
void cc_fill(const void *target, uint32_t byte, uint64_t size, uint64_t instance, struct cc_unit *unit,
             uint32_t index, uint32_t depth);

/* Before a load executes, or a copy that reads `size` bytes; flags: cc_store_flags. */
void cc_load(const void *source, uint64_t size, uint64_t instance, struct cc_unit *unit, uint32_t index, uint32_t depth,
             uint32_t flags);

/* What an ordinary load calls, in assembly: on the stack are its address, its site, size << 9 | flags << 1 | whether its function
 * has a frame, the bytes from its outermost struct instance (or -1), the return address and the unit, which is
 * taken off. All registers are kept. */
void cc_access_entry(void);
void cc_access_done_entry(void);
#define CC_ACCESS_WRITES 128u /* among its flags: it is a store, to memory that is no file's */
/* The same for a string that is read up to its end, or up to `most` bytes. */
void cc_load_string(const void *source, uint64_t most, struct cc_unit *unit, uint32_t index, uint32_t depth);

/* An atomic operation on persistent memory is bracketed: begin takes the stripe's lock and reserves
 * sequence numbers; end records [fence if locked, read and store as `done` lists] with the bytes now at target and unlocks.
 * On ordinary memory (outside the window) a locked operation calls cc_fence(CC_LOCKED) if cc_fence_wanted.
 * Nothing between begin and end may call out, unwind or return. */
enum cc_atomic_done { CC_ATOMIC_STORED = 1, CC_ATOMIC_READ = 2 };
void cc_atomic_begin(const void *target);
void cc_atomic_end(const void *target, uint32_t size, uint32_t locked, uint32_t done, uint64_t instance,
                   struct cc_unit *unit, uint32_t index, uint32_t depth);

void cc_flush(const void *address, uint64_t size, uint32_t flush_kind, struct cc_unit *unit, uint32_t index, uint32_t depth);
void cc_fence(uint32_t fence_kind, struct cc_unit *unit, uint32_t index, uint32_t depth);

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
