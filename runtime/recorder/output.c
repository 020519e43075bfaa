/* How much standard output was printed. */
#include <sys/stat.h>

#include "recorder/events.h"
#include "recorder/output.h"

static uint64_t output_device, output_inode;

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
