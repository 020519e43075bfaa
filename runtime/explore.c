/* Runs a check on many crash images at once, each of which may hold other bytes in some granules (explore.h).
 *
 * The pages of those granules are closed. An instruction that touches one, whoever's it is, faults; where it reads bytes
 * that differ between the contents that the granule may still have, the process forks: a child for each content of
 * those bytes. What comes after depends on nothing but the memory, the registers, what system calls did, and the bytes
 * that are not known yet. So a process that is about to read in a state in which another was before ends at once: it
 * would do the same. Bytes that are never read, or written first, decide nothing.
 *
 * Writes to shared mappings stay in the process (the mappings are made private), and so do its output and its places in
 * files. A system call that would carry anything from one process to another, or read the granules, ends it all.
 *
 * Everything here lies in a section of its own: only system calls from there do what they say at once. */
#ifdef CC_SHARED
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/futex.h>
#include <linux/seccomp.h>
#include <link.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <ucontext.h>

#include "explore.h"
#include "internal.h"

#define HERE __attribute__((section("cc_explore"), noinline))
#define INLINE static inline __attribute__((always_inline))
#define WIDEST 64ul            /* bytes that one access touches at most */
#define MAPPINGS 16u
#define OPENED 8u
#define BIT(bits, at) ((bits)[(at) / 64] >> ((at) % 64) & 1)
#define SET_BIT(bits, at) ((bits)[(at) / 64] |= 1ull << ((at) % 64))
#define PLACES 64u             /* files whose position is kept */
#define OUTPUT_ROOM (4ul << 20)
#define STACK_BYTES (256ul << 10)
#define TEXT_ROOM (64ul << 10) /* of /proc/self/maps */
#define RED_ZONE 128ul
#define TRAP_FLAG 0x100l
#define RESUME_FLAG 0x10000l
#define MOST_CONTENTS 1024u
#define NO_PLACE UINT64_MAX

extern const char __start_cc_explore[], __stop_cc_explore[];
/* Where the kernel says on which processor a thread runs; libc has it since 2.35. */
extern const ptrdiff_t __rseq_offset __attribute__((weak));

struct mapping {
    uintptr_t start, end;      /* of what the file has bytes for */
    uint64_t offset, device, inode;
    int protection;
    bool gone;
};

struct kernel_action {
    void (*handler)(int, siginfo_t *, void *);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

struct excluded {
    uintptr_t start, end;
};

/* None of this counts as the process's state, but for `history`. */
static struct cc_explore_table *table;
static struct cc_explore_granule *granules;
/* Of each granule: which of its contents it may still have, which of its bytes are known (in memory: read, written, or the
 * same in all of those), and how many are not. */
static struct granule_state {
    uint64_t alive[MOST_CONTENTS / 64], known[PAGE / 64];
    uint32_t unknown;
} state_of[CC_EXPLORE_GRANULES];
static struct mapping mappings[MAPPINGS];
static uint32_t mapped;
static uintptr_t opened[OPENED]; /* pages, for one instruction */
static const struct mapping *opened_in[OPENED];
static uint32_t opens;
static uint64_t places[PLACES];
static uint64_t history[2];
static char *output, *maps_text;
static uint64_t output_bytes;
static uintptr_t alternate;
/* Where an instruction is executed while its page is open; and what cc_explore_after goes by. */
static unsigned char *apart;
static uintptr_t displaced;
HIDDEN uintptr_t cc_explore_resume, cc_explore_kept, cc_explore_stack;
HIDDEN void cc_explore_after(void);
static struct excluded ours[6];
static uint32_t vector_at[8], vector_bytes[8];
static uint32_t first_process;

/* ending ------------------------------------------------------------------------------------------- */

HERE __attribute__((noreturn)) static void leave(void)
{
    for (;;)
        raw3(SYS_exit_group, 0, 0, 0);
}

HERE __attribute__((noreturn)) static void refuse(uint32_t why, uint32_t detail)
{
    uint32_t none = CC_EXPLORE_NOT_REFUSED;
    if (__atomic_compare_exchange_n(&table->refusal, &none, why, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        __atomic_store_n(&table->detail, detail, __ATOMIC_RELAXED);
    leave();
}

INLINE void first_is_done(void)
{
    if ((uint32_t)raw3(SYS_getpid, 0, 0, 0) == first_process && !__atomic_load_n(&table->refusal, __ATOMIC_RELAXED))
        __atomic_store_n(&table->done, 1, __ATOMIC_RELAXED);
}

/* One process runs at a time, so that nothing here needs a lock. */
HERE __attribute__((noreturn)) static void ends(int32_t status)
{
    if (table->ends >= table->end_room)
        refuse(CC_EXPLORE_ROOM, 1);
    if (table->output_used + output_bytes > table->output_end)
        refuse(CC_EXPLORE_ROOM, 2);
    struct cc_explore_end *end = (struct cc_explore_end *)(void *)((char *)table + table->first_end) + table->ends;
    end->status = status;
    end->output = table->output_used;
    end->output_bytes = (uint32_t)output_bytes;
    raw_move((char *)table + table->output_used, output, output_bytes);
    table->output_used += output_bytes;
    for (uint32_t i = 0; i < table->granules; i++) {
        uint32_t first = 0, alive = 0;
        for (uint32_t which = granules[i].choices; which-- > 0;)
            if (BIT(state_of[i].alive, which)) {
                first = which;
                alive++;
            }
        end->choice[i] = alive == granules[i].choices ? UINT16_MAX : (uint16_t)first;
    }
    table->ends++;
    first_is_done();
    leave();
}

/* the state of a process --------------------------------------------------------------------------- */

INLINE void stir(uint64_t hash[2], uint64_t word)
{
    uint64_t one = hash[0] ^ word, two = hash[1] + word;
    hash[0] = (one << 29 | one >> 35) * 0x9e3779b97f4a7c15ull + 0xc2b2ae3d27d4eb4full;
    two = (two ^ two >> 32) * 0xd6e8feb86659fd93ull;
    hash[1] = two << 23 | two >> 41;
}

HERE static void stir_bytes(uint64_t hash[2], const void *from, size_t size)
{
    const unsigned char *bytes = from;
    uint64_t both[2] = {hash[0], hash[1]};
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
        uint64_t word;
        __builtin_memcpy(&word, bytes + at, 8);
        stir(both, word);
    }
    uint64_t rest = size - at;
    for (; at < size; at++)
        rest = rest << 8 | bytes[at];
    stir(both, rest);
    hash[0] = both[0];
    hash[1] = both[1];
}

/* Memory but for what is ours. */
HERE static void stir_range(uint64_t hash[2], uintptr_t start, uintptr_t end)
{
    while (start < end) {
        uintptr_t until = end, next = end;
        for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
            if (ours[i].end <= start || ours[i].start >= until)
                continue;
            until = ours[i].start > start ? ours[i].start : start;
            next = ours[i].end < end ? ours[i].end : end;
        }
        if (until > start) {
            stir(hash, start);
            stir(hash, until);
            stir_bytes(hash, (const void *)start, until - start);
        }
        start = next;
    }
}

INLINE uintptr_t address_of(const struct mapping *in, const struct cc_explore_granule *granule)
{
    if (in->gone || in->device != granule->device || in->inode != granule->inode)
        return 0;
    if (granule->offset < in->offset || granule->offset - in->offset >= in->end - in->start)
        return 0;
    return in->start + (granule->offset - in->offset);
}

INLINE bool is_open(const struct mapping *in, uintptr_t page)
{
    for (uint32_t i = 0; i < table->granules; i++) {
        uintptr_t at = state_of[i].unknown ? address_of(in, &granules[i]) : 0;
        if (at && at < page + PAGE && at + granules[i].length > page)
            return false;
    }
    return true;
}

/* Closes the pages of a mapping that hold something untouched, and opens the others. */
HERE static void close_pages(const struct mapping *in)
{
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), in->protection);
    for (uint32_t i = 0; i < table->granules; i++) {
        uintptr_t at = address_of(in, &granules[i]);
        if (!at || !state_of[i].unknown)
            continue;
        uintptr_t first = at & ~(PAGE - 1), last = (at + granules[i].length - 1) & ~(PAGE - 1);
        raw3(SYS_mprotect, (long)first, (long)(last - first + PAGE), PROT_NONE);
    }
}

