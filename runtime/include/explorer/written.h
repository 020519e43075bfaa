/* What an explored process prints and writes to files: it stays in the process, so that no other run meets it. */
#ifndef CRASHCHECK_EXPLORER_WRITTEN_H
#define CRASHCHECK_EXPLORER_WRITTEN_H

#include <sys/stat.h>

#include "explorer/exploration.h"

HIDDEN void cc_explore_note_outputs(void);             /* before the program begins: where its descriptors lead */
HIDDEN struct written *cc_explore_written(long fd);    /* what is behind a descriptor, if it is kept here; NULL: it is not */
HIDDEN struct written *cc_explore_written_as(const struct stat *state); /* likewise, of a file that the kernel knows */
HIDDEN struct written *cc_explore_made(long folder, const char *path);  /* likewise, of a file that the process made */
HIDDEN struct written *cc_explore_copy(long number, long fd);           /* keeps a regular file from now on, as it is */
HIDDEN long cc_explore_make(long number, long folder, const char *path, uint32_t mode, struct written **made); /* an empty file */
HIDDEN void cc_explore_put(struct written *into, uint64_t offset, const void *from, size_t size);
HIDDEN void cc_explore_cut(struct written *file, uint64_t size);
HIDDEN __attribute__((noreturn)) void cc_explore_ends(int32_t status);       /* the check has ended like this */
HIDDEN __attribute__((noreturn)) void cc_explore_signalled(int32_t number);  /* a signal has ended it, unless it handles that */
HIDDEN bool cc_explore_makes_in(const struct stat *folder); /* whether it made a file there */
HIDDEN void cc_explore_show(const struct written *file, struct stat *state); /* what stat(2) shows of it */

#endif
