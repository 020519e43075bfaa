/* What is known of each variable, found by its address without a search, and who has it at this moment. */
#include <errno.h>
#include <sys/mman.h>
#include <time.h>

#include "guard/base.h"

#define CHUNKS (1ul << (ADDRESS_BITS - CHUNK_BITS))
#define ARENA_BYTES (1ul << 36)

HIDDEN struct chunk *_Atomic *cc_chunks;
HIDDEN char *cc_arena;
#define LEAST_USED (ARENA_UNIT * (WORD_BYTES + 1)) /* struct word: `parts` that is a grain is no place */
static _Atomic uint64_t arena_used = LEAST_USED;

HIDDEN __thread struct thread cc_self TLS_MODEL;
static _Atomic uint32_t threads;

static void *reserve(uint64_t bytes)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    long mapped = raw6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    return raw_failed(mapped) ? NULL : (void *)mapped;
}

bool cc_shadow_open(void)
{
    cc_chunks = reserve(CHUNKS * sizeof *cc_chunks);
    cc_arena = reserve(ARENA_BYTES);
    return cc_chunks && cc_arena;
}

bool cc_is_allotted(const void *memory)
{
    return (uintptr_t)memory - (uintptr_t)cc_arena < ARENA_BYTES;
}

void *cc_allot(uint64_t bytes)
{
    bytes = (bytes + ARENA_UNIT - 1) / ARENA_UNIT * ARENA_UNIT;
    if (atomic_load_explicit(&arena_used, memory_order_relaxed) > ARENA_BYTES - bytes)
        return NULL;
    uint64_t at = atomic_fetch_add_explicit(&arena_used, bytes, memory_order_relaxed);
    return at <= ARENA_BYTES - bytes ? cc_arena + at : NULL;
}

static struct chunk *make_chunk(struct chunk *_Atomic *place)
{
    struct chunk *made = cc_allot(sizeof(struct chunk)), *there = NULL;
    if (!made)
        return NULL;
    /* If another thread was faster, its chunk is the one and this stays unused: nobody waits for anybody. */
    return atomic_compare_exchange_strong(place, &there, made) ? made : there;
}

struct word *cc_find_word(uintptr_t address, bool make)
{
    if (UNLIKELY(address >> ADDRESS_BITS))
        return NULL;
    struct chunk *_Atomic *place = &cc_chunks[address >> CHUNK_BITS];
    struct chunk *chunk = atomic_load_explicit(place, memory_order_acquire);
    if (UNLIKELY(!chunk)) {
        chunk = make ? make_chunk(place) : NULL;
        if (!chunk)
            return NULL;
    }
    unsigned number = (address & (CHUNK_BYTES - 1)) / WORD_BYTES;
    struct word *word = &chunk->words[number];
    if (UNLIKELY(!word->parts && make))
        atomic_fetch_or_explicit(&chunk->accessed[number / GROUP_WORDS / 64], 1ull << number / GROUP_WORDS % 64,
                                 memory_order_relaxed);
    return word;
}

/* Splits the records of a word: each of the new ones was accessed as the one that it comes from. A thread that lost the word
 * to another one, because a signal interrupted it here, may undo what that one split, and no more. */
static bool refine(struct word *word, unsigned grain)
{
    unsigned known = cc_grain(word);
    if (known && known <= grain)
        return true;
    uint32_t parts = grain;
    if (grain == 4) {
        if (known)
            word->records[1] = word->records[0];
    } else {
        struct record *bytes = cc_allot(WORD_BYTES * sizeof *bytes);
        if (!bytes)
            return false;
        for (unsigned byte = 0; known && byte < WORD_BYTES; byte++)
            bytes[byte] = word->records[byte / known];
        parts = (uint32_t)(((char *)bytes - cc_arena) / ARENA_UNIT);
    }
    __atomic_store_n(&word->parts, parts, __ATOMIC_RELEASE);
    return true;
}

bool cc_split(struct word *word, unsigned grain)
{
    if (!word->parts && grain == WORD_BYTES)
        word->parts = grain;
    return word->parts == grain || refine(word, grain);
}

/* Who has a word runs straight on to where it gives it up, unless it ends there, as all threads but one do in a forked child,
 * or a fault or signal jumps out of that: then the word is taken over. */
#define SPINS 64u
#define YIELDS 64u
#define NAPS 5000u       /* at least a second: the owner may wait for a processor that long */
#define NAP_NS 200000
#define LOOK_EVERY 16u /* yields and naps, whether the owner is still there */

