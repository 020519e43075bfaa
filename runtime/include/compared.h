/* Comparisons that time decides: a part of hooks.h that the controller of nodes reads as well. */
#ifndef CRASHCHECK_COMPARED_H
#define CRASHCHECK_COMPARED_H

#include <stdint.h>

/* A comparison that time may decide. crashcheck-cc writes unit and directions into the linked program, once it knows where
 * times flow to; without directions the hook is not called. The first of a unit's table is no comparison: its directions are
 * the count of those that follow, its key is the unit's. */
struct cc_timer {
    const char *place;           /* "function (file:line)" */
    double unit_ns;              /* ns for each unit of what is compared */
    uint32_t directions;         /* whether left - right grows or shrinks as time passes, or may do either */
    uint32_t how;                /* enum cc_comparison */
    uint64_t key;
};
enum cc_comparison { CC_LESS, CC_LESS_EQUAL, CC_MORE, CC_MORE_EQUAL, CC_EQUAL, CC_UNEQUAL };
#define CC_COMPARISON 7u         /* of `how`; the other bits: */
#define CC_UNSIGNED 8u
#define CC_FLOATING 16u
#define CC_GROWS 1u
#define CC_SHRINKS 2u

/* How the recorder passes it to a controller of nodes: as a reading of this clock, which the kernel does not have; where the
 * time would be written is a struct cc_compared_call. */
#define CC_COMPARED_CLOCK 0x63630001
struct cc_compared_call {
    struct cc_timer timer;
    uint64_t left, right;
};

#endif
