/* One exploration: its state, how it ends, and what each process knows of the granules (explorer/explore.c). */
#ifdef CC_SHARED
#include <sys/mman.h>

#include "explorer/exploration.h"
#include "explorer/section.h"

struct exploration cc_run;
uintptr_t cc_explore_resume, cc_explore_kept, cc_explore_stack;

HERE void cc_explore_leave(void)
{
    for (;;)
        raw3(SYS_exit_group, 0, 0, 0);
}

/* This process has done its part; the exploration is over when the first one has. */
HERE void cc_explore_done(void)
{
    if ((uint32_t)raw3(SYS_getpid, 0, 0, 0) == cc_run.first_process && !__atomic_load_n(&cc_run.table->refusal, __ATOMIC_RELAXED))
        __atomic_store_n(&cc_run.table->done, 1, __ATOMIC_RELAXED);
    cc_explore_leave();
}

HERE void cc_explore_refuse(uint32_t why, uint32_t detail)
{
    uint32_t none = CC_EXPLORE_NOT_REFUSED;
    if (__atomic_compare_exchange_n(&cc_run.table->refusal, &none, why, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        __atomic_store_n(&cc_run.table->detail, detail, __ATOMIC_RELAXED);
    cc_explore_leave();
}

/* Closes the pages of a mapping that hold something untouched, and opens the others. */
HERE void cc_explore_close_pages(const struct mapping *in)
{
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), in->protection);
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uintptr_t at = address_of(in, &cc_run.granules[i]);
        if (!at || !cc_run.state_of[i].unknown)
            continue;
        uintptr_t first = at & ~(PAGE - 1), last = (at + cc_run.granules[i].length - 1) & ~(PAGE - 1);
        raw3(SYS_mprotect, (long)first, (long)(last - first + PAGE), PROT_NONE);
    }
}

/* Bytes that all contents agree on are known. Those of `from`, a content, are put into memory where `at` is not NULL. */
HERE void cc_explore_learn(uint32_t number, unsigned char *at, uint32_t from)
{
    const struct cc_explore_granule *granule = &cc_run.granules[number];
    struct granule_state *now = &cc_run.state_of[number];
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

HERE void cc_explore_show_known(const struct mapping *in)
{
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        unsigned char *at = (unsigned char *)address_of(in, &cc_run.granules[i]);
        if (!at || !cc_run.granules[i].choices)
            continue;
        raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), PROT_READ | PROT_WRITE);
        const unsigned char *from = content_of(&cc_run.granules[i], first_alive(i));
        for (uint32_t byte = 0; byte < cc_run.granules[i].length; byte++)
            if (BIT(cc_run.state_of[i].known, byte))
                at[byte] = from[byte];
    }
}

HERE const struct mapping *cc_explore_first_mapping(const struct mapping *mirror)
{
    for (uint32_t i = 0; i < cc_run.mapped; i++) {
        const struct mapping *in = &cc_run.mappings[i];
        if (!in->gone && !in->mirrors && in->device == mirror->device && in->inode == mirror->inode)
            return in;
    }
    return NULL;
}
#endif
