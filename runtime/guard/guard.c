/* The check before an access to a shared variable, and the stall (AI §3.2, algorithm 1): a thread waits just before an access
 * whose remote predecessor no passing run showed, until another thread's access makes it one that was seen, or the longest
 * stall is over.
 *
 * For a variable inside an aligned word, the check, the record and the access are one step: the thread has the word from
 * cc_guard_begin to cc_guard_end, and gives it up while it is stalled. Of an access to several words (a copy, a fill, a wide
 * vector) each word is checked and recorded in one step, before all of the access: another thread may access it in between. The
 * same is so for an access that a signal interrupts whose handler accesses shared memory itself.
 *
 * In a training build nothing is checked, and the remote predecessor of each access is logged. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "guard/base.h"

/* Measured: docs/guard.md. */
#define STALL_US 500u
#define MOST_STALLS 20u

static struct {
    uint64_t stall_ns;           /* one look to the next */
    uint64_t most_ns;            /* AI: threshold */
    bool observes;               /* logs, and never stalls */
    bool learns;                 /* a log was named: where a training build writes what it saw */
} option;

static _Atomic uint32_t state; /* of the runtime */
enum { UNSTARTED, STARTING, READY, FAILED };
static _Atomic uint32_t threads, stalled;

static void report(const char *text)
{
    raw3(SYS_write, 2, (long)text, (long)raw_length(text));
}

static bool option_is(const char **text, const char *name)
{
    size_t length = raw_length(name);
    if (!raw_same(*text, name, length))
        return false;
    *text += length;
    return true;
}

/* "stall=MICROSECONDS,most=NUMBER,log=FILE,observe"; the path ends the list. The path, or NULL. */
static const char *read_options(const char *text)
{
    uint64_t stall_us = STALL_US, most = MOST_STALLS;
    const char *path = NULL;
    while (text && *text && !path) {
        if (option_is(&text, "stall="))
            stall_us = raw_number(&text);
        else if (option_is(&text, "most="))
            most = raw_number(&text);
        else if (option_is(&text, "observe"))
            option.observes = true;
        else if (option_is(&text, "log="))
            path = text;
        else
            break;
        if (!path && *text == ',')
            text++;
    }
    if (text && *text && !path)
        report("crashcheck guard: CRASHCHECK_GUARD is not stall=MICROSECONDS,most=NUMBER,observe,log=FILE\n");
    option.stall_ns = stall_us * 1000;
    option.most_ns = option.stall_ns * most;
    return path;
}

static uint32_t kernel_id(void)
{
    return (uint32_t)raw3(SYS_gettid, 0, 0, 0);
}

static void forked(void)
{
    if (cc_self.tid)
        cc_self.tid = kernel_id();
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forked);
}

static bool start(bool training)
{
    uint32_t now = UNSTARTED;
    if (!atomic_compare_exchange_strong(&state, &now, STARTING))
        return now == READY; /* while one thread starts it the others run unguarded */
    const char *path = read_options(secure_getenv("CRASHCHECK_GUARD"));
    option.learns = path != NULL;
    bool works = cc_shadow_open();
    if (!works)
        report("crashcheck guard: no address space; the program runs unguarded\n");
    else if (!cc_rows_open(path, training)) {
        works = cc_log != NULL;
        report(works ? "crashcheck guard: the log cannot be written; nothing is logged\n"
                  : "crashcheck guard: no memory; the program runs unguarded\n");
        option.learns = false;
    }
    atomic_store(&state, works ? READY : FAILED);
    return works;
}

