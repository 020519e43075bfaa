/* An append-only log in one pool file: a header line with the tail, then records of varying length. */
#ifndef LOG_H
#define LOG_H

#include <stdint.h>
#include <stdio.h>

#define LOG_BYTES 4096
#define LOG_FIRST 64

struct record {
    uint32_t length; /* of text, in bytes */
    char text[60];
};

struct log {
    uint64_t tail; /* bytes of records, from LOG_FIRST on, that count */
    char padding[LOG_FIRST - sizeof(uint64_t)];
    char records[LOG_BYTES - LOG_FIRST];
};

/* What operation `number` appends; returns the record's size, a multiple of 8. */
static inline uint64_t make_record(struct record *record, unsigned number) {
    int length = snprintf(record->text, sizeof record->text, "%s %u is done", number % 2 ? "job" : "the longer job number", number);
    record->length = (uint32_t)length;
    return (sizeof record->length + (uint64_t)length + 7) & ~(uint64_t)7;
}

#endif
