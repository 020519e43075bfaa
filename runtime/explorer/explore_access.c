/* An instruction that touches a closed page: what it reads and writes there, and how it is executed (explore.c). */
#ifdef CC_SHARED
#include <sys/mman.h>

#include "exploring.h"

HIDDEN void cc_explore_close(void);
HIDDEN void cc_explore_after(void);

enum touch { TOUCHES, TOUCHES_AROUND, TOUCHES_FAR, ONLY_FLUSHES };

/* Around: a masked vector access may fault at any of its lanes. Far, more than one stretch of WIDEST bytes: gathers,
 * scatters, movdir64b, and whole register files. */
HERE static enum touch kind_of(const unsigned char *code)
{
    bool narrow = false;
    while (*code == 0x66 || *code == 0x67 || *code == 0x2e || *code == 0x36 || *code == 0x3e || *code == 0x26 ||
           *code == 0x64 || *code == 0x65 || *code == 0xf0 || *code == 0xf2 || *code == 0xf3)
        narrow |= *code++ == 0x66;
    if ((*code == 0xc4 && (code[1] & 31) == 2) || (*code == 0x62 && (code[1] & 7) == 2)) {
        unsigned char operation = code[*code == 0xc4 ? 3 : 4];
        bool spread = (operation >= 0x90 && operation <= 0x93) || (operation >= 0xa0 && operation <= 0xa3) ||
                      operation == 0xc6 || operation == 0xc7 || operation == 0x4b || operation == 0x49;
        return spread ? TOUCHES_FAR : TOUCHES_AROUND;
    }
    if (*code == 0xc4 || *code == 0xc5 || *code == 0x62)
        return TOUCHES_AROUND;
    if ((*code & 0xf0) == 0x40)
        code++;
    if (code[0] == 0xdd && ((code[1] >> 3 & 7) == 4 || (code[1] >> 3 & 7) == 6))
        return TOUCHES_FAR;
    if (code[0] != 0x0f)
        return TOUCHES;
    unsigned which = code[2] >> 3 & 7;
    if (code[1] == 0xf7)
        return TOUCHES_AROUND;
    if (code[1] == 0x38 && code[2] == 0xf8)
        return TOUCHES_FAR;
    if (code[1] == 0xc7)
        return which == 3 || which == 4 || which == 5 ? TOUCHES_FAR : TOUCHES;
    if (code[1] != 0xae)
        return TOUCHES;
    if (which == 7 || (narrow && which == 6))
        return ONLY_FLUSHES;
    return which == 2 || which == 3 ? TOUCHES : TOUCHES_FAR;
}

/* The length of an instruction with one operand in memory that would do the same elsewhere; 0: not known. */
HERE static unsigned length_of(const unsigned char *code)
{
    const unsigned char *at = code;
    bool narrow = false, wide = false;
    for (; *at == 0x66 || *at == 0xf0 || *at == 0xf2 || *at == 0xf3 || *at == 0x3e || *at == 0x2e; at++)
        narrow |= *at == 0x66;
    unsigned map = 0, immediate = 0;
    if (*at == 0xc5 || *at == 0xc4) {
        map = *at == 0xc5 ? 1 : at[1] & 31;
        at += *at == 0xc5 ? 2 : 3;
    } else {
        if ((*at & 0xf0) == 0x40)
            wide = *at++ & 8;
        if (*at == 0x0f) {
            map = at[1] == 0x38 ? 2 : at[1] == 0x3a ? 3 : 1;
            at += map == 1 ? 1 : 2;
        }
    }
    unsigned operation = *at++, mode = *at >> 6, which = *at >> 3 & 7, base = *at & 7, word = narrow && !wide ? 2 : 4;
    if (map == 0) {
        if (operation < 0x40 ? (operation & 7) >= 4
                             : !(operation == 0x63 || operation == 0x69 || operation == 0x6b || operation == 0x80 ||
                                 operation == 0x81 || (operation >= 0x83 && operation <= 0x8b) || operation == 0xc0 ||
                                 operation == 0xc1 || operation == 0xc6 || operation == 0xc7 ||
                                 (operation >= 0xd0 && operation <= 0xd3) || operation == 0xf6 || operation == 0xf7 ||
                                 ((operation == 0xfe || operation == 0xff) && which < 2)))
            return 0;
        if (operation == 0x80 || operation == 0x83 || operation == 0x6b || operation == 0xc6 || operation == 0xc0 ||
            operation == 0xc1 || (operation == 0xf6 && which < 2))
            immediate = 1;
        else if (operation == 0x81 || operation == 0x69 || operation == 0xc7 || (operation == 0xf7 && which < 2))
            immediate = word;
        if ((operation == 0xc6 || operation == 0xc7) && which)
            return 0;
    } else if (map == 1) {
        bool plain = (operation >= 0x10 && operation <= 0x18) || (operation >= 0x28 && operation <= 0x2f) ||
                     (operation >= 0x40 && operation <= 0x6f && operation != 0x50) ||
                     (operation >= 0x74 && operation <= 0x76) || operation == 0x7e || operation == 0x7f ||
                     (operation >= 0x90 && operation <= 0x9f) || operation == 0xa3 || operation == 0xab ||
                     operation == 0xae || operation == 0xaf || operation == 0xb0 || operation == 0xb1 ||
                     operation == 0xb3 || operation == 0xb6 || operation == 0xb7 || operation == 0xbb ||
                     operation == 0xbe || operation == 0xbf || operation == 0xc0 || operation == 0xc1 ||
                     (operation == 0xc7 && which == 1) || (operation >= 0xd1 && operation <= 0xfe);
        immediate = operation == 0x70 || operation == 0xba || operation == 0xc2 || operation == 0xc4 || operation == 0xc6;
        if (!plain && !immediate)
            return 0;
    } else if (map == 3) {
        immediate = 1;
    } else if (map != 2) {
        return 0;
    }
    at++;
    if (mode == 3 || (mode == 0 && base == 5))
        return 0;
    if (base == 4)
        base = *at++ & 7;
    at += mode == 1 ? 1 : mode == 2 || (mode == 0 && base == 5) ? 4 : 0;
    return (unsigned)(at - code) + immediate;
}

