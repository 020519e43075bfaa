/* Runs a file of operations on a table: `FILE OPERATIONS`. Prints what each operation gave. */
#include "table.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __has_include
#if __has_include("crashcheck.h")
#include "crashcheck.h"
#endif
#endif
#ifndef CRASHCHECK_OP_BEGIN
#define CRASHCHECK_OP_BEGIN() ((void)0)
#define CRASHCHECK_OP_END() ((void)0)
#endif

static struct table *open_table(const char *path) {
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    if (fd < 0 || ftruncate(fd, sizeof(struct table)) != 0) {
        perror(path);
        exit(2);
    }
    struct table *table = mmap(NULL, sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (table == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    close(fd);
    return table;
}

static void commit(struct bucket *bucket, uint64_t used) {
    bucket->used = used;
    flush(&bucket->used, sizeof bucket->used);
    fence();
}

static void write_entry(struct entry *entry, uint64_t key, uint64_t value) {
    entry->key = key;
    entry->value = value;
    flush(entry, sizeof *entry);
}

static const char *insert(struct table *table, uint64_t key, uint64_t value) {
    struct bucket *bucket = bucket_of(table, key);
    if (find(bucket, key) >= 0)
        return "exists";
    int slot = find_free(bucket);
    if (slot < 0)
        return "full";
    write_entry(&bucket->entry[slot], key, value);
    fence();
    commit(bucket, bucket->used | 1ULL << slot);
    return "ok";
}

/* The new entry goes to a free slot; the word then drops the old one and takes the new one at once. */
static const char *update(struct table *table, uint64_t key, uint64_t value) {
    struct bucket *bucket = bucket_of(table, key);
    int old = find(bucket, key), slot = find_free(bucket);
    if (old < 0)
        return "missing";
    if (slot < 0)
        return "full";
    write_entry(&bucket->entry[slot], key, value);
    fence();
    commit(bucket, (bucket->used & ~(1ULL << old)) | 1ULL << slot);
    return "ok";
}

static const char *delete(struct table *table, uint64_t key) {
    struct bucket *bucket = bucket_of(table, key);
    int slot = find(bucket, key);
    if (slot < 0)
        return "missing";
    commit(bucket, bucket->used & ~(1ULL << slot));
    return "ok";
}

static const char *query(struct table *table, uint64_t key) {
    static char text[32];
    const struct bucket *bucket = bucket_of(table, key);
    int slot = find(bucket, key);
    if (slot < 0)
        return "missing";
    snprintf(text, sizeof text, "%" PRIu64, bucket->entry[slot].value);
    return text;
}

int main(int argc, char **argv) {
    FILE *operations = argc == 3 ? fopen(argv[2], "r") : NULL;
    if (!operations) {
        fprintf(stderr, "usage: %s FILE OPERATIONS\n", argv[0]);
        return 2;
    }
    struct table *table = open_table(argv[1]);
    char line[128], name[16];
    while (fgets(line, sizeof line, operations)) {
        uint64_t key = 0, value = 0;
        if (sscanf(line, "%15s %" SCNu64 " %" SCNu64, name, &key, &value) < 2)
            return 2;
        CRASHCHECK_OP_BEGIN();
        const char *answer = name[0] == 'i'   ? insert(table, key, value)
                             : name[0] == 'u' ? update(table, key, value)
                             : name[0] == 'd' ? delete(table, key)
                                              : query(table, key);
        CRASHCHECK_OP_END();
        printf("%s %" PRIu64 ": %s\n", name, key, answer);
    }
    fclose(operations);
    return 0;
}
