/* The list's program: `create FILE` makes a list with one node, `run FILE` pushes more. */
#include "list.h"

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

#define PUSHES 5

/* The allocator is volatile: nodes above the highest one reachable are free again after a restart. */
static _Atomic uint64_t next_free;

static inline void clwb(const volatile void *address) { __asm__ volatile("clwb %0" : : "m"(*(const volatile char *)address) : "memory"); }
static inline void sfence(void) { __asm__ volatile("sfence" : : : "memory"); }

static struct list *open_list(const char *path, int flags) {
    int fd = open(path, O_RDWR | flags, 0644);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(struct list)) != 0)) {
        perror(path);
        exit(2);
    }
    struct list *list = mmap(NULL, sizeof *list, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (list == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    close(fd);
    return list;
}

static int push(struct list *list, uint64_t value) {
    uint64_t index = atomic_fetch_add(&next_free, 1);
    if (index >= NODES)
        return 0;
    struct node *node = &list->nodes[index];
    node->value = value;
    uint64_t head = atomic_load(&list->head);
    do {
        node->next = head;
        /* No sfence: the compare-and-swap is a locked instruction, and so a fence. */
        clwb(node);
    } while (!atomic_compare_exchange_weak(&list->head, &head, index));
    clwb(&list->head);
    sfence();
    return 1;
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s create|run FILE\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "create") == 0) {
        struct list *list = open_list(argv[2], O_CREAT);
        list->nodes[1].value = 100;
        atomic_store(&list->head, 1);
        return msync(list, sizeof *list, MS_SYNC) == 0 ? 0 : 2;
    }
    struct list *list = open_list(argv[2], 0);
    atomic_store(&next_free, atomic_load(&list->head) + 1);
    for (uint64_t i = 1; i <= PUSHES; i++) {
        CRASHCHECK_OP_BEGIN();
        if (!push(list, 100 + i)) {
            fprintf(stderr, "no node is free\n");
            return 2;
        }
        CRASHCHECK_OP_END();
    }
    return 0;
}
