/* The pool files that there are, and the data that one holds. */
#ifndef CRASHCHECK_RECORDER_POOL_WALK_H
#define CRASHCHECK_RECORDER_POOL_WALK_H

#include "recorder/base.h"

/* Calls `visit` for each pool file that there is, in no order: it is `name` in the open folder. By one thread at a time. */
typedef void cc_visit(int folder, const char *name, const char *relative, void *context);
HIDDEN void cc_walk_pool(cc_visit *visit, void *context);

/* Calls `visit` for each part of an open file, of `size` bytes, that is no hole, until one call returns false. */
typedef bool cc_visit_data(int fd, uint64_t at, uint64_t end, void *context);
HIDDEN void cc_walk_data(int fd, uint64_t size, cc_visit_data *visit, void *context);

#endif
