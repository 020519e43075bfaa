/* Notes beside the trace: why a file or an access was not recorded, shown when a recording cannot be used. */
#ifndef CRASHCHECK_RECORDER_NOTES_H
#define CRASHCHECK_RECORDER_NOTES_H

#include "recorder/base.h"

HIDDEN void cc_notes_start(const char *trace);
HIDDEN void cc_note(const char *reason, const char *path); /* each once */

#endif
