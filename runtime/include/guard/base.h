/* What every part of the guard's runtime may use. It needs no part of the recorder but its raw system calls.
 *
 * The parts, each using only those above it:
 *
 *   rows      observations, in a file that processes share and that a crash leaves whole
 *   shadow    what is known of each variable: its last two accesses by different threads, and who has it now
 *   numbers   ids of sites in half the size, for records and sets
 *   guard     the check before an access, and the stall (the way of nearly all accesses is inline, below and there)
 *   lifetime  memory that ends: free, munmap and what else begins a new life at an old address
 */
#ifndef CRASHCHECK_GUARD_BASE_H
#define CRASHCHECK_GUARD_BASE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#include "guard.h"
#pragma GCC visibility pop
#include "recorder/raw.h"

#define LIKELY(x) __builtin_expect(!!(x), 1)
#define UNLIKELY(x) __builtin_expect(!!(x), 0)
#define HIDDEN __attribute__((visibility("hidden")))
#define TLS_MODEL __attribute__((tls_model("initial-exec")))

/* rows.c */

/* Maps the log at `path`, joining one that is there, or a private table if it is NULL or cannot be made; false if there is
 * no memory. `training`: room for what a whole program shows. */
HIDDEN bool cc_rows_open(const char *path, bool training);
/* The row of an observation, begun by whoever makes it first; NULL if there is no room. */
HIDDEN struct cc_guard_row *cc_row(uint64_t site, uint64_t before, uint32_t kind, uint32_t thread);
/* Of what a row counts: stalls of this process since the last one that was resolved. */
HIDDEN uint8_t *cc_unresolved_in_a_row(const struct cc_guard_row *row);
/* Notes a unit in the log: its facts, and which sets it is guarded with. */
HIDDEN void cc_rows_meet(const struct cc_guard_unit *unit);
extern HIDDEN struct cc_guard_header *cc_log;

/* shadow.c */

/* The last access to a variable, and the last before it by another thread than `thread` (AI §3.2: recorder). */
struct record {
    uint32_t last, previous;     /* numbers; 0: none */
    uint32_t thread : 31;        /* of `last` */
    uint32_t addressed : 1;      /* by crashcheck_guard_address */
};

/* What is known of an aligned word of eight bytes. A variable is a run of bytes that every access so far covered as a whole
 * or not at all: its grain is how many bytes one record is about, 8, 4 or 1; 0 before the first access. */
#define WORD_BYTES 8u
struct word {
    _Atomic uint32_t owner;      /* tid of the thread that has it, from check to access */
    uint32_t parts;              /* the grain, where that is 1 the unit of the arena from which one record a byte is */
    struct record records[2];    /* never in one place with `parts`: an access that lost the word may still write here */
};

/* A chunk holds the words of CHUNK_BYTES of the program's memory. All of this is address space that becomes memory where it is
 * used: for a word of the program that is accessed, 32 bytes. */
#define ADDRESS_BITS 47u
#define CHUNK_BITS 16u
#define CHUNK_BYTES (1ul << CHUNK_BITS)
#define CHUNK_WORDS (CHUNK_BYTES / WORD_BYTES)
#define GROUP_WORDS 128u /* words that are marked as accessed together: a page of them */
struct chunk {
    struct word words[CHUNK_WORDS];
    _Atomic uint64_t accessed[CHUNK_WORDS / GROUP_WORDS / 64]; /* groups */
};
extern HIDDEN struct chunk *_Atomic *cc_chunks; /* by address */
#define ARENA_UNIT 64u
extern HIDDEN char *cc_arena;
/* Zeroed memory that is never given back; NULL if there is none. */
HIDDEN void *cc_allot(uint64_t bytes);
HIDDEN bool cc_is_allotted(const void *memory);

struct thread {
    uint32_t id;                 /* from 1, of no other thread ever; 0 before its first access */
    uint32_t tid;                /* the kernel's, by which it can be seen to have ended */
    struct word *held;
    uint64_t in_vain_ns;         /* when its last stall was over */
    uint32_t in_vain;            /* stalls one soon after the other that were not resolved */
};
extern HIDDEN __thread struct thread cc_self TLS_MODEL;

