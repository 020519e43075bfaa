/* What the outside world has seen: how much standard output was printed. (Operations are marked by crashcheck.h.) */
#ifndef CRASHCHECK_RECORDER_MARKS_H
#define CRASHCHECK_RECORDER_MARKS_H

#include "recorder/pool_files.h"

HIDDEN void cc_output_start(const char *setting);
HIDDEN void cc_output(where at);
HIDDEN bool cc_is_output(const struct file_state *state);

#endif
