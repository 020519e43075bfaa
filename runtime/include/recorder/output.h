/* How much standard output was printed, where it is a regular file. */
#ifndef CRASHCHECK_RECORDER_OUTPUT_H
#define CRASHCHECK_RECORDER_OUTPUT_H

#include "recorder/pool_files.h"

HIDDEN void cc_output_start(const char *setting);
HIDDEN void cc_output(where at);
HIDDEN bool cc_is_output(const struct file_state *state);

#endif