HIDDEN bool cc_shadow_open(void);
/* Before a thread takes a word: its first access, or a handler in the midst of one, or what follows one that a jump left. */
HIDDEN void cc_ready_thread(void);
HIDDEN void cc_rename_thread(void); /* in a forked child */
HIDDEN struct word *cc_find_word(uintptr_t address, bool make); /* cc_word, however long it takes */
HIDDEN bool cc_split(struct word *word, unsigned grain); /* into variables of that size at most; false: no memory */
HIDDEN void cc_wait_for(struct word *word); /* until it is this thread's */
/* Stalled threads, in all; and where one that is stalled at a word waits for its next access, which other words may share. */
extern HIDDEN _Atomic uint32_t cc_stalled;
struct queue {
    _Atomic uint32_t waiting, changes;
};
HIDDEN struct queue *cc_queue(const struct word *word);
HIDDEN void cc_leave_queues(void);          /* in a forked child: by the threads that are not there */
HIDDEN void cc_wake(struct word *word);     /* gives it up, and wakes who is stalled there */
HIDDEN void cc_forget(uintptr_t address, uint64_t size);

/* numbers.c */

/* As CC_GUARD_CHANGED and CC_GUARD_SETTLED, of a number. */
#define CHANGED (1u << 31)
#define SETTLED (0xffu << 23)

/* struct cc_guard_site with numbers: its words are at the places of the other's. Sets are read as many at once as AT_ONCE, also
 * the last ones. */
#define AT_ONCE 4u
struct site {
    uint32_t number, predecessors;
    uint32_t set[];
};

HIDDEN bool cc_numbers_open(void);
/* The number of an id, the same in the whole process; 0 is the one of 0. */
HIDDEN uint32_t cc_number(uint64_t id);
HIDDEN uint64_t cc_id(uint32_t number);
/* Replaces the table of a guarded unit by one of numbers; false: no memory. */
HIDDEN bool cc_number_sites(struct cc_guard_unit *unit);

/* The word at an address; NULL if there is no memory for it, or `make` is false and it was never accessed. */
static inline struct word *cc_word(uintptr_t address, bool make)
{
    struct chunk *chunk = address >> ADDRESS_BITS ? NULL : atomic_load_explicit(&cc_chunks[address >> CHUNK_BITS], memory_order_acquire);
    struct word *word = chunk ? &chunk->words[address % CHUNK_BYTES / WORD_BYTES] : NULL;
    return LIKELY(word && word->parts) ? word : cc_find_word(address, make);
}

static inline unsigned cc_grain(const struct word *word)
{
    uint32_t parts = __atomic_load_n(&word->parts, __ATOMIC_ACQUIRE);
    return LIKELY(parts <= WORD_BYTES) ? parts : 1;
}

/* Of a word: its first record, where one is about `grain` bytes. */
static inline struct record *cc_first(const struct word *word, unsigned grain)
{
    return grain == 1 ? (struct record *)(cc_arena + (uint64_t)word->parts * ARENA_UNIT) : (struct record *)word->records;
}

/* Of a word that is held: the records of `size` bytes from `offset`, and how many there are; NULL if there is no memory. */
static inline struct record *cc_records(struct word *word, unsigned offset, unsigned size, unsigned *count)
{
    unsigned grain = size == WORD_BYTES ? WORD_BYTES : (offset | size) % 4 == 0 ? 4 : 1;
    unsigned known = cc_grain(word);
    if (UNLIKELY(!known || known > grain)) {
        if (!cc_split(word, grain))
            return NULL;
        known = grain;
    }
    *count = size / known;
    return cc_first(word, known) + offset / known;
}

/* Has the word to itself until cc_give, if no other thread has it; a thread has one word at a time. */
static inline bool cc_try(struct word *word)
{
    uint32_t owner = 0;
    cc_self.held = word; /* before it is: a signal handler gives it up */
    bool taken = atomic_compare_exchange_strong_explicit(&word->owner, &owner, cc_self.tid, memory_order_acquire,
                                                         memory_order_relaxed);
    cc_self.held = word; /* and after it is: a handler that ran before gave up nothing */
    return taken;
}

/* The same, however long it takes. */
static inline void cc_take(struct word *word)
{
    if (UNLIKELY(!cc_try(word))) {
        cc_wait_for(word);
        cc_self.held = word;
    }
}

static inline void cc_give(struct word *word)
{
    cc_self.held = NULL;
    if (UNLIKELY(atomic_load_explicit(&word->owner, memory_order_relaxed) != cc_self.tid))
        return; /* a handler gave it up, or it was taken over */
    if (UNLIKELY(atomic_load_explicit(&cc_stalled, memory_order_relaxed) != 0))
        cc_wake(word);
    else
        atomic_store_explicit(&word->owner, 0, memory_order_release);
}

#endif