HERE static void stir_mapping(uint64_t hash[2], const struct mapping *in)
{
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), PROT_READ | PROT_WRITE);
    uintptr_t from = in->start;
    for (uint32_t i = 0; i < table->granules; i++) {
        uintptr_t at = address_of(in, &granules[i]);
        if (!at || !state_of[i].unknown)
            continue;
        stir_bytes(hash, (const void *)from, at - from);
        from = at + granules[i].length;
        for (uint32_t byte = 0; byte < granules[i].length; byte++)
            stir(hash, BIT(state_of[i].known, byte) ? *(const unsigned char *)(at + byte) : 256);
        for (uint32_t word = 0; word < (granules[i].choices + 63) / 64; word++)
            stir(hash, state_of[i].alive[word]);
    }
    stir_bytes(hash, (const void *)from, in->end - from);
    close_pages(in);
}

INLINE const char *hexadecimal(const char *text, uintptr_t *value)
{
    *value = 0;
    for (;; text++) {
        char digit = *text;
        if (digit >= '0' && digit <= '9')
            *value = *value << 4 | (uintptr_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f')
            *value = *value << 4 | (uintptr_t)(digit - 'a' + 10);
        else
            return text;
    }
}

/* All memory that may differ from what it was when the process began, and which memory there is. */
HERE static void stir_memory(uint64_t hash[2], uintptr_t stack)
{
    long fd = raw3(SYS_open, (long)"/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (raw_failed(fd))
        refuse(CC_EXPLORE_SETUP, 1);
    size_t size = 0;
    for (;;) {
        long part = raw3(SYS_read, fd, (long)(maps_text + size), (long)(TEXT_ROOM - size - 1));
        if (raw_failed(part) || size + (size_t)part >= TEXT_ROOM - 1)
            refuse(CC_EXPLORE_ROOM, 3);
        if (!part)
            break;
        size += (size_t)part;
    }
    raw3(SYS_close, fd, 0, 0);
    maps_text[size] = 0;
    for (const char *line = maps_text; *line;) {
        uintptr_t start, end;
        const char *at = hexadecimal(line, &start);
        at = hexadecimal(at + 1, &end);
        const char *flags = at + 1; /* "rw-p 00000000 00:00 0    name" */
        at = flags + 5;
        for (int spaces = 0; spaces < 3 && *at && *at != '\n'; at++)
            spaces += *at == ' ';
        while (*at == ' ')
            at++;
        bool named = *at == '/', special = *at == '[' && at[1] == 'v';
        while (*at && *at != '\n')
            at++;
        line = *at ? at + 1 : at;
        if (flags[0] != 'r' || special || (flags[1] != 'w' && named))
            continue;
        bool known = false;
        for (uint32_t i = 0; i < mapped && !known; i++)
            known = !mappings[i].gone && start < mappings[i].end && mappings[i].start < end;
        if (known)
            continue;
        if (start <= stack && stack < end)
            start = stack - RED_ZONE > start ? stack - RED_ZONE : start;
        stir_range(hash, start, end);
    }
    for (uint32_t i = 0; i < mapped; i++)
        if (!mappings[i].gone)
            stir_mapping(hash, &mappings[i]);
}

/* Vector registers as the signal frame has them; what is in its initial state counts as zero. */
HERE static void stir_vectors(uint64_t hash[2], const unsigned char *state)
{
    uint32_t magic;
    uint64_t features = 3;
    raw_move(&magic, state + 464, sizeof magic);
    bool extended = magic == 0x46505853u;
    if (extended)
        raw_move(&features, state + 512, sizeof features);
    stir(hash, features & ~(1ull << 9)); /* without the protection keys */
    if (features & 1)
        stir_bytes(hash, state, 24);
    stir_bytes(hash, state + 24, 4); /* MXCSR */
    if (features & 1)
        stir_bytes(hash, state + 32, 128);
    if (features & 2)
        stir_bytes(hash, state + 160, 256);
    if (!extended)
        return;
    for (uint32_t feature = 2; feature < 8; feature++)
        if (features >> feature & 1)
            stir_bytes(hash, state + vector_at[feature], vector_bytes[feature]);
    if (features >> 10) /* tiles */
        refuse(CC_EXPLORE_INSTRUCTION, 0);
}

HERE static void hash_state(uint64_t hash[2], const ucontext_t *context, uint32_t granule)
{
    const greg_t *registers = context->uc_mcontext.gregs;
    hash[0] = history[0];
    hash[1] = history[1];
    stir(hash, granule);
    for (int i = REG_R8; i <= REG_RIP; i++)
        stir(hash, (uint64_t)registers[i]);
    stir(hash, (uint64_t)(registers[REG_EFL] & ~(TRAP_FLAG | RESUME_FLAG)));
    stir_bytes(hash, places, sizeof places);
    stir_bytes(hash, &context->uc_sigmask, 8);
    stir_vectors(hash, (const unsigned char *)context->uc_mcontext.fpregs);
    stir_memory(hash, (uintptr_t)registers[REG_RSP]);
    if (!hash[0] && !hash[1])
        hash[0] = 1;
}

/* Whether a process was in this state before; if not, now one was. */
HERE static bool met(const uint64_t hash[2])
{
    struct cc_explore_node *nodes = (struct cc_explore_node *)(void *)((char *)table + table->first_node);
    for (uint32_t slot = (uint32_t)hash[0] % table->node_room;; slot = (slot + 1) % table->node_room) {
        if (nodes[slot].hash[0] == hash[0] && nodes[slot].hash[1] == hash[1])
            return true;
        if (nodes[slot].hash[0] || nodes[slot].hash[1])
            continue;
        if (table->nodes >= table->node_room / 2)
            refuse(CC_EXPLORE_ROOM, 4);
        nodes[slot].hash[0] = hash[0];
        nodes[slot].hash[1] = hash[1];
        table->nodes++;
        return false;
    }
}

INLINE const unsigned char *content_of(const struct cc_explore_granule *granule, uint32_t which)
{
    return (const unsigned char *)table + granule->contents + (uint64_t)which * granule->length;
}

/* Bytes that all contents agree on are known. Those of `from`, a content, are put into memory where `at` is not NULL. */
HERE static void learn(uint32_t number, unsigned char *at, uint32_t from)
{
    const struct cc_explore_granule *granule = &granules[number];
    struct granule_state *now = &state_of[number];
    now->unknown = 0;
    for (uint32_t byte = 0; byte < granule->length; byte++) {
        if (BIT(now->known, byte))
            continue;
        unsigned char value = content_of(granule, from)[byte];
        bool same = true;
        for (uint32_t which = 0; which < granule->choices && same; which++)
            same = !BIT(now->alive, which) || content_of(granule, which)[byte] == value;
        if (!same) {
            now->unknown++;
            continue;
        }
        SET_BIT(now->known, byte);
        if (at)
            at[byte] = value;
    }
}

/* Whether two contents agree where bytes from `low` to `high` are not known. */
HERE static bool agree(uint32_t number, uint32_t one, uint32_t two, uint32_t low, uint32_t high)
{
    const unsigned char *left = content_of(&granules[number], one), *right = content_of(&granules[number], two);
    for (uint32_t byte = low; byte < high; byte++)
        if (!BIT(state_of[number].known, byte) && left[byte] != right[byte])
            return false;
    return true;
}

/* Keeps the contents that agree with one of them. */
HERE static void settle(const struct mapping *in, uint32_t number, uint32_t with, uint32_t low, uint32_t high)
{
    struct granule_state *now = &state_of[number];
    for (uint32_t which = 0; which < granules[number].choices; which++)
        if (BIT(now->alive, which) && !agree(number, with, which, low, high))
            now->alive[which / 64] &= ~(1ull << which % 64);
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), PROT_READ | PROT_WRITE);
    learn(number, (unsigned char *)address_of(in, &granules[number]), with);
    close_pages(in);
}

