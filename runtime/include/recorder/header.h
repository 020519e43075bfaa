/* The header of the trace file, mapped shared by all processes of the run: it hands out every number. */
#ifndef CRASHCHECK_RECORDER_HEADER_H
#define CRASHCHECK_RECORDER_HEADER_H

#include "recorder/base.h"

extern HIDDEN struct cc_trace_header *cc_header;

#endif
