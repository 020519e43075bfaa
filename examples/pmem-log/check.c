/* Is the log consistent? `check FILE ACKED`: the records up to the tail must be the ones that were appended, in order, and
 * at least ACKED of them. */
#include "log.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    static struct log log;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(&log, sizeof log, 1, file) != 1) {
        fprintf(stderr, "%s is not a log\n", argc == 3 ? argv[1] : "the argument");
        return 1;
    }
    fclose(file);
    if (log.tail > sizeof log.records) {
        fprintf(stderr, "the tail %llu is outside the log\n", (unsigned long long)log.tail);
        return 1;
    }
    unsigned count = 0;
    for (uint64_t at = 0; at < log.tail; count++) {
        struct record expected = {0};
        uint64_t bytes = make_record(&expected, count + 1);
        if (at + bytes > log.tail || memcmp(log.records + at, &expected, bytes) != 0) {
            fprintf(stderr, "record %u at offset %llu is not what was appended\n", count + 1, (unsigned long long)at);
            return 1;
        }
        at += bytes;
    }
    if (count < strtoul(argv[2], NULL, 10)) {
        fprintf(stderr, "%s records were acknowledged, %u are there\n", argv[2], count);
        return 1;
    }
    return 0;
}
