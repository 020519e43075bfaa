/* Records of updates, flushes, fences and syncs. Every function here enters a writer itself. */
#ifndef CRASHCHECK_RECORDER_EVENTS_H
#define CRASHCHECK_RECORDER_EVENTS_H

#include "recorder/process.h"

HIDDEN uint64_t cc_event_at(where at, struct cc_event event);                   /* numbers it if seq is 0 */
HIDDEN void cc_event_bytes(where at, struct cc_event event, const void *head, size_t head_size, const void *bytes, uint64_t size);
HIDDEN void cc_update(where at, uint64_t seq, const void *target, const void *bytes, int fill, uint64_t size, uint8_t flags,
                      uint64_t instance);
HIDDEN void cc_write_event(where at, uint64_t seq, uint16_t file, uint64_t offset, const void *bytes, uint64_t size, uint8_t flags);
HIDDEN void cc_unmodelled(where at, uint16_t file, const char *name);
HIDDEN uint64_t cc_sync_begin(where at, uint32_t kind, uint16_t file, uint64_t offset, uint32_t size);
HIDDEN void cc_sync_end(where at, uint64_t begin, uint32_t kind, uint16_t file, uint64_t offset, uint32_t size, bool failed);
HIDDEN void cc_flush_at(where at, const void *address, uint64_t size, uint32_t kind);
HIDDEN void cc_fence_at(where at, uint32_t kind);
HIDDEN void cc_stripes_reset(void);

/* Where this thread makes its next system calls, for the recorder that follows it; what was before. */
HIDDEN struct cc_called cc_call_begins(where at);
static inline void cc_call_ends(const struct cc_called *before)
{
    cc_thread.called = *before;
}

#endif
