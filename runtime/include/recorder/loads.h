/* Records of reads of pool files. */
#ifndef CRASHCHECK_RECORDER_LOADS_H
#define CRASHCHECK_RECORDER_LOADS_H

#include "recorder/base.h"

HIDDEN void cc_loads_forget(bool ends);
HIDDEN void cc_load_at(where at, uint64_t seq, const void *source, uint64_t size, uint64_t instance, uint32_t flags);
HIDDEN void cc_copied_from(where at, const void *source, uint64_t size);

#endif
