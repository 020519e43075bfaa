/* A lock-free stack of numbers in persistent memory, linked by index, newest first. */
#ifndef LIST_H
#define LIST_H

#include <stdatomic.h>
#include <stdint.h>

#define LINE 64
#define NODES 16

struct node {
    uint64_t value;
    uint64_t next; /* index of the next node; 0 ends the list */
} __attribute__((aligned(LINE)));

struct list {
    _Atomic uint64_t head; /* index of the newest node */
    struct node nodes[NODES];
} __attribute__((aligned(LINE)));

#endif
