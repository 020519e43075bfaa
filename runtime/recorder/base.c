/* What instrumented code reads of the recorder (hooks.h), and what all parts of it read. */
#include "recorder/base.h"

__thread struct cc_shadow cc_shadow TLS_MODEL;
__thread uint32_t cc_fence_wanted TLS_MODEL;
__thread struct cc_call_site cc_call_site TLS_MODEL;
uint32_t cc_recording;
uint8_t cc_load_on;
uintptr_t cc_window_start, cc_window_bytes;
uintptr_t cc_mapped_start, cc_mapped_bytes;
uintptr_t cc_load_window_start, cc_load_window_bytes;
struct cc_trace_header *cc_header;
