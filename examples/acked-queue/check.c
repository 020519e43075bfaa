/* Is the queue consistent? `check FILE STDOUT`: each message that counts must be whole, and each one that STDOUT lists as accepted
 * must count. */
#include "queue.h"

#include <inttypes.h>
#include <stdio.h>

int main(int argc, char **argv) {
    static struct queue queue;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(&queue, sizeof queue, 1, file) != 1 || queue.count > MESSAGES) {
        fprintf(stderr, "%s is not a queue\n", argc == 3 ? argv[1] : "the argument");
        return 1;
    }
    fclose(file);
    for (uint64_t i = 0; i < queue.count; i++) {
        if (queue.messages[i].id != i + 1 || queue.messages[i].amount != amount_of(i + 1)) {
            fprintf(stderr, "message %" PRIu64 " is torn\n", i + 1);
            return 1;
        }
    }
    FILE *said = fopen(argv[2], "r");
    if (!said) {
        perror(argv[2]);
        return 1;
    }
    uint64_t accepted = 0, id;
    while (fscanf(said, "accepted %" SCNu64 "\n", &id) == 1)
        accepted = id;
    fclose(said);
    if (queue.count < accepted) {
        fprintf(stderr, "message %" PRIu64 " was accepted and is lost: the queue holds %" PRIu64 "\n", accepted, queue.count);
        return 1;
    }
    return 0;
}
