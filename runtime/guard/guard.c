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
#include <emmintrin.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>

#include "guard/base.h"

/* Measured: docs/guard.md. */
#define STALL_US 500u
#define MOST_STALLS 200u

static struct {
    uint64_t stall_ns;           /* one look to the next */
    uint64_t most_ns;            /* AI: threshold */
    bool observes;               /* logs, and never stalls */
    bool learns;                 /* a log was named: where a training build writes what it saw */
    uint64_t seed;               /* 0: training does not hold threads up */
} option;

/* cc_guard_unit.met: what is done before an access of a unit. */
enum { UNKNOWN, GUARDED, LEARNING, IGNORED };

static _Atomic uint32_t state; /* of the runtime */
enum { UNSTARTED, STARTING, READY, FAILED };
static __thread bool is_starting TLS_MODEL; /* this thread starts the runtime */

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

/* "stall=MICROSECONDS,most=NUMBER,observe,perturb=SEED,log=FILE"; the path ends the list. The path, or NULL. */
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
        else if (option_is(&text, "perturb="))
            option.seed = raw_number(&text);
        else if (option_is(&text, "log="))
            path = text;
        else
            break;
        if (!path && *text == ',')
            text++;
    }
    if (text && *text && !path)
        report("crashcheck guard: CRASHCHECK_GUARD is not stall=MICROSECONDS,most=NUMBER,observe,perturb=SEED,log=FILE\n");
    option.stall_ns = stall_us * 1000;
    option.most_ns = option.stall_ns * most;
    return path;
}

static void forked(void)
{
    if (atomic_load(&state) == STARTING && !is_starting) /* by a thread that is not there */
        atomic_store(&state, UNSTARTED);
    cc_rename_thread();
    cc_leave_queues();
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forked);
}

static bool start(bool training)
{
    uint32_t now = UNSTARTED;
    if (!atomic_compare_exchange_strong(&state, &now, STARTING)) {
        /* An access that ran unguarded meanwhile could be the bug. Only a handler in the midst of this cannot wait. */
        while (now == STARTING && !is_starting) {
            raw3(SYS_sched_yield, 0, 0, 0);
            now = atomic_load(&state);
        }
        return now == READY;
    }
    is_starting = true;
    const char *path = read_options(secure_getenv("CRASHCHECK_GUARD"));
    option.learns = path != NULL;
    bool works = cc_shadow_open() && cc_numbers_open();
    if (!works)
        report("crashcheck guard: no address space; the program runs unguarded\n");
    else if (!cc_rows_open(path, training)) {
        works = cc_log != NULL;
        report(works ? "crashcheck guard: the log cannot be written; nothing is logged\n"
                  : "crashcheck guard: no memory; the program runs unguarded\n");
        option.learns = false;
    }
    atomic_store(&state, works ? READY : FAILED);
    is_starting = false;
    return works;
}

unsigned crashcheck_guard_stalled(void)
{
    return atomic_load(&cc_stalled);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

/* AI §2.1. Whether the last access was of this thread differs as much as what it was, so nothing branches on it. */
static inline uint32_t remote_predecessor(const struct record *record)
{
    uint32_t same = -(uint32_t)(record->thread == cc_self.id);
    return record->last ^ ((record->last ^ record->previous) & same);
}

static inline void update(struct record *record, uint32_t number)
{
    record->previous = remote_predecessor(record);
    record->thread = cc_self.id;
    record->last = number;
}

/* Which of a set it is differs from one access to the next: to branch on each would be mispredicted once an access. What is read
 * behind the set is not judged. */
static inline bool is_expected(const struct site *site, uint32_t before)
{
    const __m128i wanted = _mm_set1_epi32((int)(before & ~SETTLED));
    for (uint32_t at = 0; at < site->predecessors; at += AT_ONCE) {
        __m128i some = _mm_loadu_si128((const __m128i *)&site->set[at]);
        int found = _mm_movemask_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(some, wanted)));
        if (LIKELY(found && (uint32_t)__builtin_ctz((unsigned)found) < site->predecessors - at))
            return true;
    }
    return (before & CHANGED) != 0;
}