static bool is_gone(uint32_t tid)
{
    return raw3(SYS_tgkill, raw3(SYS_getpid, 0, 0, 0), tid, 0) == -ESRCH;
}

void cc_wait_for(struct word *word)
{
    for (uint32_t waited = 0;; waited++) {
        uint32_t owner = 0;
        if (atomic_compare_exchange_strong_explicit(&word->owner, &owner, cc_self.tid, memory_order_acquire,
                                                    memory_order_relaxed) ||
            owner == cc_self.tid)
            return;
        if (waited < SPINS) {
            __builtin_ia32_pause();
        } else if ((waited % LOOK_EVERY == 0 && is_gone(owner)) || waited > SPINS + YIELDS + NAPS) {
            if (atomic_compare_exchange_strong(&word->owner, &owner, cc_self.tid)) {
                __atomic_fetch_add(&cc_log->taken_over, 1, __ATOMIC_RELAXED);
                return;
            }
        } else if (waited < SPINS + YIELDS) {
            raw3(SYS_sched_yield, 0, 0, 0);
        } else {
            struct timespec nap = {0, NAP_NS};
            raw3(SYS_nanosleep, (long)&nap, 0, 0);
        }
    }
}

#define FUTEX_WAKE_PRIVATE 129
#define QUEUES 1024u

HIDDEN _Atomic uint32_t cc_stalled;
static struct queue queues[QUEUES];

struct queue *cc_queue(const struct word *word)
{
    return &queues[(uintptr_t)word / sizeof *word % QUEUES];
}

void cc_leave_queues(void)
{
    atomic_store(&cc_stalled, 0);
    for (unsigned i = 0; i < QUEUES; i++)
        atomic_store_explicit(&queues[i].waiting, 0, memory_order_relaxed);
}

void cc_wake(struct word *word)
{
    struct queue *queue = cc_queue(word);
    bool is_awaited = atomic_load_explicit(&queue->waiting, memory_order_relaxed) != 0;
    if (is_awaited)
        atomic_fetch_add_explicit(&queue->changes, 1, memory_order_relaxed);
    atomic_store_explicit(&word->owner, 0, memory_order_release);
    if (is_awaited)
        raw3(SYS_futex, (long)&queue->changes, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

void cc_rename_thread(void)
{
    if (cc_self.tid)
        cc_self.tid = (uint32_t)raw3(SYS_gettid, 0, 0, 0);
}

void cc_ready_thread(void)
{
    if (cc_self.held)
        cc_give(cc_self.held);
    if (!cc_self.tid) {
        cc_self.tid = (uint32_t)raw3(SYS_gettid, 0, 0, 0);
        cc_self.id = atomic_fetch_add(&threads, 1) + 1;
    }
}

static void forget_in(struct word *word, unsigned offset, unsigned size)
{
    unsigned grain = cc_grain(word);
    if (!grain || (grain == WORD_BYTES && !word->records[0].last)) /* nothing is known, as of a block that was freed before */
        return;
    cc_ready_thread();
    cc_take(word);
    unsigned count = 0;
    struct record *records = cc_records(word, offset, size, &count);
    for (unsigned i = 0; records && i < count; i++)
        records[i] = (struct record){0};
    cc_give(word);
}

/* Groups of words that nobody accessed, and chunks that were never made, cost one look. */
void cc_forget(uintptr_t address, uint64_t size)
{
    const uint64_t group_bytes = GROUP_WORDS * WORD_BYTES;
    uint64_t end = address + size;
    if (end < address || end > 1ul << ADDRESS_BITS)
        return;
    for (uintptr_t next; address < end; address = next) {
        struct chunk *chunk = atomic_load_explicit(&cc_chunks[address >> CHUNK_BITS], memory_order_acquire);
        next = (address | (CHUNK_BYTES - 1)) + 1;
        if (!chunk)
            continue;
        unsigned group = (address & (CHUNK_BYTES - 1)) / group_bytes;
        next = (address | (group_bytes - 1)) + 1;
        if (!(atomic_load_explicit(&chunk->accessed[group / 64], memory_order_relaxed) >> group % 64 & 1))
            continue;
        next = (address | (WORD_BYTES - 1)) + 1;
        if (next > end)
            next = end;
        forget_in(&chunk->words[(address & (CHUNK_BYTES - 1)) / WORD_BYTES], address % WORD_BYTES, next - address);
    }
}

/* Here, because a static program that calls this has the rest of this file, too. */
void crashcheck_guard_ends(const void *block, unsigned long bytes)
{
    if (cc_log)
        cc_forget((uintptr_t)block, bytes);
}
