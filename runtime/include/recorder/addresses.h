/* The address table: maps each pool file at the same address in each run. */
#ifndef CRASHCHECK_RECORDER_ADDRESSES_H
#define CRASHCHECK_RECORDER_ADDRESSES_H

#include "recorder/base.h"

extern HIDDEN bool cc_places_files;  /* pool files are mapped where the address table has them */
extern HIDDEN bool cc_learns_places; /* and get a place in it if they have none */
extern HIDDEN bool cc_has_dax;       /* pool files may be mapped with MAP_SYNC, whatever file system they are on */

HIDDEN size_t cc_write_hex(char *to, uint64_t value); /* its digits, 16 at most, and how many */
HIDDEN void cc_addresses_start(const char *path);
HIDDEN long cc_place(size_t length, int protection, int flags, int fd, uint64_t offset, const char *relative, bool hinted);
HIDDEN void cc_placed(uintptr_t address, size_t length, uint64_t offset, const char *relative);

#endif
