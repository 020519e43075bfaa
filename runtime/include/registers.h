/* Calls from assembly that may be entered at any instruction of the program: they keep every register.
 *
 * Runtimes are compiled without AVX, and x87 is not used, so the SSE registers are all of the vector state that one
 * may change. */
#ifndef CRASHCHECK_REGISTERS_H
#define CRASHCHECK_REGISTERS_H

#define SAVE_SSE(n) "movups %xmm" #n ", " #n "*16(%rsp)\n"
#define RESTORE_SSE(n) "movups " #n "*16(%rsp), %xmm" #n "\n"
#define ALL_SSE(do) do(0) do(1) do(2) do(3) do(4) do(5) do(6) do(7) do(8) do(9) do(10) do(11) do(12) do(13) do(14) do(15)

#define KEEPING_REGISTERS(code)                                                                                          \
    "push %rbp\n mov %rsp, %rbp\n"                                                                                     \
    "push %rax\n push %rcx\n push %rdx\n push %rsi\n push %rdi\n push %r8\n push %r9\n push %r10\n push %r11\n"          \
    "sub $264, %rsp\n and $-16, %rsp\n cld\n" ALL_SSE(SAVE_SSE) code ALL_SSE(RESTORE_SSE)                               \
    "lea -72(%rbp), %rsp\n"                                                                                            \
    "pop %r11\n pop %r10\n pop %r9\n pop %r8\n pop %rdi\n pop %rsi\n pop %rdx\n pop %rcx\n pop %rax\n pop %rbp\n"

/* What cc_access_entry (hooks.h) does: calls void function(const struct cc_access *, struct cc_unit *) and returns. */
#define PASS_ACCESS_TO(function)                                                                                       \
    KEEPING_REGISTERS("lea 24(%rbp), %rdi\n mov 8(%rbp), %rsi\n call " #function "\n") "lea 8(%rsp), %rsp\n ret\n"

#endif
