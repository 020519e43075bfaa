/* lmdb FOLDER put N: N transactions, each printed once it is committed. lmdb FOLDER get FILE: every printed key is there. */
#include <lmdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void need(int error, const char *what)
{
    if (error) {
        printf("%s: %s\n", what, mdb_strerror(error));
        exit(1);
    }
}

int main(int count, char **words)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    char name[100];
    if (count < 4)
        return 2;
    need(mdb_env_create(&env), "create");
    need(mdb_env_set_mapsize(env, 1 << 20), "size");
    need(mdb_env_open(env, words[1], 0, 0644), "open");
    if (strcmp(words[2], "put") == 0) {
        for (int i = 0; i < atoi(words[3]); i++) {
            need(mdb_txn_begin(env, NULL, 0, &txn), "begin");
            need(mdb_dbi_open(txn, NULL, 0, &dbi), "dbi");
            MDB_val key = {(size_t)snprintf(name, sizeof name, "key%d", i), name};
            need(mdb_put(txn, dbi, &key, &key, 0), "put");
            need(mdb_txn_commit(txn), "commit");
            puts(name);
            fflush(stdout);
        }
    } else {
        FILE *printed = fopen(words[3], "r");
        need(mdb_txn_begin(env, NULL, MDB_RDONLY, &txn), "begin");
        need(mdb_dbi_open(txn, NULL, 0, &dbi), "dbi");
        while (printed && fgets(name, sizeof name, printed)) {
            char *end = strchr(name, '\n');
            MDB_val key = {end ? (size_t)(end - name) : 0, name}, value;
            if (end)
                need(mdb_get(txn, dbi, &key, &value), name);
        }
        mdb_txn_abort(txn);
    }
    mdb_env_close(env);
    return 0;
}
