/* Marks for a program under test: which operation runs, when it was acknowledged, and which accesses a guard is for. And one
 * for a check: where it is ready.
 *
 * Include it, or declare the functions yourself. They are weak: a program built without
 * crashcheck-cc links and runs, and the marks do nothing. (In a check, crashcheck_ready() is there all the same: crashcheck
 * preloads it.)
 */
#ifndef CRASHCHECK_H
#define CRASHCHECK_H

#ifdef __cplusplus
extern "C" {
#endif

/* The operation is about to start. Operations are numbered from 1 in the order of their begin. */
__attribute__((weak)) void crashcheck_op_begin(void);
/* The operation that this thread began last is done and has been promised to the caller: from here on, a
 * crash that loses it is a bug. `{acked}` in a check command is the number of operations that ended. */
__attribute__((weak)) void crashcheck_op_end(void);
/* In a check: everything before this call is the same whatever the files hold, and none of them was opened or examined.
 * The process waits here, and each run of the check is a copy of it from here on (docs/writing-a-check.md). */
__attribute__((weak)) void crashcheck_ready(void);
/* The same for a check with `{acked}` among its words: `acked` is that number, and the result is the one to use. */
__attribute__((weak)) long crashcheck_ready_acked(long acked);

/* `crashcheck learn --marked` and `crashcheck guard --marked` observe and guard only these accesses (docs/guard.md):
 * of the function, or of the innermost block { } around the mark; of whatever code `crashcheck learn` saw to access the
 * variable at an address from this call on until it is freed. The first two are no calls: nobody defines the functions. */
__attribute__((weak)) void crashcheck_guard_function(void);
__attribute__((weak)) void crashcheck_guard_block(void);
__attribute__((weak)) void crashcheck_guard_address(const void *address);
/* In an allocator of the program's own, where it gives memory out and where it takes it back: what is there afterwards is
 * another variable. A guard knows this of libc's functions. `bytes`: of the whole block. */
__attribute__((weak)) void crashcheck_guard_ends(const void *block, unsigned long bytes);

#define CRASHCHECK_OP_BEGIN() do { if (crashcheck_op_begin) crashcheck_op_begin(); } while (0)
#define CRASHCHECK_OP_END() do { if (crashcheck_op_end) crashcheck_op_end(); } while (0)
#define CRASHCHECK_READY() do { if (crashcheck_ready) crashcheck_ready(); } while (0)
#define CRASHCHECK_READY_ACKED(acked) (crashcheck_ready_acked ? crashcheck_ready_acked(acked) : (acked))
#define CRASHCHECK_GUARD_FUNCTION() ((void)(crashcheck_guard_function && (crashcheck_guard_function(), 1)))
#define CRASHCHECK_GUARD_BLOCK() ((void)(crashcheck_guard_block && (crashcheck_guard_block(), 1)))
#define CRASHCHECK_GUARD_ADDRESS(address) ((void)(crashcheck_guard_address && (crashcheck_guard_address(address), 1)))
#define CRASHCHECK_GUARD_ENDS(block, bytes) ((void)(crashcheck_guard_ends && (crashcheck_guard_ends(block, bytes), 1)))

#ifdef __cplusplus
}
#endif
#endif
