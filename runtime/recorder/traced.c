/* What a process asks the recorder of system calls that follows it: the numbers of its threads and files. */
#include "recorder/traced.h"

bool cc_traced, cc_marks_by_call;

static uint32_t ask(enum cc_mark_call what, uintptr_t about)
{
    long answer = raw3(SYS_prctl, CC_MARK_CALL, what, (long)about);
    return raw_failed(answer) ? 0 : (uint32_t)answer;
}

uint32_t cc_traced_thread(void)
{
    return ask(CC_ASK_THREAD, (uintptr_t)&cc_thread.called);
}

uint32_t cc_traced_file(int fd)
{
    return ask(CC_ASK_FILE, (uintptr_t)fd);
}
