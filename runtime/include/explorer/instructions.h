/* What one x86-64 instruction does with its operand in memory. tests/runtime compares this with another decoder. */
#ifndef CRASHCHECK_EXPLORER_INSTRUCTIONS_H
#define CRASHCHECK_EXPLORER_INSTRUCTIONS_H

#include "recorder/base.h"

enum touch {
    TOUCHES,        /* one stretch of at most 64 bytes, from the address that faults */
    TOUCHES_AROUND, /* one such stretch around it: a masked vector access may fault at any of its lanes */
    TOUCHES_FAR,    /* more: gathers, scatters, movdir64b, and whole register files */
    ONLY_FLUSHES,
};

enum string_operation { NO_STRING, MOVES = 0xa4, COMPARES = 0xa6, FILLS = 0xaa };

struct instruction {
    enum touch touch;
    unsigned length;                /* where one operand in memory is all that depends on its address; else 0: not known */
    uint32_t bytes;                 /* of that operand; 0: not known */
    bool writes;                    /* that operand, and does not read it */
    enum string_operation string;   /* on memory at RSI, RDI or both */
    uint32_t string_bytes;          /* at a time */
};

HIDDEN struct instruction cc_explore_decode(const unsigned char *code);

#endif
