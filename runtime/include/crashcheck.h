/* Marks for a program under test: which operation runs, and when it was acknowledged.
 *
 * Include it, or declare the functions yourself. They are weak: a program built without
 * crashcheck-cc links and runs, and the marks do nothing.
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

#define CRASHCHECK_OP_BEGIN() do { if (crashcheck_op_begin) crashcheck_op_begin(); } while (0)
#define CRASHCHECK_OP_END() do { if (crashcheck_op_end) crashcheck_op_end(); } while (0)

#ifdef __cplusplus
}
#endif
#endif