struct access {
    uint32_t bytes;            /* 0: not known */
    bool writes;               /* and does not read */
};

/* What an instruction that `length_of` knows does with its operand in memory. */
HERE static struct access access_of(const unsigned char *code)
{
    struct access unknown = {0, false};
    bool narrow = false, wide = false, long_vector = false;
    unsigned scalar = 0, map = 0;
    for (; *code == 0x66 || *code == 0xf0 || *code == 0xf2 || *code == 0xf3 || *code == 0x3e || *code == 0x2e; code++) {
        narrow |= *code == 0x66;
        if (*code == 0xf2 || *code == 0xf3)
            scalar = *code;
    }
    bool vector = *code == 0xc5 || *code == 0xc4;
    if (vector) {
        unsigned last = code[*code == 0xc5 ? 1 : 2];
        static const unsigned char prefixes[] = {0, 0x66, 0xf3, 0xf2};
        if (*code == 0xc4 && (code[1] & 31) != 1)
            return unknown;
        narrow = prefixes[last & 3] == 0x66;
        scalar = narrow ? 0 : prefixes[last & 3];
        long_vector = last & 4;
        map = 1;
        code += *code == 0xc5 ? 2 : 3;
    } else {
        if ((*code & 0xf0) == 0x40)
            wide = *code++ & 8;
        if (*code == 0x0f) {
            if (code[1] == 0x38 || code[1] == 0x3a)
                return unknown;
            map = 1;
            code++;
        }
    }
    unsigned operation = *code;
    uint32_t word = wide ? 8 : narrow ? 2 : 4, whole = long_vector ? 32 : 16;
    if (!map) {
        if (operation < 0x40 || operation == 0x80 || operation == 0x81 || (operation >= 0x83 && operation <= 0x8b) ||
            operation == 0xc0 || operation == 0xc1 || operation == 0xc6 || operation == 0xc7 || operation >= 0xd0) {
            bool writes = operation == 0x88 || operation == 0x89 || operation == 0xc6 || operation == 0xc7;
            bool byte = !(operation & 1) && operation != 0x83;
            return (struct access){byte ? 1 : word, writes};
        }
        return (struct access){operation == 0x63 ? 4 : word, false};
    }
    switch (operation) {
    case 0x10:
        return (struct access){scalar == 0xf3 ? 4 : scalar ? 8 : whole, false};
    case 0x11:
        return (struct access){scalar == 0xf3 ? 4 : scalar ? 8 : whole, true};
    case 0x28:
        return (struct access){whole, false};
    case 0x29:
    case 0x2b:
        return (struct access){scalar ? 0 : whole, !scalar};
    case 0x6f:
        return (struct access){narrow || scalar == 0xf3 ? whole : 0, false};
    case 0x7f:
        return (struct access){narrow || scalar == 0xf3 ? whole : 0, narrow || scalar == 0xf3};
    case 0xe7:
        return (struct access){narrow ? whole : 0, narrow};
    default:
        break;
    }
    if (vector || scalar)
        return unknown;
    switch (operation) {
    case 0xb6:
    case 0xbe:
    case 0xb0:
    case 0xc0:
        return (struct access){1, false};
    case 0xb7:
    case 0xbf:
        return (struct access){2, false};
    case 0xaf:
    case 0xb1:
    case 0xc1:
        return (struct access){word, false};
    case 0xc3:
        return (struct access){word, true};
    default:
        return operation >= 0x40 && operation <= 0x4f ? (struct access){word, false} : unknown;
    }
}