/* The record whose remote predecessor violates the invariant of `site`; NULL if none does. */
static inline struct record *violating(const struct site *site, struct record *records, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (UNLIKELY(!is_expected(site, remote_predecessor(&records[i]))))
            return &records[i];
    return NULL;
}

#define MOST_HALVINGS 16u
#define FUTEX_WAIT_PRIVATE 128

/* Gives the word up until it is accessed, or for as long as one look may take. */
static void wait_for_change(struct word *word)
{
    struct timespec time = {(time_t)(option.stall_ns / 1000000000u), (long)(option.stall_ns % 1000000000u)};
    struct queue *queue = cc_queue(word);
    atomic_fetch_add(&cc_stalled, 1);
    atomic_fetch_add_explicit(&queue->waiting, 1, memory_order_relaxed);
    uint32_t seen = atomic_load_explicit(&queue->changes, memory_order_relaxed);
    cc_self.held = NULL;
    atomic_store_explicit(&word->owner, 0, memory_order_release);
    raw4(SYS_futex, (long)&queue->changes, FUTEX_WAIT_PRIVATE, seen, (long)&time);
    atomic_fetch_sub_explicit(&queue->waiting, 1, memory_order_relaxed);
    atomic_fetch_sub(&cc_stalled, 1);
    cc_take(word);
}

static bool is_repeated(const struct record *records, unsigned number)
{
    for (unsigned i = 0; i < number; i++)
        if (remote_predecessor(&records[i]) == remote_predecessor(&records[number]))
            return true;
    return false;
}

static struct cc_guard_row *row_of(uint32_t site, uint32_t before, uint32_t kind)
{
    return cc_row(cc_id(site), cc_id(before), kind, cc_self.id);
}

/* Violations that take place: after each predecessor that the variables of the access have by now. `found` was counted. */
static void note_unresolved(const struct site *site, const struct record *records, unsigned count, uint32_t found,
                            uint64_t waited)
{
    for (unsigned i = 0; i < count; i++) {
        uint32_t before = remote_predecessor(&records[i]);
        if (is_expected(site, before) || is_repeated(records, i))
            continue;
        struct cc_guard_row *row = row_of(site->number, before, CC_GUARD_VIOLATION);
        if (!row)
            continue;
        if (before != found)
            __atomic_fetch_add(&row->count, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&row->unresolved, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&row->stalled_ns, waited, __ATOMIC_RELAXED);
        waited = 0;
    }
}

/* How long a thread may be stalled for an observation: half as long after each that was not resolved, and all again after
 * one that was. So what training did not show costs little however often it happens. The same holds for a thread's stalls
 * one soon after the other: behind an order that no run showed, few are one that some run did. At least one look is taken. */
static uint64_t patience_ns(const struct cc_guard_row *row, uint64_t now)
{
    if (now - cc_self.in_vain_ns > option.most_ns)
        cc_self.in_vain = 0;
    uint64_t patience = option.most_ns >> cc_self.in_vain;
    return row ? patience >> __atomic_load_n(cc_unresolved_in_a_row(row), __ATOMIC_RELAXED) : patience;
}

static void learn_patience(const struct cc_guard_row *row, bool resolved, uint64_t now)
{
    uint8_t *unresolved_in_a_row = row ? cc_unresolved_in_a_row(row) : NULL;
    cc_self.in_vain_ns = now;
    cc_self.in_vain = resolved ? 0 : cc_self.in_vain + (cc_self.in_vain < MOST_HALVINGS);
    if (row && resolved)
        __atomic_store_n(unresolved_in_a_row, 0, __ATOMIC_RELAXED);
    else if (row && __atomic_load_n(unresolved_in_a_row, __ATOMIC_RELAXED) < MOST_HALVINGS)
        __atomic_fetch_add(unresolved_in_a_row, 1, __ATOMIC_RELAXED);
}

/* Whether the process has no other thread: then nobody can resolve a stall, as in a forked child. False if it is not known. */
static bool is_alone(void)
{
    struct stat tasks; /* a folder for each thread, and "." and ".." */
    return !raw_failed(raw4(SYS_newfstatat, AT_FDCWD, (long)"/proc/self/task", (long)&tasks, 0)) && tasks.st_nlink == 3;
}