/* Before bytes of a granule are read: returns in children alone, in each with other bytes there. */
HERE static void decide(const ucontext_t *context, const struct mapping *in, uint32_t number, uint32_t low, uint32_t high)
{
    const struct cc_explore_granule *granule = &granules[number];
    uint64_t seen[MOST_CONTENTS / 64];
    raw_fill(seen, 0, sizeof seen);
    uint64_t hash[2];
    hash_state(hash, context, number);
    stir(hash, (uint64_t)low << 32 | high);
    if (met(hash)) {
        table->merged++;
        first_is_done();
        leave();
    }
    for (uint32_t which = 0; which < granule->choices; which++) {
        if (!BIT(state_of[number].alive, which) || BIT(seen, which))
            continue;
        for (uint32_t other = which; other < granule->choices; other++)
            if (BIT(state_of[number].alive, other) && agree(number, which, other, low, high))
                SET_BIT(seen, other);
        long child = raw6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
        if (raw_failed(child))
            refuse(CC_EXPLORE_SETUP, 2);
        if (!child) {
            settle(in, number, which, low, high);
            return;
        }
        int status = 0;
        long ended;
        do
            ended = raw4(SYS_wait4, child, (long)&status, 0, 0);
        while (ended == -EINTR);
        if (ended != child || status)
            refuse(CC_EXPLORE_DIED, (uint32_t)status);
        if (__atomic_load_n(&table->refusal, __ATOMIC_RELAXED))
            leave();
    }
    first_is_done();
    leave();
}

