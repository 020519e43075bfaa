/* Is the list consistent? `check FILE ACKED`: from the head on it must hold 100 + n, 100 + n - 1, ... 100, with n at least
 * ACKED. */
#include "list.h"

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    static struct list list;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(&list, sizeof list, 1, file) != 1) {
        fprintf(stderr, "%s is not a list\n", argc == 3 ? argv[1] : "the argument");
        return 1;
    }
    fclose(file);
    uint64_t index = list.head;
    if (index == 0 || index >= NODES) {
        fprintf(stderr, "the head names node %llu\n", (unsigned long long)index);
        return 1;
    }
    uint64_t newest = list.nodes[index].value;
    uint64_t expected = newest;
    for (unsigned visited = 0; index; visited++, expected--) {
        if (index >= NODES || visited == NODES || list.nodes[index].value != expected) {
            fprintf(stderr, "node %llu should hold %llu\n", (unsigned long long)index, (unsigned long long)expected);
            return 1;
        }
        index = list.nodes[index].next;
    }
    if (expected != 99) {
        fprintf(stderr, "the list ends at %llu: nodes are lost\n", (unsigned long long)expected + 1);
        return 1;
    }
    if (newest < 100 + strtoull(argv[2], NULL, 10)) {
        fprintf(stderr, "%s pushes were acknowledged, the newest value is %llu\n", argv[2], (unsigned long long)newest);
        return 1;
    }
    return 0;
}
