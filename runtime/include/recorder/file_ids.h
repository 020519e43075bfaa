/* Numbers of pool files: equal for the same path in all processes of the run, found again by device and inode. */
#ifndef CRASHCHECK_RECORDER_FILE_IDS_H
#define CRASHCHECK_RECORDER_FILE_IDS_H

#include "recorder/pool_files.h"

/* The id of an open file, or 0 if it is no pool file. A new one is defined in the trace with its first state. */
HIDDEN uint16_t cc_pool_file(int fd);
HIDDEN uint16_t cc_pool_file_of(int fd, const struct file_state *state, bool existed, uint64_t first_size);

/* The id of a path in the pool, defined with its first state if it is new. */
HIDDEN uint16_t cc_file_of_path(const char *relative, bool existed, uint64_t size);
HIDDEN uint16_t cc_known_inode(uint64_t device, uint64_t inode);
HIDDEN void cc_forget_inode(uint64_t device, uint64_t inode);
HIDDEN void cc_file_ids_reset_lock(void);

#endif