/* The loop of algorithm 1. `violation` is in the word, which is held before and after. */
static struct record *stall(const struct site *site, struct word *word, unsigned offset, unsigned size,
                            struct record *violation, unsigned *count)
{
    uint32_t found = remote_predecessor(violation);
    struct cc_guard_row *row = row_of(site->number, found, CC_GUARD_VIOLATION);
    uint64_t begun = now_ns(), waited = 0, most_ns = option.observes ? 0 : patience_ns(row, begun);
    struct record *records = cc_records(word, offset, size, count);
    if (row)
        __atomic_fetch_add(&row->count, 1, __ATOMIC_RELAXED);
    while (violation && waited < most_ns && !is_alone()) {
        wait_for_change(word);
        waited = now_ns() - begun;
        /* Another thread may have split the variable. */
        records = cc_records(word, offset, size, count);
        violation = records ? violating(site, records, *count) : NULL;
    }
    if (waited)
        learn_patience(row, !violation, begun + waited);
    if (violation) {
        note_unresolved(site, records, *count, found, waited);
    } else if (row) {
        __atomic_fetch_add(&row->resolved, 1, __ATOMIC_RELAXED);
        __atomic_fetch_add(&row->stalled_ns, waited, __ATOMIC_RELAXED);
    }
    return records;
}

static void count(uint32_t site, uint32_t before, uint32_t kind)
{
    struct cc_guard_row *row = row_of(site, before, kind);
    if (LIKELY(row != NULL))
        __atomic_fetch_add(&row->count, 1, __ATOMIC_RELAXED);
}

static void learn(uint32_t number, const struct record *record)
{
    uint32_t before = remote_predecessor(record);
    count(number, before, CC_GUARD_REMOTE);
    if (UNLIKELY(!before && record->last && record->last != number))
        count(number, record->last, CC_GUARD_SAME_THREAD);
    if (UNLIKELY(record->addressed))
        count(number, 0, CC_GUARD_ADDRESSED);
}

/* Of each thread the seed chooses a sixteenth of the sites. There it is held up for 16 us to 33 ms, at the first visit, the
 * second, the fourth and so on: what runs rarely is held up as often as what is hot, and a run of any length takes little
 * longer. Its first access counts as a site, too. Visits are counted in few counters, so that sites may share one. */
#define FIRST_ACCESS 0u
#define SITES_OF_ONE 16u
#define SHORTEST_HOLD_NS 16384u
#define HOLD_DOUBLINGS 12u
#define VISIT_COUNTERS 4096u

static uint64_t scrambled(uint64_t value)
{
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9ull;
    value = (value ^ value >> 27) * 0x94d049bb133111ebull;
    return value ^ value >> 31;
}

/* In training, before an access: holds the thread up now and then, as a stall of the guard would, so that the runs show
 * orders that the scheduler alone shows once in thousands. */
static void perturb(uint64_t id)
{
    static _Atomic uint32_t visits[VISIT_COUNTERS];
    uint64_t chosen = scrambled(id ^ scrambled(option.seed + cc_self.id));
    if (chosen % SITES_OF_ONE)
        return;
    uint32_t visit = atomic_fetch_add_explicit(&visits[chosen / SITES_OF_ONE % VISIT_COUNTERS], 1, memory_order_relaxed) + 1;
    if (visit & (visit - 1))
        return;
    struct timespec hold = {0, (long)(SHORTEST_HOLD_NS << scrambled(chosen + visit) % HOLD_DOUBLINGS)};
    atomic_fetch_add(&cc_stalled, 1);
    raw3(SYS_nanosleep, (long)&hold, 0, 0);
    atomic_fetch_sub(&cc_stalled, 1);
}

/* Checks and records an access to `size` bytes from `offset` of a word, which stays held. `site`: NULL in training. */
static void access_word(const struct site *site, uint32_t number, struct word *word, unsigned offset, unsigned size)
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
            learn(number, &record[i]);
    } else if (LIKELY(site->predecessors)) {
        violation = violating(site, record, records);
        if (UNLIKELY(violation != NULL))
            record = stall(site, word, offset, size, violation, &records);
    }
    for (unsigned i = 0; record && i < records; i++)
        update(&record[i], number);
}