unsigned crashcheck_guard_stalled(void)
{
    return atomic_load(&stalled);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* AI §2.1. */
static inline uint64_t remote_predecessor(const struct record *record)
{
    return record->thread != cc_self.id ? record->last : record->previous;
}

static inline void update(struct record *record, uint64_t id)
{
    if (record->thread != cc_self.id) {
        record->previous = record->last;
        record->thread = cc_self.id;
    }
    record->last = id;
}

static bool is_expected(const struct cc_guard_site *site, uint64_t before)
{
    for (uint32_t i = 0; i < site->predecessors; i++)
        if (LIKELY(site->set[i] == before))
            return true;
    return (before & CC_GUARD_CHANGED) != 0;
}

/* The record whose remote predecessor violates the invariant of `site`; NULL if none does. */
static struct record *violating(const struct cc_guard_site *site, struct record *records, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (UNLIKELY(!is_expected(site, remote_predecessor(&records[i]))))
            return &records[i];
    return NULL;
}

#define FUTEX_WAIT_PRIVATE 128

/* Gives the word up until it is accessed, or for as long as one look may take. */
static void wait_for_change(struct word *word)
{
    struct timespec time = {(time_t)(option.stall_ns / 1000000000u), (long)(option.stall_ns % 1000000000u)};
    atomic_fetch_add_explicit(&word->waiting, 1, memory_order_relaxed);
    uint32_t seen = atomic_load_explicit(&word->changes, memory_order_relaxed);
    cc_self.held = NULL;
    atomic_store_explicit(&word->owner, 0, memory_order_release);
    atomic_fetch_add(&stalled, 1);
    raw4(SYS_futex, (long)&word->changes, FUTEX_WAIT_PRIVATE, seen, (long)&time);
    atomic_fetch_sub(&stalled, 1);
    cc_take(word);
    atomic_fetch_sub_explicit(&word->waiting, 1, memory_order_relaxed);
}

/* The loop of algorithm 1. `violation` is in the word, which is held before and after. */
static struct record *stall(const struct cc_guard_site *site, struct word *word, unsigned offset, unsigned size,
                            struct record *violation, unsigned *count)
{
    struct cc_guard_row *row = cc_row(site->id, remote_predecessor(violation), CC_GUARD_VIOLATION, cc_self.id);
    struct record *records = NULL;
    uint64_t begun = now_ns(), waited = 0;
    do {
        if (option.observes || waited >= option.most_ns)
            break;
        wait_for_change(word);
        waited = now_ns() - begun;
        /* Another thread may have split the variable. */
        records = cc_records(word, offset, size, count);
        violation = records ? violating(site, records, *count) : NULL;
    } while (violation);
    if (row) {
        __atomic_fetch_add(&row->count, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(violation ? &row->unresolved : &row->resolved, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&row->stalled_ns, waited, __ATOMIC_RELAXED);
    }
    return cc_records(word, offset, size, count);
}

static void count(uint64_t site, uint64_t before, uint32_t kind)
{
    struct cc_guard_row *row = cc_row(site, before, kind, cc_self.id);
    if (LIKELY(row != NULL))
        __atomic_fetch_add(&row->count, 1, __ATOMIC_RELAXED);
}

static void learn(uint64_t id, const struct record *record)
{
    uint64_t before = remote_predecessor(record);
    count(id, before, CC_GUARD_REMOTE);
    if (UNLIKELY(!before && record->last && record->last != id))
        count(id, record->last, CC_GUARD_SAME_THREAD);
}

/* Checks and records an access to `size` bytes from `offset` of a word, which stays held. */
static void access_word(const struct cc_guard_site *site, uint64_t id, struct word *word, unsigned offset, unsigned size)
{
    unsigned records = 0;
    cc_take(word);
    struct record *record = cc_records(word, offset, size, &records), *violation;
    if (UNLIKELY(!record)) {
        __atomic_fetch_add(&cc_log->unseen, 1, __ATOMIC_RELAXED);
        return;
    }
    if (!site) {
        for (unsigned i = 0; i < records; i++)
            learn(id, &record[i]);
    } else if (LIKELY(site->predecessors)) {
        violation = violating(site, record, records);
        if (UNLIKELY(violation != NULL))
            record = stall(site, word, offset, size, violation, &records);
    }
    for (unsigned i = 0; record && i < records; i++)
        update(&record[i], id);
}

void cc_guard_begin(const void *address, uint64_t size, struct cc_guard_unit *unit, uint32_t index)
{
    const struct cc_guard_site *site = unit->sites ? &unit->sites[index] : NULL;
    if (UNLIKELY(atomic_load_explicit(&state, memory_order_acquire) != READY) && !start(!site))
        return;
    if (UNLIKELY(cc_self.held != NULL)) /* a handler in the midst of an access, or after one that a jump left */
        cc_give(cc_self.held);
    if (UNLIKELY(unit->version != CC_GUARD_VERSION)) {
        if (!__atomic_exchange_n(&unit->met, 1, __ATOMIC_RELAXED))
            report("crashcheck guard: code that was compiled for another version of the guard runs unguarded\n");
        return;
    }
    if (UNLIKELY(!unit->met))
        cc_rows_meet(unit);
    if (UNLIKELY(!cc_self.tid)) {
        cc_self.tid = kernel_id();
        cc_self.id = atomic_fetch_add(&threads, 1) + 1;
    }
    if (!site && !option.learns)
        return;
    uint64_t id = site ? site->id : unit->key + index;
    if (UNLIKELY(site && !site->predecessors))
        count(id, 0, CC_GUARD_UNTRAINED);
    uintptr_t at = (uintptr_t)address, end = at + size;
    while (at < end) {
        unsigned offset = at % WORD_BYTES;
        unsigned part = end - at < WORD_BYTES - offset ? (unsigned)(end - at) : WORD_BYTES - offset;
        struct word *word = cc_word(at, true);
        at += part;
        if (LIKELY(word != NULL)) {
            access_word(site, id, word, offset, part);
            if (UNLIKELY(part != size))
                cc_give(word);
        } else {
            __atomic_fetch_add(&cc_log->unseen, 1, __ATOMIC_RELAXED);
        }
    }
}

void cc_guard_end(void)
{
    struct word *word = cc_self.held;
    if (LIKELY(word != NULL))
        cc_give(word);
}
