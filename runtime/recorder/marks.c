/* Operations that the program marks (crashcheck.h), and those that it names. */
#pragma GCC visibility push(default)
#include "crashcheck.h"
#pragma GCC visibility pop
#include "recorder/events.h"
#include "recorder/notes.h"
#include "recorder/output.h"
#include "recorder/recording.h"

static void mark_by_call(bool begins)
{
    if (cc_marks_by_call)
        raw3(SYS_prctl, CC_MARK_CALL, begins ? CC_MARK_BEGINS : CC_MARK_ENDS, 0);
}

EXPORTED void crashcheck_op_begin(void)
{
    where at = cc_from_outside();
    if (!cc_records_calls()) {
        mark_by_call(true);
        return;
    }
    cc_output(at);
    uint32_t ordinal = __atomic_fetch_add(&cc_header->next_operation, 1, __ATOMIC_RELAXED);
    struct thread *thread = &cc_thread;
    if (*cc_alive == 0)
        cc_child();
    if (thread->operation_depth == OPERATIONS_NESTED) {
        cc_note("operations", "operations are nested too deeply to be recorded");
        cc_stop(CC_STATUS_TOO_MANY);
        return;
    }
    thread->operations[thread->operation_depth++] = ordinal;
    cc_event_at(at, (struct cc_event){.kind = CC_MARK_BEGIN, .aux = ordinal});
}

EXPORTED void crashcheck_op_end(void)
{
    where at = cc_from_outside();
    if (!cc_records_calls()) {
        mark_by_call(false);
        return;
    }
    struct thread *thread = &cc_thread;
    if (*cc_alive == 0)
        cc_child();
    if (!thread->operation_depth) {
        cc_note("mark", "crashcheck_op_end without crashcheck_op_begin in the same thread");
        return;
    }
    cc_output(at);
    cc_event_at(at, (struct cc_event){.kind = CC_MARK_END, .aux = thread->operations[--thread->operation_depth]});
}

EXPORTED void cc_operation_enter(void)
{
    if ((cc_on() || cc_marks_by_call) && cc_thread.named_depth++ == 0)
        crashcheck_op_begin();
}

EXPORTED void cc_operation_leave(void)
{
    /* Zero in a child that was forked in the middle of an operation. */
    if ((cc_on() || cc_marks_by_call) && cc_thread.named_depth && --cc_thread.named_depth == 0)
        crashcheck_op_end();
}
