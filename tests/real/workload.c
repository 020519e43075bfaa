/* `workload MODE FOLDER TRANSACTIONS [-v]` runs that many transactions on a store; 0 only creates it.
 *
 * Each transaction is a marked operation. With -v each acknowledgement is also printed, for tests with `kill -9` by hand.
 */
#include "transaction.h"

#include <crashcheck.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    uint64_t number, transactions, sum = 0;

    if (argc < 4) {
        fprintf(stderr, "usage: workload MODE FOLDER TRANSACTIONS [-v]\n");
        return 2;
    }
    transactions = strtoull(argv[3], NULL, 10);
    if (store_open(argv[2], argv[1]))
        return 2;
    for (number = 1; number <= transactions; number++) {
        CRASHCHECK_OP_BEGIN();
        if (transaction(number, &sum))
            return 2;
        CRASHCHECK_OP_END();
        if (argc > 4) {
            printf("%u\n", (unsigned)number);
            fflush(stdout);
        }
    }
    return store_close() ? 2 : 0;
}
