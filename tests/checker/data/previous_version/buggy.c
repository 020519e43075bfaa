/* The hash table's program: `create FILE` makes an empty table, `run FILE` inserts keys. */
#include "table.h"

#include <fcntl.h>
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

#define KEYS 24

static struct table *open_table(const char *path, int flags) {
    int fd = open(path, O_RDWR | flags, 0644);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(struct table)) != 0)) {
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

static int insert_into(struct bucket *bucket, uint64_t key, uint64_t value) {
    for (int i = 0; i < SLOTS; i++) {
        if (bucket->valid[i])
            continue;
        bucket->entry[i].key = key;
        bucket->entry[i].value = value;
        bucket->valid[i] = 1; // crashcheck: ignore[ordering] the table is rebuilt at start
        flush(&bucket->entry[i], sizeof bucket->entry[i]);
        flush(&bucket->valid[i], sizeof bucket->valid[i]);
        fence();
        return 1;
    }
    return 0;
}

static int insert(struct table *table, uint64_t key, uint64_t value) {
    for (int which = 0; which < 4; which++) {
        if (insert_into(candidate(table, key, which), key, value))
            return 1;
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s create|run FILE\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "create") == 0) {
        struct table *table = open_table(argv[2], O_CREAT);
        table->magic = TABLE_MAGIC;
        return msync(table, sizeof *table, MS_SYNC) == 0 ? 0 : 2;
    }
    struct table *table = open_table(argv[2], 0);
    for (uint64_t key = 1; key <= KEYS; key++) {
        CRASHCHECK_OP_BEGIN();
        if (!insert(table, key, value_of(key))) {
            fprintf(stderr, "no room for key %llu\n", (unsigned long long)key);
            return 2;
        }
        CRASHCHECK_OP_END();
    }
    return 0;
}
