/* An instruction decoder for the explorer: which memory the instruction at a fault touches, and whether a copy of it may
 * be executed elsewhere. It knows the instructions that compilers and libc use, and reports any other as not known. */
#include "explorer/instructions.h"
#include "explorer/section.h"

#ifdef CC_SHARED

enum encoding { LEGACY, VEX, EVEX };

/* An instruction up to its opcode. */
struct opcode {
    enum encoding encoding;
    unsigned map;              /* 0: one byte, 1: after 0f, 2: after 0f 38, 3: after 0f 3a */
    unsigned char code;
    unsigned char repeat;      /* 0, f2 or f3: a prefix, or its code in VEX */
    bool narrow, wide;         /* prefix 66, REX.W */
    bool long_vector;          /* VEX.L */
    bool elsewhere;            /* a prefix that changes the operand's address */
    const unsigned char *mode; /* its ModRM byte, if it has one */
};

/* Which bytes the operand of an opcode has. */
enum operand {
    NOT_KNOWN,         /* nor its length */
    ANY,               /* not known */
    BYTE,
    TWO,
    FOUR,
    WORD,              /* 2, 4 or 8, by prefixes */
    VECTOR,            /* 16 or 32 */
    SCALAR_OR_VECTOR,  /* 4 after f3, 8 after f2 */
    VECTOR_UNPREFIXED, /* not known after f2 and f3 */
    VECTOR_66_F3,      /* a vector after 66 or f3, else not known */
    VECTOR_66,
};

enum immediate { NO_IMMEDIATE, ONE, SIZED /* 2 or 4 */, ONE_OF_TEST /* where ModRM.reg is 0 or 1 */, SIZED_OF_TEST };

struct shape {
    uint8_t operand;   /* enum operand */
    uint8_t immediate; /* enum immediate */
    bool writes;       /* and does not read the operand */
    uint8_t only;      /* of a group: a bit for each ModRM.reg that is known; 0: all are */
};

#define ARITHMETIC(code) [code] = {BYTE, 0, 0, 0}, [code + 1] = {WORD, 0, 0, 0}, [code + 2] = {BYTE, 0, 0, 0}, [code + 3] = {WORD, 0, 0, 0}

static const struct shape one_byte[256] = {
    ARITHMETIC(0x00), ARITHMETIC(0x08), ARITHMETIC(0x10), ARITHMETIC(0x18), /* add, or, adc, sbb */
    ARITHMETIC(0x20), ARITHMETIC(0x28), ARITHMETIC(0x30), ARITHMETIC(0x38), /* and, sub, xor, cmp */
    [0x63] = {FOUR, 0, 0, 0},                                               /* movsxd */
    [0x69] = {WORD, SIZED, 0, 0},
    [0x6b] = {WORD, ONE, 0, 0},                                             /* imul */
    [0x80] = {BYTE, ONE, 0, 0},
    [0x81] = {WORD, SIZED, 0, 0},
    [0x83] = {WORD, ONE, 0, 0},                                             /* arithmetic with a constant */
    [0x84] = {BYTE, 0, 0, 0},
    [0x85] = {WORD, 0, 0, 0},                                               /* test */
    [0x86] = {BYTE, 0, 0, 0},
    [0x87] = {WORD, 0, 0, 0},                                               /* xchg */
    [0x88] = {BYTE, 0, true, 0},
    [0x89] = {WORD, 0, true, 0},
    [0x8a] = {BYTE, 0, 0, 0},
    [0x8b] = {WORD, 0, 0, 0},                                               /* mov */
    [0xc0] = {BYTE, ONE, 0, 0},
    [0xc1] = {WORD, ONE, 0, 0},
    [0xd0] = {BYTE, 0, 0, 0},
    [0xd1] = {WORD, 0, 0, 0},
    [0xd2] = {BYTE, 0, 0, 0},
    [0xd3] = {WORD, 0, 0, 0},                                               /* shifts */
    [0xc6] = {BYTE, ONE, true, 1},
    [0xc7] = {WORD, SIZED, true, 1},                                        /* mov of a constant */
    [0xf6] = {BYTE, ONE_OF_TEST, 0, 0},
    [0xf7] = {WORD, SIZED_OF_TEST, 0, 0},                                   /* test, not, neg, mul, div */
    [0xfe] = {BYTE, 0, 0, 3},
    [0xff] = {WORD, 0, 0, 3},                                               /* inc, dec */
};

