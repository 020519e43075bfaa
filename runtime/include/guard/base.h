/* What every part of the guard's runtime may use. It needs no part of the recorder but its raw system calls.
 *
 * The parts, each using only those above it:
 *
 *   rows      observations, in a file that processes share and that a crash leaves whole
 *   shadow    what is known of each variable: its last two accesses by different threads, and who has it now
 *   guard     the check before an access, and the stall
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
/* Copies the unit's facts to the log, once. */
HIDDEN void cc_rows_meet(struct cc_guard_unit *unit);
extern HIDDEN struct cc_guard_header *cc_log;

/* shadow.c */

/* The last access to a variable, and the last before it by another thread than `thread` (AI §3.2: recorder). */
struct record {
    uint64_t last, previous;     /* ids; 0: none */
    uint32_t thread;             /* of `last` */
    uint32_t reserved;
};

/* What is known of an aligned word of eight bytes. A variable is a run of bytes that every access so far covered as a whole
 * or not at all: `grain` is how many bytes one record is about, 8, 4 or 1; 0 before the first access. */
#define WORD_BYTES 8u
struct word {
    _Atomic uint32_t owner;      /* tid of the thread that has it, from check to access */
    _Atomic uint32_t waiting;    /* stalled threads */
    _Atomic uint32_t changes;    /* what they wait for */
    uint32_t grain;
    union {
        struct record records[2];
        struct record *bytes;    /* one a byte, where grain is 1 */
    };
};

HIDDEN bool cc_shadow_open(void);
/* The word at an address; NULL if there is no memory for it, or `make` is false and it was never accessed. */
HIDDEN struct word *cc_word(uintptr_t address, bool make);
/* Of a word that is held: the records of `size` bytes from `offset`, and how many there are; NULL if there is no memory. */
HIDDEN struct record *cc_records(struct word *word, unsigned offset, unsigned size, unsigned *count);
/* Has the word to itself until cc_give; a thread has one word at a time. */
HIDDEN void cc_take(struct word *word);
HIDDEN void cc_give(struct word *word);
HIDDEN void cc_forget(uintptr_t address, uint64_t size);

struct thread {
    uint32_t id;                 /* from 1, of no other thread ever; 0 before its first access */
    uint32_t tid;                /* the kernel's, by which it can be seen to have ended */
    struct word *held;
};
extern HIDDEN __thread struct thread cc_self TLS_MODEL;

#endif
