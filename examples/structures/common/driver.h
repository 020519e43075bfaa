/* Runs a file of operations on a structure: `driver POOL OPERATIONS`. Prints the result of each operation, one line per operation.
 *
 * A line is `insert KEY VALUE`, `update KEY VALUE`, `delete KEY`, `query KEY` or `scan KEY COUNT`; the first letter is enough.
 * Keys are 1 or more. A scan gives the first COUNT pairs with keys of at least KEY, in the order of keys.
 *
 * A structure's source defines the functions below and includes this file before them. */
#ifndef DRIVER_H
#define DRIVER_H

#include "pool.h"

#include <inttypes.h>
#include <stdbool.h>
#ifdef __has_include
#if __has_include("crashcheck.h")
#include "crashcheck.h"
#endif
#endif
#ifndef CRASHCHECK_OP_BEGIN
#define CRASHCHECK_OP_BEGIN() ((void)0)
#define CRASHCHECK_OP_END() ((void)0)
#endif

#define MOST_PAIRS 8192

struct pair {
    uint64_t key;
    uint64_t value;
};

static void structure_open(void);                               /* makes it in an empty pool, else recovers it */
static bool structure_insert(uint64_t key, uint64_t value);     /* false: the key is there */
static bool structure_update(uint64_t key, uint64_t value);     /* false: it is not */
static bool structure_delete(uint64_t key);                     /* false: it is not */
static bool structure_query(uint64_t key, uint64_t *value);     /* false: it is not */
static size_t structure_collect(uint64_t least, struct pair *); /* the pairs with keys of at least `least`, in any order */

static int driver_order(const void *left, const void *right) {
    uint64_t a = ((const struct pair *)left)->key, b = ((const struct pair *)right)->key;
    return (a > b) - (a < b);
}

static void driver_scan(uint64_t key, uint64_t count) {
    static struct pair found[MOST_PAIRS];
    size_t length = structure_collect(key, found);
    qsort(found, length, sizeof *found, driver_order);
    printf("scan %" PRIu64 ":", key);
    for (size_t i = 0; i < length && i < count; i++)
        printf(" %" PRIu64 "=%" PRIu64, found[i].key, found[i].value);
    putchar('\n');
}

static void driver_run(char *line) {
    char *rest = line + strcspn(line, " ");
    uint64_t key = strtoull(rest, &rest, 10), value = strtoull(rest, &rest, 10);
    if (key == 0) {
        fprintf(stderr, "not an operation: %s", line);
        exit(2);
    }
    bool done;
    CRASHCHECK_OP_BEGIN();
    switch (line[0]) {
    case 'i':
        done = structure_insert(key, value);
        CRASHCHECK_OP_END();
        printf("insert %" PRIu64 ": %s\n", key, done ? "ok" : "exists");
        break;
    case 'u':
        done = structure_update(key, value);
        CRASHCHECK_OP_END();
        printf("update %" PRIu64 ": %s\n", key, done ? "ok" : "missing");
        break;
    case 'd':
        done = structure_delete(key);
        CRASHCHECK_OP_END();
        printf("delete %" PRIu64 ": %s\n", key, done ? "ok" : "missing");
        break;
    case 's':
        driver_scan(key, value);
        CRASHCHECK_OP_END();
        break;
    default:
        done = structure_query(key, &value);
        CRASHCHECK_OP_END();
        if (done)
            printf("query %" PRIu64 ": %" PRIu64 "\n", key, value);
        else
            printf("query %" PRIu64 ": missing\n", key);
    }
}

int main(int argc, char **argv) {
    FILE *operations = argc == 3 ? fopen(argv[2], "r") : NULL;
    if (!operations) {
        fprintf(stderr, "usage: %s POOL OPERATIONS\n", argv[0]);
        return 2;
    }
    pool_open(argv[1]);
    structure_open();
    char line[128];
    while (fgets(line, sizeof line, operations))
        driver_run(line);
    fclose(operations);
    return 0;
}

#endif