static const struct shape after_0f[256] = {
    [0x10] = {SCALAR_OR_VECTOR, 0, 0, 0},
    [0x11] = {SCALAR_OR_VECTOR, 0, true, 0}, /* movups, movss and so on */
    [0x12 ... 0x18] = {ANY, 0, 0, 0},
    [0x28] = {VECTOR, 0, 0, 0},
    [0x29] = {VECTOR_UNPREFIXED, 0, true, 0}, /* movaps */
    [0x2a] = {ANY, 0, 0, 0},
    [0x2b] = {VECTOR_UNPREFIXED, 0, true, 0}, /* movntps */
    [0x2c ... 0x2f] = {ANY, 0, 0, 0},
    [0x40 ... 0x4f] = {WORD, 0, 0, 0},        /* cmov */
    [0x51 ... 0x6e] = {ANY, 0, 0, 0},
    [0x6f] = {VECTOR_66_F3, 0, 0, 0},         /* movdqa, movdqu */
    [0x70] = {ANY, ONE, 0, 0},
    [0x74 ... 0x76] = {ANY, 0, 0, 0},
    [0x7e] = {ANY, 0, 0, 0},
    [0x7f] = {VECTOR_66_F3, 0, true, 0},
    [0x90 ... 0x9f] = {ANY, 0, 0, 0},         /* setcc */
    [0xa3] = {ANY, 0, 0, 0},                  /* bt: the bit's number moves the address */
    [0xab] = {ANY, 0, 0, 0},
    [0xae] = {ANY, 0, 0, 0},
    [0xaf] = {WORD, 0, 0, 0},                 /* imul */
    [0xb0] = {BYTE, 0, 0, 0},
    [0xb1] = {WORD, 0, 0, 0},                 /* cmpxchg */
    [0xb3] = {ANY, 0, 0, 0},
    [0xb6] = {BYTE, 0, 0, 0},
    [0xb7] = {TWO, 0, 0, 0},                  /* movzx */
    [0xba] = {ANY, ONE, 0, 0},
    [0xbb] = {ANY, 0, 0, 0},
    [0xbe] = {BYTE, 0, 0, 0},
    [0xbf] = {TWO, 0, 0, 0},                  /* movsx */
    [0xc0] = {BYTE, 0, 0, 0},
    [0xc1] = {WORD, 0, 0, 0},                 /* xadd */
    [0xc2] = {ANY, ONE, 0, 0},
    [0xc4] = {ANY, ONE, 0, 0},
    [0xc6] = {ANY, ONE, 0, 0},
    [0xc7] = {ANY, 0, 0, 1 << 1},             /* cmpxchg8b, cmpxchg16b */
    [0xd1 ... 0xe6] = {ANY, 0, 0, 0},
    [0xe7] = {VECTOR_66, 0, true, 0},         /* movntdq */
    [0xe8 ... 0xfe] = {ANY, 0, 0, 0},
};

static const struct shape after_0f_38 = {ANY, 0, 0, 0}, after_0f_3a = {ANY, ONE, 0, 0}, not_known = {NOT_KNOWN, 0, 0, 0};

HERE static const unsigned char *read_prefixes(const unsigned char *at, struct opcode *read)
{
    for (;; at++)
        switch (*at) {
        case 0x66:
            read->narrow = true;
            break;
        case 0xf2:
        case 0xf3:
            read->repeat = *at;
            break;
        case 0xf0: /* lock */
        case 0x2e:
        case 0x3e: /* segments that count for nothing */
            break;
        case 0x26:
        case 0x36:
        case 0x64:
        case 0x65: /* segments */
        case 0x67: /* addresses of 32 bits */
            read->elsewhere = true;
            break;
        default:
            return at;
        }
}

HERE static void read_vex(const unsigned char *at, struct opcode *read)
{
    static const unsigned char repeats[] = {0, 0, 0xf3, 0xf2};
    bool three = *at == 0xc4;
    unsigned last = at[three ? 2 : 1];
    read->encoding = VEX;
    read->map = three ? at[1] & 31 : 1;
    read->narrow = (last & 3) == 1;
    read->repeat = repeats[last & 3];
    read->long_vector = last & 4;
    read->code = at[three ? 3 : 2];
    read->mode = at + (three ? 4 : 3);
}

HERE static void read_legacy(const unsigned char *at, struct opcode *read)
{
    if ((*at & 0xf0) == 0x40)
        read->wide = *at++ & 8;
    if (*at == 0x0f) {
        read->map = at[1] == 0x38 ? 2 : at[1] == 0x3a ? 3 : 1;
        at += read->map == 1 ? 1 : 2;
    }
    read->code = *at;
    read->mode = at + 1;
}

HERE static struct opcode read_opcode(const unsigned char *code)
{
    struct opcode read = {0};
    const unsigned char *at = read_prefixes(code, &read);
    if (*at == 0xc4 || *at == 0xc5) {
        read_vex(at, &read);
    } else if (*at == 0x62) {
        read.encoding = EVEX;
        read.map = at[1] & 7;
        read.code = at[4];
        read.mode = at + 5;
    } else {
        read_legacy(at, &read);
    }
    return read;
}

INLINE unsigned group_of(const struct opcode *read)
{
    return *read->mode >> 3 & 7;
}

/* 0f ae: flushes, and stores of registers. */
HERE static enum touch touch_of_0f_ae(const struct opcode *read)
{
    switch (group_of(read)) {
    case 2:
    case 3: /* ldmxcsr, stmxcsr */
        return TOUCHES;
    case 6: /* clwb, xsaveopt */
        return read->narrow ? ONLY_FLUSHES : TOUCHES_FAR;
    case 7: /* clflush, clflushopt */
        return ONLY_FLUSHES;
    default:
        return TOUCHES_FAR;
    }
}