/* Memory from `start` to `end` is about to be read, or written whatever it was. */
HERE static void accesses(const ucontext_t *context, const struct mapping *in, uintptr_t start, uintptr_t end, bool writes)
{
    for (uint32_t i = 0; i < table->granules; i++) {
        uintptr_t at = state_of[i].unknown ? address_of(in, &granules[i]) : 0;
        if (!at || at >= end || at + granules[i].length <= start)
            continue;
        if (!granules[i].choices)
            refuse(CC_EXPLORE_UNLISTED, i);
        uint32_t low = start > at ? (uint32_t)(start - at) : 0;
        uint32_t high = end - at < granules[i].length ? (uint32_t)(end - at) : granules[i].length;
        bool differs = false;
        for (uint32_t byte = low; byte < high; byte++) {
            differs |= !BIT(state_of[i].known, byte);
            if (writes && !BIT(state_of[i].known, byte)) {
                SET_BIT(state_of[i].known, byte);
                state_of[i].unknown--;
            }
        }
        if (differs && !writes)
            decide(context, in, i, low, high);
    }
}

/* touching a granule ------------------------------------------------------------------------------- */

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
        refuse(CC_EXPLORE_INSTRUCTION, 0);
    if (kind == ONLY_FLUSHES)
        return;
    if (string) {
        uintptr_t from = (uintptr_t)registers[REG_RSI], to = (uintptr_t)registers[REG_RDI];
        for (uint32_t i = 0; i < mapped; i++) {
            if (!mappings[i].gone && operation != 0xaa)
                accesses(context, &mappings[i], from, from + string, false);
            if (!mappings[i].gone && operation == 0xa6)
                accesses(context, &mappings[i], to, to + string, false);
        }
        for (uint32_t i = 0; i < mapped; i++)
            if (!mappings[i].gone && operation != 0xa6)
                accesses(context, &mappings[i], to, to + string, true);
        return;
    }
    struct access one = length_of(code) ? access_of(code) : (struct access){0, false};
    if (one.bytes) {
        /* The fault is at its first byte, or at the first on the second of two pages: then nobody knows how many are there. */
        bool sure = one.bytes == 1 || address & (PAGE - 1);
        accesses(context, in, sure ? address : address - one.bytes + 1, address + one.bytes, sure && one.writes);
    } else {
        accesses(context, in, kind == TOUCHES_AROUND ? address - WIDEST + 1 : address, address + WIDEST, false);
    }
}

HERE static void touched(int number, siginfo_t *info, void *given)
{
    ucontext_t *context = given;
    uintptr_t address = (uintptr_t)info->si_addr, page = address & ~(PAGE - 1);
    greg_t *next = &context->uc_mcontext.gregs[REG_RIP];
    if (*next == (greg_t)apart)
        *next = (greg_t)displaced;
    struct mapping *in = NULL;
    for (uint32_t i = 0; i < mapped; i++)
        if (!mappings[i].gone && address >= mappings[i].start && address < mappings[i].end)
            in = &mappings[i];
    bool closed = in && !is_open(in, page);
    for (uint32_t i = 0; i < opens; i++)
        closed &= opened[i] != page;
    if (!closed || number != SIGSEGV)
        ends(number);
    foresee(context, in, address);
    if (opens == OPENED)
        refuse(CC_EXPLORE_INSTRUCTION, 0);
    opened_in[opens] = in;
    opened[opens++] = page;
    for (uint32_t i = 0; i < opens; i++) /* a decision closed those of before */
        raw3(SYS_mprotect, (long)opened[i], PAGE, opened_in[i]->protection);
    unsigned length = length_of((const unsigned char *)*next);
    if (!length) {
        context->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
        return;
    }
    /* A trap after each instruction is slow, more so in a virtual machine: a copy of it goes on to cc_explore_after. */
    static const unsigned char jump[] = {0xff, 0x25, 0, 0, 0, 0};
    uintptr_t target = (uintptr_t)cc_explore_after;
    raw_move(apart, (const void *)*next, length);
    raw_move(apart + length, jump, sizeof jump);
    raw_move(apart + length + sizeof jump, &target, sizeof target);
    displaced = (uintptr_t)*next;
    cc_explore_resume = displaced + length;
    *next = (greg_t)apart;
    context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
}