/* Whether the last access to each variable of a word was one of this thread at this site, and to be expected. Then another one
 * changes nothing of what is known. The word is not held: what another thread does to it meanwhile may be before or after. */
static inline bool is_known(const struct site *site, const struct word *word)
{
    unsigned grain = cc_grain(word);
    if (UNLIKELY(!grain))
        return false;
    const struct record *records = cc_first(word, grain);
    for (unsigned i = 0; i < WORD_BYTES / grain; i++)
        if (records[i].thread != cc_self.id || records[i].last != site->number || !is_expected(site, records[i].previous))
            return false;
    return true;
}

static inline const struct site *site_at(const struct cc_guard_unit *unit, uint32_t place)
{
    return (const struct site *)((const uint32_t *)unit->sites + place);
}

/* What to do for a unit that was not seen before, or that nothing is done for at this moment. */
static uint32_t meet(struct cc_guard_unit *unit)
{
    if (unit->met == IGNORED)
        return IGNORED;
    if (unit->version != CC_GUARD_VERSION) {
        if (__atomic_exchange_n(&unit->met, IGNORED, __ATOMIC_RELAXED) != IGNORED)
            report("crashcheck guard: code that was compiled for another version of the guard runs unguarded\n");
        return IGNORED;
    }
    if (atomic_load_explicit(&state, memory_order_acquire) != READY && !start(!unit->sites)) {
        if (atomic_load_explicit(&state, memory_order_relaxed) == FAILED)
            __atomic_store_n(&unit->met, IGNORED, __ATOMIC_RELAXED);
        return IGNORED; /* in a handler while the runtime starts, at this moment */
    }
    uint32_t met = option.learns ? LEARNING : IGNORED;
    if (unit->sites)
        met = cc_number_sites(unit) ? GUARDED : IGNORED;
    if (__atomic_exchange_n(&unit->met, met, __ATOMIC_RELEASE) != met)
        cc_rows_meet(unit);
    return met;
}

/* Any access, to any number of words. */
static __attribute__((noinline)) void begin(uintptr_t at, uint64_t size, struct cc_guard_unit *unit, uint32_t index)
{
    uint32_t met = unit->met == UNKNOWN || unit->met == IGNORED ? meet(unit) : unit->met;
    if (met == IGNORED)
        return;
    bool is_first = !cc_self.tid;
    cc_ready_thread();
    const struct site *site = met == GUARDED ? site_at(unit, index) : NULL;
    uint32_t number = site ? site->number : cc_number(unit->key + index);
    if (UNLIKELY(!site && option.seed)) {
        if (UNLIKELY(is_first))
            perturb(FIRST_ACCESS);
        perturb(unit->key + index);
    }
    if (UNLIKELY(site && !site->predecessors && size)) /* a fill of no bytes is no access */
        count(number, 0, CC_GUARD_UNTRAINED);
    uintptr_t end = at + size;
    while (at < end) {
        unsigned offset = at % WORD_BYTES;
        unsigned part = end - at < WORD_BYTES - offset ? (unsigned)(end - at) : WORD_BYTES - offset;
        struct word *word = cc_word(at, true);
        at += part;
        if (LIKELY(word != NULL)) {
            if (part == WORD_BYTES && part != size && site && site->predecessors && is_known(site, word))
                continue;
            access_word(site, number, word, offset, part);
            if (UNLIKELY(part != size))
                cc_give(word);
        } else {
            __atomic_fetch_add(&cc_log->unseen, 1, __ATOMIC_RELAXED);
        }
    }
}

/* Of a word whose grain is `size`: the record of the variable at an address. */
static inline struct record *record_of(const struct word *word, uintptr_t at, unsigned size)
{
    return cc_first(word, size) + (size == 1 ? at % WORD_BYTES : at % WORD_BYTES / 4);
}

/* Checks and records an access to a variable of `size` bytes in one short way: if it was accessed before, the thread has no
 * word, nobody else has this one, and training knows the site. False: nothing was done, but the thread may have the word,
 * which `begin` gives up. It calls nothing, so that it needs no frame. */
