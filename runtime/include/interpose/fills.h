/* What models of functions that write memory share: stores taken from their source before, or from their target after. */
#ifndef CRASHCHECK_INTERPOSE_FILLS_H
#define CRASHCHECK_INTERPOSE_FILLS_H

#include "interpose/model.h"

#define BULK (CC_STORE_BULK | CC_STORE_LIBRARY)

/* Before a function that copies, or fills memory with one byte. */
HIDDEN void cc_copies(where at, void *target, const void *source, size_t size);
HIDDEN void cc_fills(where at, void *target, int byte, size_t size);

/* Around any other: numbered before the call, content read back after it. */
HIDDEN uint64_t cc_will_fill(const void *target, size_t size);
HIDDEN void cc_has_filled(where at, uint64_t seq, void *target, size_t size);

/* `most`: bytes that it may write at `target`; `size`: that it wrote, given its result `got`. */
#define FILLS(type, target, most, size, call)                                                                          \
    (__extension__({                                                                                                   \
        void *target_ = (target);                                                                                      \
        uint64_t seq_ = cc_will_fill(target_, most);                                                                   \
        type got = (call);                                                                                             \
        cc_has_filled(at, seq_, target_, size);                                                                        \
        got;                                                                                                           \
    }))

#define MODEL_FILLS(result, name, parameters, target, most, size, arguments)                                           \
    MODEL(result, name, parameters, REAL(name) arguments, FILLS(result, target, most, size, REAL(name) arguments))

#endif
