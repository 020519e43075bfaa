/* The log's program, on libpmem: `create FILE` makes an empty log, `run FILE` appends to it. */
#include "log.h"

#include <libpmem.h>
#include <stdlib.h>
#include <string.h>
#ifdef __has_include
#if __has_include("crashcheck.h")
#include "crashcheck.h"
#endif
#endif
#ifndef CRASHCHECK_OP_BEGIN
#define CRASHCHECK_OP_BEGIN() ((void)0)
#define CRASHCHECK_OP_END() ((void)0)
#endif

#define RECORDS 8

static struct log *open_log(const char *path, int flags) {
    size_t mapped = 0;
    int is_pmem = 0;
    struct log *log = pmem_map_file(path, flags ? LOG_BYTES : 0, flags, 0644, &mapped, &is_pmem);
    if (!log || mapped < LOG_BYTES) {
        fprintf(stderr, "%s: %s\n", path, pmem_errormsg());
        exit(2);
    }
    if (!is_pmem) {
        fprintf(stderr, "%s is not in persistent memory; to try it all the same, set PMEM_IS_PMEM_FORCE=1\n", path);
        exit(2);
    }
    return log;
}

static int append(struct log *log, const void *data, uint64_t bytes) {
    if (bytes > sizeof log->records - log->tail)
        return 0;
    memcpy(log->records + log->tail, data, bytes);
    pmem_persist(log->records + log->tail, bytes);
    log->tail += bytes;
    pmem_persist(&log->tail, sizeof log->tail);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s create|run FILE\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "create") == 0) {
        pmem_unmap(open_log(argv[2], PMEM_FILE_CREATE), LOG_BYTES);
        return 0;
    }
    struct log *log = open_log(argv[2], 0);
    for (unsigned number = 1; number <= RECORDS; number++) {
        struct record record = {0};
        uint64_t bytes = make_record(&record, number);
        CRASHCHECK_OP_BEGIN();
        if (!append(log, &record, bytes)) {
            fprintf(stderr, "the log is full\n");
            return 2;
        }
        CRASHCHECK_OP_END();
    }
    pmem_unmap(log, LOG_BYTES);
    return 0;
}
