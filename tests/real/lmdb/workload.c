/* An LMDB writer: `workload MODE FOLDER TRANSACTIONS` runs that many transactions; 0 only creates the environment.
 *
 * Each transaction is a marked operation, acknowledged when mdb_txn_commit has returned. With -v as a fourth argument
 * each acknowledgement is also printed, for a crash test with `kill -9` by hand.
 */
#include "content.h"
#include "modes.h"

#include <crashcheck.h>
#include <stdlib.h>
#include <unistd.h>

static void must(int rc, const char *what)
{
    if (rc != MDB_SUCCESS) {
        fprintf(stderr, "%s: %s\n", what, mdb_strerror(rc));
        exit(2);
    }
}

static void put(MDB_txn *txn, MDB_dbi dbi, const char *name, void *value, size_t size)
{
    MDB_val key = {strlen(name), (void *)name};
    MDB_val data = {size, value};
    must(mdb_put(txn, dbi, &key, &data, 0), "mdb_put");
}

static void transaction(MDB_env *env, uint64_t number, uint64_t *sum)
{
    unsigned char value[VALUE_MAX];
    char name[KEY_MAX];
    MDB_txn *txn;
    MDB_dbi dbi;

    must(mdb_txn_begin(env, NULL, 0, &txn), "mdb_txn_begin");
    must(mdb_dbi_open(txn, NULL, 0, &dbi), "mdb_dbi_open");
    put(txn, dbi, "count", &number, sizeof number);
    snprintf(name, sizeof name, "slot/%02u", (unsigned)(number % SLOTS));
    put(txn, dbi, name, value, content_slot(value, number));
    snprintf(name, sizeof name, "log/%06u", (unsigned)number);
    put(txn, dbi, name, value, content_log(value, number));
    *sum += content_term(number);
    put(txn, dbi, "sum", sum, sizeof *sum);
    if (number % LARGE_EVERY == 0)
        put(txn, dbi, "large", value, content_large(value, number));
    if (number > KEEP) {
        MDB_val key = {0, name};
        snprintf(name, sizeof name, "log/%06u", (unsigned)(number - KEEP));
        key.mv_size = strlen(name);
        must(mdb_del(txn, dbi, &key, NULL), "mdb_del");
    }
    must(mdb_txn_commit(txn), "mdb_txn_commit");
}

int main(int argc, char **argv)
{
    unsigned flags;
    uint64_t number, transactions, sum = 0;
    MDB_env *env;

    if (argc < 4 || !mode_flags(argv[1], &flags)) {
        fprintf(stderr, "usage: workload MODE FOLDER TRANSACTIONS [-v]\n");
        return 2;
    }
    transactions = strtoull(argv[3], NULL, 10);
    must(mdb_env_create(&env), "mdb_env_create");
    must(mdb_env_set_mapsize(env, MAP_BYTES), "mdb_env_set_mapsize");
    must(mdb_env_open(env, argv[2], flags, 0644), "mdb_env_open");
    for (number = 1; number <= transactions; number++) {
        CRASHCHECK_OP_BEGIN();
        transaction(env, number, &sum);
        CRASHCHECK_OP_END();
        if (argc > 4) {
            printf("%u\n", (unsigned)number);
            fflush(stdout);
        }
    }
    if (transactions == 0)
        must(mdb_env_sync(env, 1), "mdb_env_sync");
    mdb_env_close(env);
    return 0;
}
