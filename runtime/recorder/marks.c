/* What the outside world has seen: marked operations, and how much standard output was printed. */
#include <sys/stat.h>

#pragma GCC visibility push(default)
#include "crashcheck.h"
#pragma GCC visibility pop
#include "recorder/events.h"
#include "recorder/notes.h"
#include "recorder/pool_files.h"
#include "recorder/process.h"
#include "recorder/traced.h"

static uint64_t output_device, output_inode;
static bool by_call; /* calls of this program are recorded from outside, and so are its marks */

void cc_marks_start(const char *setting)
{
    by_call = setting && *setting;
}

static void mark_by_call(bool begins)
{
    if (by_call)
        raw3(SYS_prctl, CC_MARK_CALL, begins ? CC_MARK_BEGINS : CC_MARK_ENDS, 0);
}

/* `setting`: "1" takes descriptor 1 of this process if it is a regular file, "device:inode" that file only. */
void cc_output_start(const char *setting)
{
    struct file_state state;
    if (!setting || !*setting || !cc_state_of_fd(1, &state) || (state.mode & S_IFMT) != S_IFREG)
        return;
    const char *text = setting;
    uint64_t device = raw_number(&text);
    if (*text == ':') {
        text++;
        if (device != state.device || raw_number(&text) != state.inode)
            return;
    }
    output_device = state.device;
    output_inode = state.inode;
}

bool cc_is_output(const struct file_state *state)
{
    return output_inode && state->inode == output_inode && state->device == output_device;
}

void cc_output(where at)
{
    struct file_state state;
    if (!output_inode || !cc_state_of_fd(1, &state) || !cc_is_output(&state))
        return;
    uint64_t known = __atomic_load_n(&cc_header->output_bytes, __ATOMIC_RELAXED);
    do
        if (state.size <= known)
            return;
    while (!__atomic_compare_exchange_n(&cc_header->output_bytes, &known, state.size, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    cc_event_at(at, (struct cc_event){.kind = CC_OUTPUT, .offset = state.size});
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
    if ((cc_on() || by_call) && cc_thread.named_depth++ == 0)
        crashcheck_op_begin();
}

EXPORTED void cc_operation_leave(void)
{
    /* Zero in a child that was forked in the middle of an operation. */
    if ((cc_on() || by_call) && cc_thread.named_depth && --cc_thread.named_depth == 0)
        crashcheck_op_end();
}