/* Gathers and scatters, and loads and stores of tiles. */
INLINE bool is_spread(unsigned char code)
{
    return (code >= 0x90 && code <= 0x93) || (code >= 0xa0 && code <= 0xa3) || code == 0xc6 || code == 0xc7 || code == 0x4b ||
           code == 0x49;
}

HERE static enum touch touch_of(const struct opcode *read)
{
    unsigned group = group_of(read);
    if (read->encoding != LEGACY)
        return read->map == 2 && is_spread(read->code) ? TOUCHES_FAR : TOUCHES_AROUND;
    switch (read->map << 8 | read->code) {
    case 0x0dd: /* frstor, fnsave */
        return group == 4 || group == 6 ? TOUCHES_FAR : TOUCHES;
    case 0x1f7: /* maskmovq, maskmovdqu */
        return TOUCHES_AROUND;
    case 0x1c7: /* xrstors, xsavec, xsaves */
        return group >= 3 && group <= 5 ? TOUCHES_FAR : TOUCHES;
    case 0x1ae:
        return touch_of_0f_ae(read);
    case 0x2f8: /* movdir64b */
        return TOUCHES_FAR;
    default:
        return TOUCHES;
    }
}

HERE static const struct shape *shape_of(const struct opcode *read)
{
    if (read->encoding == EVEX || read->elsewhere || read->map > 3)
        return &not_known;
    if (read->map > 1)
        return read->map == 2 ? &after_0f_38 : &after_0f_3a;
    const struct shape *shape = read->map ? &after_0f[read->code] : &one_byte[read->code];
    return shape->only && !(shape->only >> group_of(read) & 1) ? &not_known : shape;
}

HERE static unsigned immediate_bytes(const struct opcode *read, enum immediate kind)
{
    unsigned sized = read->narrow && !read->wide ? 2 : 4;
    bool tests = group_of(read) < 2;
    switch (kind) {
    case ONE:
        return 1;
    case SIZED:
        return sized;
    case ONE_OF_TEST:
        return tests ? 1 : 0;
    case SIZED_OF_TEST:
        return tests ? sized : 0;
    default:
        return 0;
    }
}

/* The byte after ModRM, SIB and displacement; NULL if the operand is a register, or its address depends on where the
 * instruction is. */
HERE static const unsigned char *after_operand(const unsigned char *at)
{
    unsigned mode = *at >> 6, base = *at & 7;
    at++;
    if (mode == 3 || (mode == 0 && base == 5))
        return NULL;
    if (base == 4)
        base = *at++ & 7;
    if (mode == 1)
        return at + 1;
    return mode == 2 || base == 5 ? at + 4 : at;
}

HERE static uint32_t operand_bytes(const struct opcode *read, enum operand operand)
{
    uint32_t vector = read->long_vector ? 32 : 16;
    switch (operand) {
    case BYTE:
        return 1;
    case TWO:
        return 2;
    case FOUR:
        return 4;
    case WORD:
        return read->wide ? 8 : read->narrow ? 2 : 4;
    case VECTOR:
        return vector;
    case SCALAR_OR_VECTOR:
        return read->repeat == 0xf3 ? 4 : read->repeat ? 8 : vector;
    case VECTOR_UNPREFIXED:
        return read->repeat ? 0 : vector;
    case VECTOR_66_F3:
        return read->narrow || read->repeat == 0xf3 ? vector : 0;
    case VECTOR_66:
        return read->narrow ? vector : 0;
    default:
        return 0;
    }
}

HERE static void find_string(const struct opcode *read, struct instruction *found)
{
    bool known = read->code == 0xa4 || read->code == 0xa5 || read->code == 0xa6 || read->code == 0xa7 || read->code == 0xaa ||
                 read->code == 0xab;
    if (read->encoding != LEGACY || read->map || read->elsewhere || !known)
        return;
    found->string = read->code & 0xfe;
    found->string_bytes = operand_bytes(read, read->code & 1 ? WORD : BYTE);
}

HERE struct instruction cc_explore_decode(const unsigned char *code)
{
    struct opcode read = read_opcode(code);
    struct instruction found = {.touch = touch_of(&read)};
    find_string(&read, &found);
    const struct shape *shape = shape_of(&read);
    const unsigned char *end = shape->operand ? after_operand(read.mode) : NULL;
    if (!end)
        return found;
    found.length = (unsigned)(end - code) + immediate_bytes(&read, shape->immediate);
    /* The words of general registers have no prefix f2 or f3 and no VEX form after 0f: there they are other operations. */
    bool general = shape->operand >= BYTE && shape->operand <= WORD;
    if (!(general && read.map && (read.encoding == VEX || read.repeat)))
        found.bytes = operand_bytes(&read, shape->operand);
    found.writes = found.bytes && shape->writes;
    return found;
}
#endif