HIDDEN void cc_explore_close(void);
HERE void cc_explore_close(void)
{
    for (; opens; opens--)
        if (!is_open(opened_in[opens - 1], opened[opens - 1]))
            raw3(SYS_mprotect, (long)opened[opens - 1], PAGE, PROT_NONE);
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
HERE static void stepped(int number, siginfo_t *info, void *given)
{
    (void)info;
    ucontext_t *context = given;
    if (!opens)
        ends(number);
    context->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    cc_explore_close();
}

/* system calls ------------------------------------------------------------------------------------- */

INLINE bool lies_in_file(uintptr_t start, size_t size)
{
    for (uint32_t i = 0; i < mapped; i++)
        if (!mappings[i].gone && start + size > mappings[i].start && start < mappings[i].end)
            return true;
    return false;
}

INLINE bool is_mapped(uintptr_t address)
{
    return lies_in_file(address, 1);
}

/* Whether a descriptor's file is one whose granules are open, or is mapped: then its bytes are not in the file. */
HERE static bool is_ours(long fd)
{
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)))
        return false;
    for (uint32_t i = 0; i < table->granules; i++)
        if (granules[i].device == state.st_dev && granules[i].inode == state.st_ino)
            return true;
    for (uint32_t i = 0; i < mapped; i++)
        if (mappings[i].device == state.st_dev && mappings[i].inode == state.st_ino)
            return true;
    return false;
}

HERE static long read_at_place(long number, const long *a)
{
    if (is_ours(a[0]))
        refuse(CC_EXPLORE_FILE_READ, (uint32_t)number);
    if (number == SYS_pread64)
        return raw4(SYS_pread64, a[0], a[1], a[2], a[3]);
    if (a[0] < 0 || a[0] >= PLACES)
        refuse(CC_EXPLORE_CALL, (uint32_t)number);
    uint64_t *place = &places[a[0]];
    if (*place == NO_PLACE) {
        long now = raw3(SYS_lseek, a[0], 0, SEEK_CUR);
        if (raw_failed(now))
            refuse(CC_EXPLORE_CALL, (uint32_t)number);
        *place = (uint64_t)now;
    }
    long got = raw4(SYS_pread64, a[0], a[1], a[2], (long)*place);
    if (got > 0)
        *place += (uint64_t)got;
    return got;
}

HERE static long seek(const long *a)
{
    struct stat state;
    if (a[0] < 0 || a[0] >= PLACES)
        refuse(CC_EXPLORE_CALL, SYS_lseek);
    long now = raw3(SYS_lseek, a[0], 0, SEEK_CUR);
    if (raw_failed(now))
        return now;
    if (places[a[0]] == NO_PLACE)
        places[a[0]] = (uint64_t)now;
    long base = a[2] == SEEK_SET ? 0 : (long)places[a[0]];
    if (a[2] == SEEK_END && !raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0)))
        base = state.st_size;
    else if (a[2] != SEEK_SET && a[2] != SEEK_CUR)
        refuse(CC_EXPLORE_CALL, SYS_lseek);
    if (base + a[1] < 0)
        return -EINVAL;
    places[a[0]] = (uint64_t)(base + a[1]);
    return base + a[1];
}

HERE static long prints(long number, long fd, const void *from, size_t size)
{
    if (fd != 1 && fd != 2)
        refuse(is_ours(fd) ? CC_EXPLORE_FILE_READ : CC_EXPLORE_CALL, (uint32_t)number);
    if (lies_in_file((uintptr_t)from, size))
        refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    stir(history, (uint64_t)fd);
    stir_bytes(history, from, size);
    if (fd == 2 && table->apart)
        return (long)size;
    if (output_bytes + size > OUTPUT_ROOM)
        refuse(CC_EXPLORE_ROOM, 2);
    raw_move(output + output_bytes, from, size);
    output_bytes += size;
    return (long)size;
}

