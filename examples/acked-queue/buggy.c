/* The queue's program: `create FILE` makes an empty queue, `run FILE` accepts messages and prints that. */
#include "queue.h"

#include <fcntl.h>
#include <immintrin.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct queue *open_queue(const char *path, int flags) {
    int fd = open(path, O_RDWR | flags, 0644);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(struct queue)) != 0)) {
        perror(path);
        exit(2);
    }
    struct queue *queue = mmap(NULL, sizeof *queue, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (queue == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    close(fd);
    return queue;
}

__attribute__((target("clflushopt"))) static void persist(void *line) {
    _mm_clflushopt(line);
    _mm_sfence();
}

/* Accepts a message and answers the sender, who then forgets it. */
static void accept_message(struct queue *queue, uint64_t id) {
    struct message *message = &queue->messages[queue->count];
    message->id = id;
    message->amount = amount_of(id);
    persist(message);
    queue->count++;
    printf("accepted %" PRIu64 "\n", id);
    fflush(stdout);
    persist(&queue->count);
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: %s create|run FILE\n", argv[0]);
        return 2;
    }
    if (strcmp(argv[1], "create") == 0) {
        open_queue(argv[2], O_CREAT);
        return 0;
    }
    struct queue *queue = open_queue(argv[2], 0);
    for (uint64_t id = 1; id <= 10; id++)
        accept_message(queue, id);
    return 0;
}
