/* Included before a structure's driver is compiled for pmemcheck: its pool is registered, and its operations are marked in the
 * log. Needs the headers of PMDK's valgrind. */
#ifndef UNDER_PMEMCHECK_H
#define UNDER_PMEMCHECK_H

#include <stdio.h>
#include <sys/mman.h>
#include <valgrind/pmemcheck.h>

static inline void *registered_mmap(void *at, size_t size, int protection, int flags, int file, off_t offset) {
    void *base = mmap(at, size, protection, flags, file, offset);
    if (base != MAP_FAILED) {
        VALGRIND_PMC_REGISTER_PMEM_FILE(file, base, size, 0);
        VALGRIND_PMC_REGISTER_PMEM_MAPPING(base, size);
    }
    return base;
}

#define mmap registered_mmap
#define CRASHCHECK_OP_BEGIN() VALGRIND_PMC_EMIT_LOG("operation.BEGIN")
#define CRASHCHECK_OP_END() VALGRIND_PMC_EMIT_LOG("operation.END")

#endif
