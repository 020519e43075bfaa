/* Libraries that a program loads and unloads while it runs; a file of its own, so that a static program that does
 * not do so is not linked with the loader. */
#include "interpose/model.h"
#include "recorder/events.h"
#include "recorder/stacks.h"

MODEL_BEFORE(int, dlclose, (void *library), cc_stacks_forget(), (library))

#ifdef CC_SHARED
/* dlopen reads its return address to know whose search path counts, so it must be jumped to, not called. */
HIDDEN __attribute__((used)) void *cc_dlopen_noted(const char *path, int flags);
void *cc_dlopen_noted(const char *path, int flags)
{
    (void)flags;
    void *real = REAL(dlopen);
    where at = cc_from_wrapper();
    if (cc_on() && path && !cc_thread.inside)
        cc_event_bytes(at, (struct cc_event){.kind = CC_DLOPEN}, NULL, 0, path, raw_length(path));
    return real;
}

__asm__(".text\n"
        ".globl cc_wrap_dlopen\n.type cc_wrap_dlopen,@function\n"
        ".globl dlopen\n.type dlopen,@function\n"
        "cc_wrap_dlopen:\ndlopen:\n"
        ".cfi_startproc\n"
        "push %rdi\n.cfi_adjust_cfa_offset 8\n"
        "push %rsi\n.cfi_adjust_cfa_offset 8\n"
        "sub $8, %rsp\n.cfi_adjust_cfa_offset 8\n"
        "call cc_dlopen_noted\n"
        "add $8, %rsp\n.cfi_adjust_cfa_offset -8\n"
        "pop %rsi\n.cfi_adjust_cfa_offset -8\n"
        "pop %rdi\n.cfi_adjust_cfa_offset -8\n"
        "jmp *%rax\n"
        ".cfi_endproc\n"
        ".size cc_wrap_dlopen, .-cc_wrap_dlopen\n.size dlopen, .-dlopen\n");
#else
EXPORTED void *cc_wrap_dlopen(const char *path, int flags);
EXPORTED void *cc_wrap_dlopen(const char *path, int flags)
{
    where at = cc_from_wrapper();
    if (cc_on() && path)
        cc_event_bytes(at, (struct cc_event){.kind = CC_DLOPEN}, NULL, 0, path, raw_length(path));
    return dlopen(path, flags);
}
#endif
