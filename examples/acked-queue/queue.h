/* A queue of messages in persistent memory. */
#ifndef QUEUE_H
#define QUEUE_H

#include <stdint.h>

#define LINE 64
#define MESSAGES 16

struct message {
    uint64_t id;
    uint64_t amount;
} __attribute__((aligned(LINE)));

struct queue {
    uint64_t count; /* messages that have been accepted */
    struct message messages[MESSAGES];
} __attribute__((aligned(LINE)));

static inline uint64_t amount_of(uint64_t id) { return id * 250; }

#endif