/* Of an instruction that moves, compares or fills a string: how many bytes at a time; else 0. */
HERE static uint32_t string_of(const unsigned char *code, unsigned *operation)
{
    bool narrow = false, wide = false;
    for (; *code == 0x66 || *code == 0xf2 || *code == 0xf3; code++)
        narrow |= *code == 0x66;
    if ((*code & 0xf0) == 0x40)
        wide = *code++ & 8;
    if ((*code < 0xa4 || *code > 0xa7) && *code != 0xaa && *code != 0xab)
        return 0;
    *operation = *code & 0xfe;
    return !(*code & 1) ? 1 : wide ? 8 : narrow ? 2 : 4;
}

/* An instruction is about to touch a page that is not all known. */
HERE static void foresee(const ucontext_t *context, const struct mapping *in, uintptr_t address)
{
    const greg_t *registers = context->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    enum touch kind = kind_of(code);
    unsigned operation = 0;
    uint32_t string = string_of(code, &operation);
    if (kind == TOUCHES_FAR)
        cc_explore_refuse(CC_EXPLORE_INSTRUCTION, 0);
    if (kind == ONLY_FLUSHES)
        return;
    if (string) {
        uintptr_t from = (uintptr_t)registers[REG_RSI], to = (uintptr_t)registers[REG_RDI];
        for (uint32_t i = 0; i < cc_run.mapped; i++) {
            if (!cc_run.mappings[i].gone && operation != 0xaa)
                cc_explore_accesses(context, &cc_run.mappings[i], from, from + string, false);
            if (!cc_run.mappings[i].gone && operation == 0xa6)
                cc_explore_accesses(context, &cc_run.mappings[i], to, to + string, false);
        }
        for (uint32_t i = 0; i < cc_run.mapped; i++)
            if (!cc_run.mappings[i].gone && operation != 0xa6)
                cc_explore_accesses(context, &cc_run.mappings[i], to, to + string, true);
        return;
    }
    struct access one = length_of(code) ? access_of(code) : (struct access){0, false};
    if (one.bytes) {
        /* The fault is at its first byte, or at the first on the second of two pages: then nobody knows how many are there. */
        bool sure = one.bytes == 1 || address & (PAGE - 1);
        cc_explore_accesses(context, in, sure ? address : address - one.bytes + 1, address + one.bytes, sure && one.writes);
    } else {
        cc_explore_accesses(context, in, kind == TOUCHES_AROUND ? address - WIDEST + 1 : address, address + WIDEST, false);
    }
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
    bool closed = in && !is_open(in, page);
    for (uint32_t i = 0; i < cc_run.opens; i++)
        closed &= cc_run.opened[i] != page;
    if (!closed || number != SIGSEGV)
        cc_explore_ends(number);
    /* What a handler of ours was called for, its stack tells, which is no part of a state. */
    if (*next >= (greg_t)__start_cc_explore && *next < (greg_t)__stop_cc_explore)
        cc_explore_refuse(CC_EXPLORE_PASSED, 0);
    foresee(context, in, address);
    if (cc_run.opens == OPENED)
        cc_explore_refuse(CC_EXPLORE_INSTRUCTION, 0);
    cc_run.opened_in[cc_run.opens] = in;
    cc_run.opened[cc_run.opens++] = page;
    for (uint32_t i = 0; i < cc_run.opens; i++) /* a decision closed those of before */
        raw3(SYS_mprotect, (long)cc_run.opened[i], PAGE, cc_run.opened_in[i]->protection);
    unsigned length = length_of((const unsigned char *)*next);
    if (!length) {
        context->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
        return;
    }
    /* A trap after each instruction is slow, more so in a virtual machine: a copy of it goes on to cc_explore_after. */
    static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};
    uintptr_t target = (uintptr_t)cc_explore_after;
    raw_move(cc_run.apart, (const void *)*next, length);
    raw_move(cc_run.apart + length, jump, sizeof jump);
    raw_move(cc_run.apart + length + sizeof jump, &target, sizeof target);
    cc_run.displaced = (uintptr_t)*next;
    cc_explore_resume = cc_run.displaced + length;
    *next = (greg_t)cc_run.apart;
    context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

HERE void cc_explore_close(void)
{
    for (; cc_run.opens; cc_run.opens--)
        if (!is_open(cc_run.opened_in[cc_run.opens - 1], cc_run.opened[cc_run.opens - 1]))
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
        cc_explore_ends(number);
    context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    cc_explore_close();
}
#else
typedef int cc_for_the_shared_library;
#endif
