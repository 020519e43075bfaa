/* Is the store exactly what some first k transactions make of it, and can it be used further?
 *
 * `check MODE FOLDER ACKED PROMISE [FURTHER]`: k is at most ACKED + 1 (one transaction was under way), and PROMISE
 * limits how many acknowledged ones may be missing (content.h). FURTHER more transactions then run, as in a program that
 * continues after a crash. Exit 0: consistent. 1: not, and standard output shows what differs.
 */
#include "transaction.h"

#include <inttypes.h>
#include <stdlib.h>

static int check_key(const char *name, uint64_t k)
{
    unsigned char want[VALUE_MAX], have[VALUE_MAX + 1];
    size_t size = content_expected(name, k, want);
    long found = store_get(name, have, sizeof have);

    if (found == -1 && size == 0)
        return 0;
    if (found != (long)size || memcmp(want, have, size) != 0) {
        printf("inconsistent: %s is not what %" PRIu64 " transactions make of it\n", name, k);
        return -1;
    }
    return 0;
}

static int check_content(uint64_t k)
{
    char name[KEY_MAX];
    unsigned i;
    long keys;

    if (check_key("count", k) || check_key("sum", k) || check_key("large", k))
        return -1;
    for (i = 0; i < SLOTS; i++) {
        snprintf(name, sizeof name, "slot/%02u", i);
        if (check_key(name, k))
            return -1;
    }
    for (i = 1; i <= k + 1; i++) {
        snprintf(name, sizeof name, "log/%06u", i);
        if (check_key(name, k))
            return -1;
    }
    keys = store_count();
    if (keys != (long)content_keys(k)) {
        printf("inconsistent: %ld keys after %" PRIu64 " transactions, expected %" PRIu64 "\n", keys, k, content_keys(k));
        return -1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    uint64_t k = 0, sum = 0, least, acked, further, i;

    if (argc < 5 || !content_promise(argv[4], acked = strtoull(argv[3], NULL, 10), &least)) {
        fprintf(stderr, "usage: check MODE FOLDER ACKED durable|all-but-last|consistent [FURTHER]\n");
        return 2;
    }
    further = argc > 5 ? strtoull(argv[5], NULL, 10) : 0;
    if (store_open(argv[2], argv[1]) || store_verify())
        return 1;
    if (store_get("count", &k, sizeof k) == -1)
        k = 0;
    if (k < least || k > acked + 1) {
        printf("inconsistent: %" PRIu64 " transactions, expected %" PRIu64 " to %" PRIu64 "\n", k, least, acked + 1);
        return 1;
    }
    if (check_content(k))
        return 1;
    if (k > 0)
        store_get("sum", &sum, sizeof sum);
    for (i = 1; i <= further; i++) {
        if (transaction(k + i, &sum)) {
            printf("inconsistent: a transaction after the crash failed\n");
            return 1;
        }
    }
    if (further && (store_verify() || check_content(k + further))) {
        printf("inconsistent: so it is after %" PRIu64 " more transactions\n", further);
        return 1;
    }
    return store_close() ? 1 : 0;
}
