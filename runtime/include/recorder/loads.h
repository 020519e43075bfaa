/* Records of reads of pool files and, where wanted, of accesses to all other memory. */
#ifndef CRASHCHECK_RECORDER_LOADS_H
#define CRASHCHECK_RECORDER_LOADS_H

#include "recorder/base.h"

HIDDEN void cc_loads_start(const char *loads, const char *memory);
HIDDEN void cc_loads_forget(bool ends);
HIDDEN void cc_load_at(where at, uint64_t seq, const void *source, uint64_t size, uint64_t instance, uint32_t flags);
HIDDEN void cc_copied_from(where at, const void *source, uint64_t size);
HIDDEN void cc_wrote_elsewhere(where at, const void *target, uint64_t size, uint32_t flags);

/* While all memory is recorded, one thread at a time accesses it. */
HIDDEN void cc_turn_take(void);
HIDDEN void cc_turn_keep(void);
HIDDEN void cc_turn_reset(void);

#endif
