/* Is the database exactly what some first k transactions make of it? `check FOLDER ACKED PROMISE`, where k is at most
 * ACKED + 1 (one transaction was under way) and PROMISE names how many acknowledged ones may be missing:
 *   durable        none
 *   all-but-last   the last one (MDB_NOMETASYNC: "a system crash may undo the last committed transaction")
 *   consistent     any number, but what is there must be whole
 *
 * It opens the environment as a reader does, walks the whole tree, recomputes the content of every key for the k
 * that "count" holds, and audits the pages as mdb.c's mdb_audit does: each page is a meta page, in use by a tree, or
 * free, and none is two of these. Exit 0: consistent. 1: not, and standard output shows what differs.
 */
#include "content.h"
#include "modes.h"

#include <inttypes.h>
#include <stdlib.h>

static int wrong(const char *what)
{
    printf("inconsistent: %s\n", what);
    return 1;
}

static int lmdb_wrong(const char *call, int rc)
{
    printf("inconsistent: %s: %s\n", call, mdb_strerror(rc));
    return 1;
}

static int check_content(MDB_txn *txn, MDB_dbi dbi, uint64_t least, uint64_t most)
{
    unsigned char value[VALUE_MAX];
    MDB_val key = {5, "count"}, data;
    MDB_cursor *cursor;
    uint64_t k = 0, keys = 0;
    int rc = mdb_get(txn, dbi, &key, &data);

    if (rc == MDB_SUCCESS) {
        if (data.mv_size != sizeof k)
            return wrong("count has another size");
        memcpy(&k, data.mv_data, sizeof k);
    } else if (rc != MDB_NOTFOUND) {
        return lmdb_wrong("mdb_get", rc);
    }
    if (k < least || k > most) {
        printf("inconsistent: %" PRIu64 " transactions, expected %" PRIu64 " to %" PRIu64 "\n", k, least, most);
        return 1;
    }
    rc = mdb_cursor_open(txn, dbi, &cursor);
    if (rc != MDB_SUCCESS)
        return lmdb_wrong("mdb_cursor_open", rc);
    while ((rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT)) == MDB_SUCCESS) {
        char name[KEY_MAX];
        size_t size;
        if (key.mv_size == 0 || key.mv_size >= sizeof name)
            return wrong("a key that was never put");
        memcpy(name, key.mv_data, key.mv_size);
        name[key.mv_size] = 0;
        size = content_expected(name, k, value);
        if (size == 0 || size != data.mv_size || memcmp(value, data.mv_data, size) != 0) {
            printf("inconsistent: %s is not what %" PRIu64 " transactions make of it\n", name, k);
            return 1;
        }
        if (++keys > content_keys(k))
            return wrong("more keys than were put");
    }
    if (rc != MDB_NOTFOUND)
        return lmdb_wrong("mdb_cursor_get", rc);
    mdb_cursor_close(cursor);
    if (keys != content_keys(k)) {
        printf("inconsistent: %" PRIu64 " keys after %" PRIu64 " transactions, expected %" PRIu64 "\n", keys, k,
               content_keys(k));
        return 1;
    }
    printf("consistent: %" PRIu64 " transactions, %" PRIu64 " keys\n", k, keys);
    return 0;
}

static uint64_t tree_pages(const MDB_stat *stat)
{
    return stat->ms_branch_pages + stat->ms_leaf_pages + stat->ms_overflow_pages;
}

/* LMDB's own database 0 lists the free pages: a transaction number -> a count and that many page numbers. */
static int check_pages(MDB_env *env, MDB_txn *txn, MDB_dbi dbi)
{
    unsigned char is_free[MAP_BYTES / 512] = {0};
    MDB_stat stat;
    MDB_envinfo info;
    MDB_cursor *cursor;
    MDB_val key, data;
    uint64_t pages, used, free_pages = 0;
    int rc;

    if ((rc = mdb_env_info(env, &info)) != MDB_SUCCESS)
        return lmdb_wrong("mdb_env_info", rc);
    pages = info.me_last_pgno + 1;
    if (pages > sizeof is_free)
        return wrong("more pages than the map holds");
    if ((rc = mdb_stat(txn, 0, &stat)) != MDB_SUCCESS)
        return lmdb_wrong("mdb_stat", rc);
    used = 2 + tree_pages(&stat);
    if ((rc = mdb_stat(txn, dbi, &stat)) != MDB_SUCCESS)
        return lmdb_wrong("mdb_stat", rc);
    used += tree_pages(&stat);
    if ((rc = mdb_cursor_open(txn, 0, &cursor)) != MDB_SUCCESS)
        return lmdb_wrong("mdb_cursor_open", rc);
    while ((rc = mdb_cursor_get(cursor, &key, &data, MDB_NEXT)) == MDB_SUCCESS) {
        size_t count, i, page;
        memcpy(&count, data.mv_data, sizeof count);
        if ((count + 1) * sizeof page > data.mv_size)
            return wrong("a free list that is longer than its record");
        for (i = 1; i <= count; i++) {
            memcpy(&page, (char *)data.mv_data + i * sizeof page, sizeof page);
            if (page < 2 || page >= pages || is_free[page])
                return wrong("a free page that is none, or listed twice");
            is_free[page] = 1;
            free_pages++;
        }
    }
    if (rc != MDB_NOTFOUND)
        return lmdb_wrong("mdb_cursor_get", rc);
    mdb_cursor_close(cursor);
    if (used + free_pages != pages) {
        printf("inconsistent: %" PRIu64 " pages in use and %" PRIu64 " free of %" PRIu64 "\n", used, free_pages, pages);
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    MDB_env *env;
    MDB_txn *txn;
    MDB_dbi dbi;
    uint64_t acked, least;
    int rc, failed;

    if (argc != 4 || !content_promise(argv[3], acked = strtoull(argv[2], NULL, 10), &least)) {
        fprintf(stderr, "usage: check FOLDER ACKED durable|all-but-last|consistent\n");
        return 2;
    }
    if ((rc = mdb_env_create(&env)) != MDB_SUCCESS)
        return lmdb_wrong("mdb_env_create", rc);
    /* No lock file: readers of other processes do not survive a crash, and nothing else has the image open. */
    if ((rc = mdb_env_open(env, argv[1], MDB_RDONLY | MDB_NOLOCK, 0644)) != MDB_SUCCESS)
        return lmdb_wrong("mdb_env_open", rc);
    if ((rc = mdb_txn_begin(env, NULL, MDB_RDONLY, &txn)) != MDB_SUCCESS)
        return lmdb_wrong("mdb_txn_begin", rc);
    if ((rc = mdb_dbi_open(txn, NULL, 0, &dbi)) != MDB_SUCCESS)
        return lmdb_wrong("mdb_dbi_open", rc);
    failed = check_pages(env, txn, dbi) || check_content(txn, dbi, least, acked + 1);
    mdb_txn_abort(txn);
    mdb_env_close(env);
    return failed;
}
