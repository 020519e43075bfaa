/* What a program that learns, or is guarded, calls around each access, and the file in which it keeps what it saw: the
 * contract between analyzer/compile/instrument/guarding.py (which emits the calls), runtime/guard (which defines them)
 * and analyzer/concurrency/observations.py (which reads the file).
 *
 * "AI: A Lightweight System for Tolerating Concurrency Bugs" (Zhang et al., FSE 2014), sections 2 and 3.
 *
 * Bump CC_GUARD_VERSION when a signature or a layout below changes. */
#ifndef CRASHCHECK_GUARD_H
#define CRASHCHECK_GUARD_H

#include <stddef.h>
#include <stdint.h>

#define CC_GUARD_VERSION 5u

/* -- Tables in the program: constant data, so that no constructor has to run before the first access ------------------- */

/* A site with its belonging set (AI §2.1). `id` identifies the site in all units and sets; 0 in a set is nil. The set is
 * behind the rest, so that most checks of a site read one line of the cache. */
struct cc_guard_site {
    uint64_t id;
    uint64_t predecessors;       /* in the set; 0: training never ran this code, so it is never stalled */
    uint64_t set[];
};
/* In the id of a site whose code changed since training: an access after it is not judged. */
#define CC_GUARD_CHANGED (1ull << 63)
/* In the id of a site in `sites`, and in no set: which group of settled reads (LearnedSets.settled_reads) it is of; 0: of none. */
#define CC_GUARD_SETTLED (0xffull << 55)

/* One a compiled source. */
struct cc_guard_unit {
    uint64_t key;                /* of its facts; in a training build the id of site i is key + i */
    const void *sites;           /* struct cc_guard_site, one behind the other, then a 0, until the runtime has a table of its
                                    own with as many words of half the size; NULL in a training build */
    const void *facts;           /* what is in the ELF section "crashcheck_facts" */
    uint32_t version;            /* CC_GUARD_VERSION it was compiled for */
    uint32_t met;                /* for the runtime: whether it knows the unit, and what it does for it */
    uint64_t learned;            /* digest of the sets that it is guarded with; 0 in a training build */
};

/* -- Calls -------------------------------------------------------------------------------------------------------------- */

/* Before and after an access to `size` bytes. `site`: in a guarded build where it is in the unit's `sites`, in a training build
 * its number. Nothing between the two calls out, jumps, unwinds or returns. */
void cc_guard_begin(const void *address, uint64_t size, struct cc_guard_unit *unit, uint32_t site);
void cc_guard_end(void);
/* The same as cc_guard_begin, of a settled read. `group`: its CC_GUARD_SETTLED >> 32. */
void cc_guard_begin_settled(const void *address, uint64_t size, struct cc_guard_unit *unit, uint32_t site, uint32_t group);
/* A local begins to live there: what was there before is gone. */
void cc_guard_forget(const void *address, uint64_t size);

/* Whoever accesses the variable at `address` is noted in a training build: crashcheck.h. */
void crashcheck_guard_address(const void *address);
/* What is known of a block's variables is forgotten: crashcheck.h. */
void crashcheck_guard_ends(const void *block, unsigned long bytes);

/* How many threads are stalled at this moment. Tests wait for it; a program need not know of it. */
unsigned crashcheck_guard_stalled(void);

/* -- The file that CRASHCHECK_GUARD="log=FILE" names: the header, the rows, the facts of units -------------------------- */

#define CC_GUARD_MAGIC 0x6472617567434343ull /* "CCCguard" */
#define CC_GUARD_HEADER_BYTES 4096u

struct cc_guard_header {
    uint64_t magic;
    uint32_t version;
    uint32_t rows;               /* how many there is room for */
    uint64_t facts_bytes;        /* how many there is room for */
    uint64_t facts_used;
    uint64_t order;              /* rows that were begun */
    uint64_t rows_lost;          /* kinds of observations for which there was no room */
    uint64_t facts_lost;         /* units for whose facts there was no room */
    uint64_t unseen;             /* accesses that were not observed: no memory for what is known of the variable */
    uint64_t taken_over;         /* locks of variables that were taken from threads that never gave them back */
    uint64_t unforgotten;        /* freed blocks whose size the allocator does not give: their variables live on */
    uint64_t learned;            /* digest of the sets that the first unit was guarded with */
    uint64_t otherwise;          /* units that were guarded with other sets than that */
};

enum cc_guard_kind {
    CC_GUARD_REMOTE = 1,         /* `site` had `before` of another thread, or nil, as its remote predecessor */
    CC_GUARD_SAME_THREAD = 2,    /* `site` followed `before` of the same thread, on a variable of no other thread so far */
    CC_GUARD_VIOLATION = 3,      /* as REMOTE, but not in the belonging set: when it was found, or when the stall was over */
    CC_GUARD_UNTRAINED = 4,      /* `site` was accessed, and training never ran it; `before` is 0 */
    CC_GUARD_ADDRESSED = 5,      /* `site` accessed a variable of crashcheck_guard_address; `before` is 0 */
};

/* An observation and how often it was made. A row counts once `written` is set; equal ones may appear more than once. */
struct cc_guard_row {
    uint32_t claimed;
    uint32_t written;
    uint64_t site;
    uint64_t before;             /* 0: nil */
    uint32_t kind;
    uint32_t thread;             /* that made it first, numbered from 1 */
    uint64_t order;              /* of the row's first observation among those of all rows, from 1 */
    uint64_t count;
    uint32_t resolved;           /* of violations: how often it was found, and another thread's access ended the stall */
    uint32_t unresolved;         /* how often it took place: the longest stall was over, or the guard only observes */
    uint64_t stalled_ns;         /* in all */
};

#endif