HERE static long maps(const long *a)
{
    long flags = a[3];
    bool anonymous = flags & MAP_ANONYMOUS, shared = (flags & MAP_TYPE) != MAP_PRIVATE;
    bool fixed = flags & MAP_FIXED;
    if (fixed)
        for (uint32_t i = 0; i < mapped; i++)
            if (!mappings[i].gone && (uintptr_t)a[0] < mappings[i].end && (uintptr_t)(a[0] + a[1]) > mappings[i].start)
                refuse(CC_EXPLORE_MAPPED_AGAIN, SYS_mmap);
    if (shared)
        flags = (flags & ~(MAP_TYPE | MAP_SYNC)) | MAP_PRIVATE;
    bool known = !anonymous && is_ours(a[4]);
    long result = raw6(SYS_mmap, a[0], a[1], a[2], flags, a[4], a[5]);
    if (raw_failed(result) || anonymous || !(shared || known))
        return result;
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, a[4], (long)&state, 0)))
        refuse(CC_EXPLORE_SETUP, 3);
    for (uint32_t i = 0; i < mapped; i++)
        if (mappings[i].device == state.st_dev && mappings[i].inode == state.st_ino)
            refuse(CC_EXPLORE_MAPPED_AGAIN, SYS_mmap);
    if (!known && !(a[2] & PROT_WRITE))
        return result; /* of a file that nobody changes */
    if (mapped == MAPPINGS)
        refuse(CC_EXPLORE_ROOM, 5);
    uint64_t there = (uint64_t)state.st_size > (uint64_t)a[5] ? (uint64_t)state.st_size - (uint64_t)a[5] : 0;
    uint64_t size = there < (uint64_t)a[1] ? there : (uint64_t)a[1];
    struct mapping *in = &mappings[mapped++];
    in->start = (uintptr_t)result;
    in->end = in->start + ((size + PAGE - 1) & ~(PAGE - 1));
    in->offset = (uint64_t)a[5];
    in->device = state.st_dev;
    in->inode = state.st_ino;
    in->protection = (int)a[2];
    in->gone = false;
    close_pages(in);
    return result;
}

HERE static long unmaps(const long *a)
{
    for (uint32_t i = 0; i < mapped; i++) {
        struct mapping *in = &mappings[i];
        if (in->gone || (uintptr_t)a[0] >= in->end || (uintptr_t)(a[0] + a[1]) <= in->start)
            continue;
        if ((uintptr_t)a[0] > in->start || (uintptr_t)(a[0] + a[1]) < in->end)
            refuse(CC_EXPLORE_MAPPED_AGAIN, SYS_munmap);
        in->gone = true;
    }
    return raw3(SYS_munmap, a[0], a[1], 0);
}

HERE static long opens_file(long number, const long *a)
{
    const long *rest = number == SYS_openat ? a + 1 : a;
    long folder = number == SYS_openat ? a[0] : AT_FDCWD;
    if (rest[1] & (O_TRUNC | __O_TMPFILE))
        refuse(CC_EXPLORE_FILE_READ, (uint32_t)number);
    if ((rest[1] & O_CREAT) && raw_failed(raw4(SYS_faccessat, folder, rest[0], 0, 0)))
        refuse(CC_EXPLORE_CALL, (uint32_t)number);
    const char *path = (const char *)rest[0];
    stir_bytes(history, path, raw_length(path));
    long fd = raw4(SYS_openat, folder, rest[0], rest[1], rest[2]);
    if (fd >= 0 && fd < (long)PLACES)
        places[fd] = NO_PLACE;
    return fd;
}

HERE static long resizes(const long *a)
{
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, a[0], (long)&state, 0)) || state.st_size != a[1])
        refuse(CC_EXPLORE_FILE_READ, SYS_ftruncate);
    return 0;
}

HERE static long masks(ucontext_t *context, const long *a)
{
    uint64_t *mask = (uint64_t *)(void *)&context->uc_sigmask;
    if (a[2])
        raw_move((void *)a[2], mask, sizeof *mask);
    if (!a[1])
        return 0;
    uint64_t given;
    raw_move(&given, (const void *)a[1], sizeof given);
    uint64_t now = a[0] == SIG_BLOCK ? *mask | given : a[0] == SIG_UNBLOCK ? *mask & ~given : given;
    *mask = now & ~(1ull << (SIGSEGV - 1) | 1ull << (SIGTRAP - 1) | 1ull << (SIGSYS - 1));
    return 0;
}

/* How many arguments a call has that may be addresses; 0: it is not followed. Of these nothing but results is seen. */
HERE static unsigned arguments_of(long number)
{
    switch (number) {
    case SYS_close: case SYS_brk: case SYS_fsync: case SYS_fdatasync: case SYS_flock: case SYS_getuid: case SYS_geteuid:
    case SYS_getgid: case SYS_getegid: case SYS_sched_yield: case SYS_uname: case SYS_sysinfo: case SYS_set_tid_address:
        return 1;
    case SYS_fstat: case SYS_stat: case SYS_lstat: case SYS_access: case SYS_getcwd: case SYS_nanosleep: case SYS_statfs:
    case SYS_fstatfs: case SYS_gettimeofday: case SYS_clock_gettime: case SYS_clock_getres: case SYS_set_robust_list:
    case SYS_getrlimit:
        return 2;
    case SYS_readlink: case SYS_getrandom: case SYS_madvise: case SYS_sched_getaffinity: case SYS_faccessat:
        return 3;
    case SYS_newfstatat: case SYS_readlinkat: case SYS_clock_nanosleep: case SYS_fadvise64:
        return 4;
    case SYS_statx:
        return 5;
    default:
        return 0;
    }
}

