/* Before bytes are read that differ between crash images: the process forks, a child for each content of them
 * (explorer/explore.c). */
#ifdef CC_SHARED
#include <errno.h>
#include <sys/mman.h>

#include "explorer/decisions.h"
#include "explorer/exploration.h"
#include "explorer/section.h"
#include "explorer/state.h"

/* Whether two contents agree where bytes from `low` to `high` are not known. */
HERE static bool agree(uint32_t number, uint32_t first, uint32_t second, uint32_t low, uint32_t high)
{
    const unsigned char *left = content_of(&cc_run.granules[number], first), *right = content_of(&cc_run.granules[number], second);
    for (uint32_t byte = low; byte < high; byte++)
        if (!BIT(cc_run.state_of[number].known, byte) && left[byte] != right[byte])
            return false;
    return true;
}

/* Keeps the contents that agree with one of them. `in`: where the granule is mapped; NULL: nowhere. */
HERE static void settle(const struct mapping *in, uint32_t number, uint32_t with, uint32_t low, uint32_t high)
{
    struct granule_state *now = &cc_run.state_of[number];
    for (uint32_t which = 0; which < cc_run.granules[number].choices; which++)
        if (BIT(now->alive, which) && !agree(number, with, which, low, high))
            now->alive[which / 64] &= ~(1ull << which % 64);
    if (!in) {
        cc_explore_learn(number, NULL, with);
        return;
    }
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), PROT_READ | PROT_WRITE);
    cc_explore_learn(number, (unsigned char *)address_of(in, &cc_run.granules[number]), with);
    cc_explore_close_pages(in);
}

/* Waits for a process that goes one of the ways; ends the exploration if it did not end well. */
HERE static void wait_for(long child)
{
    int status = 0;
    long ended;
    do
        ended = raw4(SYS_wait4, child, (long)&status, 0, 0);
    while (ended == -EINTR);
    if (ended != child || status)
        cc_explore_refuse(CC_EXPLORE_DIED, (uint32_t)status);
}

/* Whether the contents of a granule still differ in some byte from `low` to before `high`. */
HERE static bool still_differs(uint32_t number, uint32_t low, uint32_t high)
{
    for (uint32_t byte = low; byte < high; byte++)
        if (!BIT(cc_run.state_of[number].known, byte))
            return true;
    return false;
}

/* Whether a process was in this state before, about to read the same bytes. */
HERE static bool came_again(const ucontext_t *context, uint32_t number, uint32_t low, uint32_t high)
{
    uint64_t hash[2];
    cc_explore_hash_state(hash, context, number);
    stir(hash, (uint64_t)low << 32 | high);
    return cc_explore_met(hash);
}

/* Before bytes of a granule are read: returns in children alone, in each with other bytes there. */
HERE static void decide(const ucontext_t *context, const struct mapping *in, uint32_t number, uint32_t low, uint32_t high)
{
    const struct cc_explore_granule *granule = &cc_run.granules[number];
    uint64_t seen[MOST_CONTENTS / 64];
    raw_fill(seen, 0, sizeof seen);
    if (!cc_run.table->unmerged && came_again(context, number, low, high)) {
        cc_run.table->merged++;
        cc_explore_done();
    }
    for (uint32_t which = 0; which < granule->choices; which++) {
        if (!BIT(cc_run.state_of[number].alive, which) || BIT(seen, which))
            continue;
        for (uint32_t other = which; other < granule->choices; other++)
            if (BIT(cc_run.state_of[number].alive, other) && agree(number, which, other, low, high))
                SET_BIT(seen, other);
        long child = raw6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
        if (raw_failed(child))
            cc_explore_refuse(CC_EXPLORE_SETUP, 2);
        if (!child) {
            if (++cc_run.deep == MOST_DEEP)
                cc_explore_refuse(CC_EXPLORE_ROOM, 6);
            settle(in, number, which, low, high);
            return;
        }
        wait_for(child);
        if (__atomic_load_n(&cc_run.table->refusal, __ATOMIC_RELAXED))
            cc_explore_leave();
    }
    cc_explore_done();
}

/* The mapping that has a file's bytes now: NULL if none has. */
HERE static const struct mapping *mapping_of(const struct file_range *range)
{
    const struct mapping *found = NULL;
    for (uint32_t i = 0; i < cc_run.mapped; i++) {
        const struct mapping *in = &cc_run.mappings[i];
        if (in->mirrors || in->device != range->device || in->inode != range->inode)
            continue;
        if (in->gone && in->protection & PROT_WRITE) /* what it wrote is in no file */
            cc_explore_refuse(CC_EXPLORE_FILE_READ, SYS_munmap);
        found = in->gone ? found : in;
    }
    return found;
}

/* Bytes of a file, of which `into` has those of the image, were read by a system call: they become those of this process. */
HERE void cc_explore_reads_file(const ucontext_t *context, const struct file_range *range, char *into)
{
    const struct mapping *in = mapping_of(range);
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        const struct cc_explore_granule *granule = &cc_run.granules[i];
        uint64_t start = granule->offset > range->start ? granule->offset : range->start;
        uint64_t end = granule->offset + granule->length < range->end ? granule->offset + granule->length : range->end;
        if (granule->device != range->device || granule->inode != range->inode || start >= end)
            continue;
        if (!granule->choices)
            cc_explore_refuse(CC_EXPLORE_UNLISTED, i);
        const struct mapping *here = in && address_of(in, granule) ? in : NULL;
        uint32_t low = (uint32_t)(start - granule->offset), high = (uint32_t)(end - granule->offset);
        if (still_differs(i, low, high))
            decide(context, here, i, low, high);
        raw_move(into + (start - range->start), content_of(granule, first_alive(i)) + low, high - low);
    }
    if (!in)
        return;
    uint64_t size = in->end - in->start, start = in->offset > range->start ? in->offset : range->start;
    uint64_t end = in->offset + size < range->end ? in->offset + size : range->end;
    if (start >= end)
        return;
    raw3(SYS_mprotect, (long)in->start, (long)size, PROT_READ | PROT_WRITE);
    raw_move(into + (start - range->start), (const char *)in->start + (start - in->offset), end - start);
    cc_explore_close_pages(in);
}

/* Memory from `start` to `end` is about to be read, or written whatever it was. */
HERE void cc_explore_accesses(const ucontext_t *context, const struct mapping *in, uintptr_t start, uintptr_t end, bool writes)
{
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uintptr_t at = cc_run.state_of[i].unknown ? address_of(in, &cc_run.granules[i]) : 0;
        if (!at || at >= end || at + cc_run.granules[i].length <= start)
            continue;
        if (!cc_run.granules[i].choices)
            cc_explore_refuse(CC_EXPLORE_UNLISTED, i);
        uint32_t low = start > at ? (uint32_t)(start - at) : 0;
        uint32_t high = end - at < cc_run.granules[i].length ? (uint32_t)(end - at) : cc_run.granules[i].length;
        if (!still_differs(i, low, high))
            continue;
        if (!writes) {
            decide(context, in, i, low, high);
            continue;
        }
        for (uint32_t byte = low; byte < high; byte++)
            if (!BIT(cc_run.state_of[i].known, byte)) {
                SET_BIT(cc_run.state_of[i].known, byte);
                cc_run.state_of[i].unknown--;
            }
        if (!cc_run.state_of[i].unknown)
            cc_explore_close_pages(in); /* its own may be open now, and may not be the one that is touched */
    }
}
#endif