static inline __attribute__((always_inline)) bool begin_short(uintptr_t at, uint64_t size, const struct site *site)
{
    if (UNLIKELY(cc_self.held || !cc_self.tid || !site->predecessors))
        return false;
    if (UNLIKELY((size != 8 && size != 4 && size != 1) || at & (size - 1) || at >> ADDRESS_BITS))
        return false;
    struct chunk *chunk = atomic_load_explicit(&cc_chunks[at >> CHUNK_BITS], memory_order_acquire);
    if (UNLIKELY(!chunk))
        return false;
    struct word *word = &chunk->words[at % CHUNK_BYTES / WORD_BYTES];
    if (UNLIKELY(!cc_try(word) || cc_grain(word) != size))
        return false;
    struct record *record = record_of(word, at, (unsigned)size);
    if (UNLIKELY(!is_expected(site, remote_predecessor(record))))
        return false;
    update(record, site->number);
    return true;
}

void cc_guard_begin(const void *address, uint64_t size, struct cc_guard_unit *unit, uint32_t index)
{
    uintptr_t at = (uintptr_t)address;
    if (LIKELY(__atomic_load_n(&unit->met, __ATOMIC_ACQUIRE) == GUARDED)) {
        if (LIKELY(begin_short(at, size, site_at(unit, index))))
            return;
    }
    begin(at, size, unit, index);
}

static inline bool is_of(uint32_t number, uint32_t group)
{
    return !((number ^ group) & SETTLED);
}

static __attribute__((noinline)) bool is_settled_alone(const struct site *site, const struct record *record)
{
    return record->thread == cc_self.id && is_expected(site, record->previous);
}

static inline bool is_settled(const struct record *record, const struct cc_guard_unit *unit, uint32_t index, uint32_t group)
{
    return LIKELY(is_of(record->last, group)) &&
           (LIKELY(is_of(record->previous, group)) || is_settled_alone(site_at(unit, index), record));
}

/* All settled reads of a group may follow each other, and a write is a violation after any of them. So one that follows those of
 * two threads, or those of this thread alone and what it may follow, changes no verdict: it needs neither
 * the word nor the record, which stay in the caches of all threads that read. */
void cc_guard_begin_settled(const void *address, uint64_t size, struct cc_guard_unit *unit, uint32_t index, uint32_t group)
{
    uintptr_t at = (uintptr_t)address;
    bool is_in_word = size - 1 < WORD_BYTES - at % WORD_BYTES;
    if (LIKELY(__atomic_load_n(&unit->met, __ATOMIC_ACQUIRE) == GUARDED && is_in_word && !(at >> ADDRESS_BITS))) {
        struct chunk *chunk = atomic_load_explicit(&cc_chunks[at >> CHUNK_BITS], memory_order_acquire);
        struct word *word = chunk ? &chunk->words[at % CHUNK_BYTES / WORD_BYTES] : NULL;
        unsigned grain = word ? cc_grain(word) : 0;
        if (LIKELY(grain && !((at | size) & (grain - 1)))) {
            const struct record *record = record_of(word, at, grain);
            for (uint64_t left = size; is_settled(record, unit, index, group); record++)
                if (LIKELY(!(left -= grain)))
                    return;
        }
    }
    cc_guard_begin(address, size, unit, index);
}

void cc_guard_end(void)
{
    struct word *word = cc_self.held;
    if (LIKELY(word != NULL))
        cc_give(word);
}

void crashcheck_guard_address(const void *address)
{
    uintptr_t at = (uintptr_t)address;
    struct word *word = option.learns ? cc_word(at, true) : NULL;
    if (!word)
        return;
    cc_ready_thread();
    cc_take(word);
    if (!word->parts)
        word->parts = WORD_BYTES; /* each part that is accessed later has the mark */
    unsigned grain = cc_grain(word);
    struct record *record = cc_first(word, grain) + at % WORD_BYTES / grain;
    record->addressed = 1;
    if (record->last) /* who was there before, as far as that is known */
        count(record->last, 0, CC_GUARD_ADDRESSED);
    if (record->previous)
        count(record->previous, 0, CC_GUARD_ADDRESSED);
    cc_give(word);
}