HERE static long performs(ucontext_t *context, long number, const long *a)
{
    uint32_t plain = (uint32_t)number;
    switch (number) {
    case SYS_exit:
    case SYS_exit_group:
        ends((int32_t)(a[0] & 0xff) << 8);
    case SYS_read:
    case SYS_pread64:
        if (lies_in_file((uintptr_t)a[1], (size_t)a[2]))
            refuse(CC_EXPLORE_PASSED, plain);
        return read_at_place(number, a);
    case SYS_lseek:
        return seek(a);
    case SYS_write:
        return prints(number, a[0], (const void *)a[1], (size_t)a[2]);
    case SYS_writev: {
        const struct iovec *parts = (const struct iovec *)a[1];
        long all = 0;
        if (lies_in_file((uintptr_t)a[1], (size_t)a[2] * sizeof *parts))
            refuse(CC_EXPLORE_PASSED, plain);
        for (long i = 0; i < a[2]; i++)
            all += prints(number, a[0], parts[i].iov_base, parts[i].iov_len);
        return all;
    }
    case SYS_open:
    case SYS_openat:
        if (is_mapped((uintptr_t)a[number == SYS_openat]))
            refuse(CC_EXPLORE_PASSED, plain);
        return opens_file(number, a);
    case SYS_mmap:
        return maps(a);
    case SYS_munmap:
        return unmaps(a);
    case SYS_msync:
        return raw3(SYS_msync, a[0], a[1], a[2]);
    case SYS_mprotect:
        if (!(a[2] & PROT_WRITE) || is_mapped((uintptr_t)a[0]) || is_mapped((uintptr_t)(a[0] + a[1] - 1)))
            refuse(CC_EXPLORE_CALL, plain);
        return raw3(SYS_mprotect, a[0], a[1], a[2]);
    case SYS_mremap:
        if (is_mapped((uintptr_t)a[0]) || (a[3] & MREMAP_FIXED))
            refuse(CC_EXPLORE_CALL, plain);
        return raw6(SYS_mremap, a[0], a[1], a[2], a[3], 0, 0);
    case SYS_ftruncate:
        return resizes(a);
    case SYS_getpid:
    case SYS_gettid:
        return first_process;
    case SYS_kill:
    case SYS_tkill:
    case SYS_tgkill:
        if (number == SYS_tgkill ? a[1] == first_process : a[0] == first_process)
            ends((int32_t)a[number == SYS_tgkill ? 2 : 1]);
        refuse(CC_EXPLORE_CALL, plain);
    case SYS_rt_sigprocmask:
        return masks(context, a);
    case SYS_rt_sigaction:
        if (a[1] && ((const struct kernel_action *)a[1])->handler)
            refuse(CC_EXPLORE_CALL, plain);
        return a[1] ? 0 : raw4(SYS_rt_sigaction, a[0], a[1], a[2], a[3]);
    case SYS_prlimit64:
        if (a[2])
            refuse(CC_EXPLORE_CALL, plain);
        return raw4(SYS_prlimit64, a[0], a[1], 0, a[3]);
    case SYS_futex:
        if ((a[1] & FUTEX_CMD_MASK) != FUTEX_WAKE)
            refuse(CC_EXPLORE_CALL, plain);
        return 0; /* there is nobody else */
    case SYS_ioctl:
        if (a[1] != TCGETS)
            refuse(CC_EXPLORE_CALL, plain);
        return raw3(SYS_ioctl, a[0], a[1], a[2]);
    case SYS_fcntl:
        if (a[1] != F_GETFD && a[1] != F_SETFD && a[1] != F_GETFL)
            refuse(CC_EXPLORE_CALL, plain);
        return raw3(SYS_fcntl, a[0], a[1], a[2]);
    default: {
        unsigned arguments = arguments_of(number);
        if (!arguments)
            refuse(CC_EXPLORE_CALL, plain);
        for (unsigned i = 0; i < arguments; i++)
            if (is_mapped((uintptr_t)a[i]))
                refuse(CC_EXPLORE_PASSED, plain);
        return raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    }
    }
}

HERE static void asked(int number, siginfo_t *info, void *given)
{
    (void)number;
    ucontext_t *context = given;
    greg_t *registers = context->uc_mcontext.gregs;
    long arguments[6] = {registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                         registers[REG_R10], registers[REG_R8],  registers[REG_R9]};
    long result = performs(context, info->si_syscall, arguments);
    stir(history, (uint64_t)info->si_syscall);
    for (int i = 0; i < 6; i++)
        stir(history, (uint64_t)arguments[i]);
    stir(history, (uint64_t)result);
    if (result == -EFAULT) /* perhaps of a closed page */
        refuse(CC_EXPLORE_PASSED, (uint32_t)info->si_syscall);
    registers[REG_RAX] = result;
}

/* beginning ---------------------------------------------------------------------------------------- */

__asm__(".pushsection cc_explore,\"ax\",@progbits\n"
        ".type cc_explore_return,@function\n"
        "cc_explore_return: mov $15, %eax\n syscall\n"
        ".size cc_explore_return, .-cc_explore_return\n"
        ".popsection\n");
HIDDEN void cc_explore_return(void);

HERE static void handle(int number, void (*handler)(int, siginfo_t *, void *))
{
    struct kernel_action action = {handler, SA_SIGINFO | SA_ONSTACK | SA_NODEFER | 0x04000000 /* SA_RESTORER */,
                                   cc_explore_return, 0};
    if (raw_failed(raw4(SYS_rt_sigaction, number, (long)&action, 0, sizeof action.mask)))
        refuse(CC_EXPLORE_SETUP, 4);
}

HERE static void *memory(size_t size, int protection)
{
    long result = raw6(SYS_mmap, 0, (long)size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw_failed(result))
        refuse(CC_EXPLORE_SETUP, 5);
    return (void *)result;
}

