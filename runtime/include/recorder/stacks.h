/* Numbers for places in the program: a unit gets a range of sites, a call stack a node of a tree. */
#ifndef CRASHCHECK_RECORDER_STACKS_H
#define CRASHCHECK_RECORDER_STACKS_H

#include "recorder/trace.h"

extern HIDDEN _Atomic uint32_t cc_stack_generation;

HIDDEN bool cc_stacks_start(void);
HIDDEN void cc_stacks_forget(void); /* a module was unloaded: unit addresses may come back as others */
HIDDEN uint32_t cc_unit_meet(struct writer *writer, struct cc_unit *unit, uint64_t seq);
HIDDEN uint32_t cc_stack_slow(struct writer *writer, const struct cc_frame *frames, uint32_t depth, uint32_t same);

static inline uint32_t cc_site(struct writer *writer, struct cc_unit *unit, uint32_t index)
{
    if (!unit)
        return 0;
    uint32_t base = __atomic_load_n(&unit->site_base, __ATOMIC_ACQUIRE);
    if (UNLIKELY(base == 0))
        base = cc_unit_meet(writer, unit, 0);
    return base ? base + index : 0;
}

/* In chunks of loads. */
static inline uint32_t cc_load_site(struct writer *writer, struct cc_unit *unit, uint32_t index)
{
    if (!unit)
        return 0;
    uint32_t base = __atomic_load_n(&unit->load_base, __ATOMIC_ACQUIRE);
    if (UNLIKELY(base == 0))
        base = cc_unit_meet(writer, unit, 0);
    return base ? base + index : 0;
}

static inline uint32_t cc_stack(struct writer *writer, uint32_t depth)
{
    if (depth > CC_STACK_MAX)
        depth = CC_STACK_MAX;
    if (depth == 0)
        return 0;
    const struct cc_frame *frames = cc_shadow.frames;
    uint32_t known = writer->memo_depth < depth ? writer->memo_depth : depth;
    if (UNLIKELY(writer->memo_generation != atomic_load_explicit(&cc_stack_generation, memory_order_relaxed)))
        known = 0;
    uint32_t same = 0;
    while (same < known && frames[same].unit == writer->memo_frames[same].unit &&
           frames[same].index == writer->memo_frames[same].index)
        same++;
    if (LIKELY(same == depth))
        return writer->memo_nodes[depth - 1];
    return cc_stack_slow(writer, frames, depth, same);
}

#endif
