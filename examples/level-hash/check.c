/* Is the table consistent? `check FILE ACKED`: every valid entry must hold the value that was inserted, and the first
 * ACKED keys must be there. */
#include "table.h"

#include <stdio.h>
#include <stdlib.h>

static int bad_entries(const struct bucket *bucket, const char *level, int number) {
    int bad = 0;
    for (int i = 0; i < SLOTS; i++) {
        const struct entry *entry = &bucket->entry[i];
        if (bucket->valid[i] && entry->value != value_of(entry->key)) {
            fprintf(stderr, "%s bucket %d, entry %d is marked valid but holds key %llu with value %llu\n", level, number, i,
                    (unsigned long long)entry->key, (unsigned long long)entry->value);
            bad = 1;
        }
    }
    return bad;
}

static int has(struct table *table, uint64_t key) {
    for (int which = 0; which < 4; which++) {
        const struct bucket *bucket = candidate(table, key, which);
        for (int i = 0; i < SLOTS; i++) {
            if (bucket->valid[i] && bucket->entry[i].key == key)
                return 1;
        }
    }
    return 0;
}

int main(int argc, char **argv) {
    static struct table table;
    FILE *file = argc == 3 ? fopen(argv[1], "rb") : NULL;
    if (!file || fread(&table, sizeof table, 1, file) != 1 || table.magic != TABLE_MAGIC) {
        fprintf(stderr, "%s is not a table\n", argc == 3 ? argv[1] : "the argument");
        return 1;
    }
    fclose(file);
    int bad = 0;
    for (int i = 0; i < TOP_BUCKETS; i++)
        bad |= bad_entries(&table.top[i], "top", i);
    for (int i = 0; i < BOTTOM_BUCKETS; i++)
        bad |= bad_entries(&table.bottom[i], "bottom", i);
    for (uint64_t key = 1; key <= strtoull(argv[2], NULL, 10); key++) {
        if (!has(&table, key)) {
            fprintf(stderr, "key %llu was acknowledged and is lost\n", (unsigned long long)key);
            bad = 1;
        }
    }
    return bad;
}