/* This library's own data, and its part of the thread's. */
static int find_ours(struct dl_phdr_info *module, size_t size, void *unused)
{
    (void)size;
    (void)unused;
    bool mine = false;
    uintptr_t low = UINTPTR_MAX, high = 0, local = 0;
    for (int i = 0; i < module->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &module->dlpi_phdr[i];
        uintptr_t start = module->dlpi_addr + header->p_vaddr, end = start + header->p_memsz;
        if (header->p_type == PT_TLS)
            local = header->p_memsz;
        if (header->p_type != PT_LOAD)
            continue;
        mine |= (uintptr_t)&table >= start && (uintptr_t)&table < end;
        if (header->p_flags & PF_W) {
            low = start < low ? start : low;
            high = end > high ? end : high;
        }
    }
    if (!mine)
        return 0;
    ours[0].start = low;
    ours[0].end = high;
    ours[1].start = (uintptr_t)module->dlpi_tls_data;
    ours[1].end = ours[1].start + (module->dlpi_tls_data ? local : 0);
    return 1;
}

static struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, 6),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 4),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer)),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 0, 0, 2),
    BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, 0, 1, 0),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
};

/* From now on a system call from elsewhere comes by `asked`. */
HERE static void filter_calls(void)
{
    uint64_t first = (uintptr_t)__start_cc_explore, last = (uintptr_t)__stop_cc_explore;
    filter[3].k = (uint32_t)(first >> 32);
    filter[5].k = (uint32_t)first;
    filter[6].k = (uint32_t)last;
    if (filter[3].k != (uint32_t)(last >> 32))
        refuse(CC_EXPLORE_SETUP, 6);
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (raw_failed(raw6(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0)) ||
        raw_failed(raw6(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, (long)&program, 0, 0, 0)))
        refuse(CC_EXPLORE_SETUP, 7);
}

/* `path`: of the table. */
HERE void cc_explore_start(const char *path)
{
    struct stat state;
    long fd = raw3(SYS_open, (long)path, O_RDWR | O_CLOEXEC, 0);
    if (raw_failed(fd) || raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)))
        leave();
    long at = raw6(SYS_mmap, 0, state.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    raw3(SYS_close, fd, 0, 0);
    if (raw_failed(at))
        leave();
    table = (struct cc_explore_table *)at;
    if (table->magic != CC_EXPLORE_MAGIC || table->version != CC_EXPLORE_VERSION ||
        table->granules > CC_EXPLORE_GRANULES || table->bytes != (uint64_t)state.st_size)
        leave();
    granules = (struct cc_explore_granule *)(void *)((char *)table + table->first_granule);
    for (uint32_t i = 0; i < table->granules; i++) {
        if (granules[i].choices > MOST_CONTENTS || granules[i].length > PAGE)
            leave();
        for (uint32_t which = 0; which < granules[i].choices; which++)
            SET_BIT(state_of[i].alive, which);
        if (granules[i].choices)
            learn(i, NULL, 0);
        else
            state_of[i].unknown = granules[i].length;
    }
    raw_fill(places, 0xff, sizeof places);
    first_process = (uint32_t)raw3(SYS_getpid, 0, 0, 0);
    output = memory(OUTPUT_ROOM + TEXT_ROOM + 2 * STACK_BYTES, PROT_READ | PROT_WRITE);
    maps_text = output + OUTPUT_ROOM;
    alternate = (uintptr_t)maps_text + TEXT_ROOM;
    ours[2].start = (uintptr_t)output;
    ours[2].end = alternate + 2 * STACK_BYTES;
    cc_explore_stack = ours[2].end;
    apart = memory(PAGE, PROT_READ | PROT_WRITE | PROT_EXEC);
    ours[5].start = (uintptr_t)apart;
    ours[5].end = ours[5].start + PAGE;
    dl_iterate_phdr(find_ours, NULL);
    if (!ours[0].end)
        refuse(CC_EXPLORE_SETUP, 8);
    if (&__rseq_offset) {
        ours[3].start = (uintptr_t)__builtin_thread_pointer() + (uintptr_t)__rseq_offset;
        ours[3].end = ours[3].start + 32;
    }
    ours[4].start = (uintptr_t)table;
    ours[4].end = ours[4].start + table->bytes;
    for (uint32_t feature = 2; feature < 8; feature++) {
        uint32_t unused, more;
        __asm__ volatile("cpuid"
                         : "=a"(vector_bytes[feature]), "=b"(vector_at[feature]), "=c"(unused), "=d"(more)
                         : "a"(0xd), "c"(feature));
    }
    if (table->memory_bytes) {
        uint64_t limit[2] = {table->memory_bytes + table->bytes + OUTPUT_ROOM + TEXT_ROOM + 2 * STACK_BYTES + PAGE, 0};
        limit[1] = limit[0];
        raw4(SYS_prlimit64, 0, RLIMIT_AS, (long)limit, 0);
    }
    stack_t stack = {.ss_sp = (void *)alternate, .ss_flags = 0, .ss_size = STACK_BYTES};
    if (raw_failed(raw3(SYS_sigaltstack, (long)&stack, 0, 0)))
        refuse(CC_EXPLORE_SETUP, 9);
    handle(SIGSEGV, touched);
    handle(SIGBUS, touched);
    handle(SIGFPE, touched);
    handle(SIGILL, touched);
    handle(SIGTRAP, stepped);
    handle(SIGSYS, asked);
    filter_calls();
}
#else
typedef int cc_explore_is_for_the_shared_library;
#endif
