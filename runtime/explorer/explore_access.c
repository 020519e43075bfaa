/* What happens when an instruction touches a closed page: the bytes that it reads are decided first, then the page is
 * opened and the instruction executed (explorer/explore.c). */
#ifdef CC_SHARED
#include <sys/mman.h>

#include "explorer/decisions.h"
#include "explorer/exploration.h"
#include "explorer/handlers.h"
#include "explorer/instructions.h"
#include "explorer/section.h"
#include "explorer/written.h"
#include "registers.h"

HIDDEN void cc_explore_close(void);
HIDDEN void cc_explore_after(void);

/* A string instruction reads from RSI, RDI or both, then writes to RDI. */
HERE static void foresee_string(const ucontext_t *context, const struct instruction *next)
{
    const greg_t *registers = context->uc_mcontext.gregs;
    uintptr_t from = (uintptr_t)registers[REG_RSI], to = (uintptr_t)registers[REG_RDI];
    for (uint32_t i = 0; i < cc_run.mapped; i++) {
        if (!cc_run.mappings[i].gone && next->string != FILLS)
            cc_explore_accesses(context, &cc_run.mappings[i], from, from + next->string_bytes, false);
        if (!cc_run.mappings[i].gone && next->string == COMPARES)
            cc_explore_accesses(context, &cc_run.mappings[i], to, to + next->string_bytes, false);
    }
    for (uint32_t i = 0; i < cc_run.mapped; i++)
        if (!cc_run.mappings[i].gone && next->string != COMPARES)
            cc_explore_accesses(context, &cc_run.mappings[i], to, to + next->string_bytes, true);
}

/* Before an instruction touches a page that is not all known. */
HERE static void foresee(const ucontext_t *context, const struct mapping *in, uintptr_t address, const struct instruction *next)
{
    if (next->touch == TOUCHES_FAR)
        cc_explore_refuse(CC_EXPLORE_INSTRUCTION, 0);
    if (next->touch == ONLY_FLUSHES)
        return;
    if (next->string) {
        foresee_string(context, next);
    } else if (next->bytes) {
        /* The fault is at the first byte, or at the first on the second of two pages: how many are there is not known then. */
        bool sure = next->bytes == 1 || address & (PAGE - 1);
        cc_explore_accesses(context, in, sure ? address : address - next->bytes + 1, address + next->bytes, sure && next->writes);
    } else {
        uintptr_t start = next->touch == TOUCHES_AROUND ? address - WIDEST + 1 : address;
        cc_explore_accesses(context, in, start, address + WIDEST, false);
    }
}

/* Before a page of a second mapping is read: it becomes a copy, for one instruction, of what the first one has there. */
HERE static void mirror(const ucontext_t *context, const struct mapping *in, uintptr_t page)
{
    const struct mapping *first = cc_explore_first_mapping(in);
    uint64_t offset = in->offset + (page - in->start);
    if (!first || offset < first->offset || offset - first->offset >= first->end - first->start)
        cc_explore_refuse(CC_EXPLORE_MAPPED_AGAIN, SYS_mmap);
    uintptr_t from = first->start + (offset - first->offset);
    cc_explore_accesses(context, first, from, from + PAGE, false);
    raw3(SYS_mprotect, (long)from, PAGE, PROT_READ | PROT_WRITE);
    raw3(SYS_mprotect, (long)page, PAGE, PROT_READ | PROT_WRITE);
    raw_move((void *)page, (const void *)from, PAGE);
    cc_explore_close_pages(first);
}

HERE void cc_explore_touched(int number, siginfo_t *info, void *given)
{
    ucontext_t *context = given;
    uintptr_t address = (uintptr_t)info->si_addr, page = address & ~(PAGE - 1);
    greg_t *next = &context->uc_mcontext.gregs[REG_RIP];
    if (*next == (greg_t)cc_run.apart)
        *next = (greg_t)cc_run.displaced;
    struct mapping *in = NULL;
    for (uint32_t i = 0; i < cc_run.mapped; i++)
        if (!cc_run.mappings[i].gone && address >= cc_run.mappings[i].start && address < cc_run.mappings[i].end)
            in = &cc_run.mappings[i];
    bool closed = in && (in->mirrors || !is_open(in, page));
    for (uint32_t i = 0; i < cc_run.opens; i++)
        closed &= cc_run.opened[i] != page;
    /* The stack of a handler of ours holds what it was called for, and is no part of a state. */
    if (*next >= (greg_t)__start_cc_explore && *next < (greg_t)__stop_cc_explore)
        cc_explore_refuse(CC_EXPLORE_PASSED, 0);
    if (in && in->mirrors && !closed) /* it writes there */
        cc_explore_refuse(CC_EXPLORE_MAPPED_AGAIN, SYS_mmap);
    if (!closed || number != SIGSEGV)
        cc_explore_signalled(number);
    struct instruction found = cc_explore_decode((const unsigned char *)*next);
    if (in->mirrors)
        mirror(context, in, page);
    else
        foresee(context, in, address, &found);
    if (cc_run.opens == OPENED)
        cc_explore_refuse(CC_EXPLORE_INSTRUCTION, 0);
    cc_run.opened_in[cc_run.opens] = in;
    cc_run.opened[cc_run.opens++] = page;
    for (uint32_t i = 0; i < cc_run.opens; i++) /* a decision closed those of before */
        raw3(SYS_mprotect, (long)cc_run.opened[i], PAGE, cc_run.opened_in[i]->protection);
    if (!found.length) {
        context->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
        return;
    }
    /* A trap after each instruction is slow, more so in a virtual machine: a copy of it continues to cc_explore_after. */
    static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};
    uintptr_t target = (uintptr_t)cc_explore_after;
    raw_move(cc_run.apart, (const void *)*next, found.length);
    raw_move(cc_run.apart + found.length, jump, sizeof jump);
    raw_move(cc_run.apart + found.length + sizeof jump, &target, sizeof target);
    cc_run.displaced = (uintptr_t)*next;
    cc_explore_resume = cc_run.displaced + found.length;
    *next = (greg_t)cc_run.apart;
    context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

HERE void cc_explore_close(void)
{
    for (; cc_run.opens; cc_run.opens--)
        if (cc_run.opened_in[cc_run.opens - 1]->mirrors || !is_open(cc_run.opened_in[cc_run.opens - 1], cc_run.opened[cc_run.opens - 1]))
            raw3(SYS_mprotect, (long)cc_run.opened[cc_run.opens - 1], PAGE, PROT_NONE);
}

__asm__(".pushsection cc_explore,\"ax\",@progbits\n"
        ".type cc_explore_after,@function\n"
        "cc_explore_after:\n"
        "mov %rsp, cc_explore_kept(%rip)\n"
        "mov cc_explore_stack(%rip), %rsp\n"
        "pushfq\n" KEEPING_REGISTERS("call cc_explore_close\n") "popfq\n"
        "mov cc_explore_kept(%rip), %rsp\n"
        "jmp *cc_explore_resume(%rip)\n"
        ".size cc_explore_after, .-cc_explore_after\n"
        ".popsection\n");

/* The instruction that touched a closed page has executed. */
HERE void cc_explore_stepped(int number, siginfo_t *info, void *given)
{
    (void)info;
    ucontext_t *context = given;
    if (!cc_run.opens)
        cc_explore_signalled(number);
    context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    cc_explore_close();
}
#endif
