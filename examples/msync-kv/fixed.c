/* The store's program: `create FILE` makes an empty store, `run FILE` puts records into it. */
#include "store.h"

#include <fcntl.h>
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

#define PUTS 10

static struct store *open_store(const char *path, int flags) {
    int fd = open(path, O_RDWR | flags, 0644);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(struct store)) != 0)) {
        perror(path);
        exit(2);
    }
    struct store *store = mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (store == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    close(fd);
    return store;
}

static void sync_pages(const void *start, size_t bytes) {
    if (msync((void *)((uintptr_t)start & ~(uintptr_t)(PAGE - 1)), bytes, MS_SYNC) != 0) {
        perror("msync");
        exit(2);
    }
}

static int put(struct store *store, const struct record *record) {
    uint64_t number = store->committed;
    if (number == RECORDS)
        return 0;
    store->records[number] = *record;
    sync_pages(store->records, sizeof store->records);
    store->committed = number + 1;
    sync_pages(store, PAGE);
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s create|run FILE\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "create") == 0) {
        struct store *store = open_store(argv[2], O_CREAT);
        store->magic = STORE_MAGIC;
        sync_pages(store, sizeof *store);
        return 0;
    }
    struct store *store = open_store(argv[2], 0);
    for (unsigned number = 1; number <= PUTS; number++) {
        struct record record = record_of(number);
        CRASHCHECK_OP_BEGIN();
        if (!put(store, &record)) {
            fprintf(stderr, "the store is full\n");
            return 2;
        }
        CRASHCHECK_OP_END();
    }
    return 0;
}
