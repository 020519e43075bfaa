/* Which files are recorded: the pool files, those in the pool folder that match a pattern; and their numbers. */
#ifndef CRASHCHECK_RECORDER_POOL_FILES_H
#define CRASHCHECK_RECORDER_POOL_FILES_H

#include "recorder/base.h"

struct file_state {         /* what fstat reports, as far as the recorder needs it */
    uint64_t device, inode, size;
    uint32_t mode;
};

HIDDEN void cc_pool_files_start(const char *pool, const char *patterns);
HIDDEN const char *cc_pool(size_t *length);
HIDDEN bool cc_matches(const char *path); /* `path` is relative to the pool */

HIDDEN bool cc_state_of_fd(int fd, struct file_state *state);
HIDDEN bool cc_state_of_path(int folder, const char *path, int flags, struct file_state *state);
HIDDEN size_t cc_real_path(int fd, char *path);

extern HIDDEN struct file_state cc_pool_state; /* of the pool folder */

/* Calls `visit` for each pool file that there is, in no order: it is `name` in the open folder. By one thread at a time. */
typedef void cc_visit(int folder, const char *name, const char *relative, void *context);
HIDDEN void cc_walk_pool(cc_visit *visit, void *context);

/* Calls `visit` for each part of an open file, of `size` bytes, that is no hole, until one call returns false. */
typedef bool cc_visit_data(int fd, uint64_t at, uint64_t end, void *context);
HIDDEN void cc_walk_data(int fd, uint64_t size, cc_visit_data *visit, void *context);

/* Whether an open file, or what a path would name, is in the pool; `relative` is its path from there. */
HIDDEN bool cc_in_pool(int fd, char *relative);
HIDDEN bool cc_names_pool_file(int folder, const char *path, char *relative); /* and matches a pattern */

/* Numbers of pool files (file_ids.c): equal for the same path in all processes of the run, found again by device and inode. */

/* The id of an open file, or 0 if it is no pool file. A new one is defined in the trace with its first state. */
HIDDEN uint16_t cc_pool_file(int fd);
HIDDEN uint16_t cc_pool_file_of(int fd, const struct file_state *state, bool existed, uint64_t first_size);

/* The id of a path in the pool, defined with its first state if it is new. */
HIDDEN uint16_t cc_file_of_path(const char *relative, bool existed, uint64_t size);
HIDDEN uint16_t cc_known_inode(uint64_t device, uint64_t inode);
HIDDEN void cc_forget_inode(uint64_t device, uint64_t inode);
HIDDEN void cc_file_ids_reset_lock(void);

#endif
