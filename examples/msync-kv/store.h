/* A key-value store in an ordinary mapped file: a header page with the commit record, then pages of records. */
#ifndef STORE_H
#define STORE_H

#include <stdint.h>
#include <stdio.h>

#define PAGE 4096
#define RECORDS (2 * PAGE / (int)sizeof(struct record))

struct record {
    char key[24];
    char value[40];
};

struct store {
    union {
        struct {
            uint64_t magic;
            uint64_t committed; /* records that count */
        };
        char page[PAGE];
    };
    struct record records[2 * PAGE / sizeof(struct record)];
};

#define STORE_MAGIC 0x65726f747376756bULL

static inline struct record record_of(unsigned number) {
    struct record record = {{0}, {0}};
    snprintf(record.key, sizeof record.key, "user%u", number);
    snprintf(record.value, sizeof record.value, "balance %u", number * 100);
    return record;
}

#endif
