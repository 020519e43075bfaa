/* Is the store consistent? `check FILE ACKED`: each committed record must be the one that was put, and at least ACKED must be
 * committed. */
#include "store.h"

#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    static struct store store;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(&store, sizeof store, 1, file) != 1 || store.magic != STORE_MAGIC) {
        fprintf(stderr, "%s is not a store\n", argc == 3 ? argv[1] : "the argument");
        return 1;
    }
    fclose(file);
    if (store.committed > (uint64_t)RECORDS) {
        fprintf(stderr, "%llu records should be committed\n", (unsigned long long)store.committed);
        return 1;
    }
    for (unsigned i = 0; i < store.committed; i++) {
        struct record expected = record_of(i + 1);
        if (memcmp(&store.records[i], &expected, sizeof expected) != 0) {
            fprintf(stderr, "record %u is committed but holds \"%.24s\": \"%.40s\"\n", i + 1, store.records[i].key, store.records[i].value);
            return 1;
        }
    }
    if (store.committed < strtoull(argv[2], NULL, 10)) {
        fprintf(stderr, "%s records were acknowledged, %llu are committed\n", argv[2], (unsigned long long)store.committed);
        return 1;
    }
    return 0;
}
