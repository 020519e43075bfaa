/* Which files are recorded: the pool files, those in the pool folder that match a pattern. */
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
#define FD_PATH_ROOM 32u
HIDDEN void cc_fd_path(int fd, char path[FD_PATH_ROOM]); /* the kernel's name of an open file */
HIDDEN size_t cc_real_path(int fd, char *path);

extern HIDDEN struct file_state cc_pool_state; /* of the pool folder */

/* Whether an open file, or what a path would name, is in the pool; `relative` is its path from there. */
HIDDEN bool cc_in_pool(int fd, char *relative);
HIDDEN bool cc_names_pool_file(int folder, const char *path, char *relative); /* and matches a pattern */

#endif
