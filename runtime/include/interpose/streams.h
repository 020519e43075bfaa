/* Open streams: what the models of files report to those of stdio. */
#ifndef CRASHCHECK_STREAMS_H
#define CRASHCHECK_STREAMS_H

#include <stdio.h>

#include "recorder/base.h"

HIDDEN void cc_stream_opened(FILE *stream);
HIDDEN void cc_stream_closes(where at, FILE *stream);

#endif
