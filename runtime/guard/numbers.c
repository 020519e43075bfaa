/* Numbers of ids: what is known of a word fits half a line of the cache with these, and a set needs half as many.
 *
 * A number is where its id is in a chain of hash tables, each twice as large as the one before it: an id is in the first that
 * had room for it. Nothing is ever taken out, so whoever looks for an id meets it before a free place. */
#include <sys/mman.h>

#include "guard/base.h"

#define FIRST_TABLE (1u << 12)
#define LAST_TABLE (1u << 22)
#define NUMBERS (2ul * LAST_TABLE) /* of all tables, and 0 */
#define PROBES 16u

static uint64_t *ids; /* by number; address space that becomes memory where it is used */

bool cc_numbers_open(void)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    long mapped = raw6(SYS_mmap, 0, NUMBERS * sizeof *ids, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (raw_failed(mapped))
        return false;
    ids = (uint64_t *)mapped;
    return true;
}

/* Without room, that of code which changed: what follows it is not judged. */
uint32_t cc_number(uint64_t id)
{
    uint32_t changed = id & CC_GUARD_CHANGED ? CHANGED : 0;
    uint64_t hash = id * 0x9e3779b97f4a7c15ull >> 32;
    if (!id)
        return 0;
    for (uint32_t size = FIRST_TABLE, first = 1; size <= LAST_TABLE; first += size, size *= 2) {
        for (uint32_t probe = 0; probe < PROBES; probe++) {
            uint32_t number = first + (uint32_t)((hash + probe) & (size - 1));
            uint64_t there = __atomic_load_n(&ids[number], __ATOMIC_RELAXED);
            if (LIKELY(there == id) ||
                (!there && __atomic_compare_exchange_n(&ids[number], &there, id, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) ||
                there == id)
                return number | changed;
        }
    }
    return CHANGED;
}

uint64_t cc_id(uint32_t number)
{
    return __atomic_load_n(&ids[number & ~(CHANGED | SETTLED)], __ATOMIC_RELAXED);
}

bool cc_number_sites(struct cc_guard_unit *unit)
{
    const void *sites = __atomic_load_n(&unit->sites, __ATOMIC_ACQUIRE);
    if (cc_is_allotted(sites)) /* another thread was faster */
        return true;
    uint64_t words = 0;
    const uint64_t *old = sites;
    while (old[words])
        words += 2 + old[words + 1];
    uint32_t *made = cc_allot((words + AT_ONCE) * sizeof *made);
    if (!made)
        return false;
    for (uint64_t at = 0, end; at < words; at = end) {
        made[at] = cc_number(old[at] & ~CC_GUARD_SETTLED) | (uint32_t)((old[at] & CC_GUARD_SETTLED) >> 32);
        made[at + 1] = (uint32_t)old[at + 1];
        end = at + 2 + old[at + 1];
        for (uint64_t i = at + 2; i < end; i++)
            made[i] = cc_number(old[i]);
    }
    /* If two threads made one, either is the unit's. */
    __atomic_store_n(&unit->sites, made, __ATOMIC_RELEASE);
    return true;
}
