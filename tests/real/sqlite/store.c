/* SQLite, synchronous=FULL unless the mode sets something else: a commit survives a power failure (sqlite.org/pragma.html).
 *
 * Modes: "delete" (rollback journal), "truncate", "persist", "wal", and "mmap" (rollback journal, database mapped to be read).
 */
#include "store.h"

#include <limits.h>
#include <sqlite3.h>
#include <string.h>

static sqlite3 *db;

static int result(const char *call, int rc)
{
    return rc == SQLITE_OK || rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : store_wrong(call, sqlite3_errmsg(db));
}

static int sql(const char *text)
{
    return result(text, sqlite3_exec(db, text, NULL, NULL, NULL));
}

/* Runs a statement whose parameters are a key and, if `value` is given, a value. */
static int run(const char *text, const char *key, const void *value, size_t size)
{
    sqlite3_stmt *statement;
    if (result(text, sqlite3_prepare_v2(db, text, -1, &statement, NULL)) ||
        result(text, sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC)) ||
        (value && result(text, sqlite3_bind_blob(statement, 2, value, (int)size, SQLITE_STATIC))) ||
        result(text, sqlite3_step(statement)))
        return -1;
    return result(text, sqlite3_finalize(statement));
}

/* The first column of the only row: a number, or bytes that are copied to `value`. */
static long query(const char *text, const char *key, void *value, size_t room)
{
    sqlite3_stmt *statement;
    long found = -1;
    if (result(text, sqlite3_prepare_v2(db, text, -1, &statement, NULL)) ||
        (key && result(text, sqlite3_bind_text(statement, 1, key, -1, SQLITE_STATIC))))
        return -1;
    if (sqlite3_step(statement) == SQLITE_ROW) {
        if (value) {
            found = sqlite3_column_bytes(statement, 0);
            memcpy(value, sqlite3_column_blob(statement, 0), (size_t)found < room ? (size_t)found : room);
        } else {
            found = sqlite3_column_int(statement, 0);
        }
    }
    sqlite3_finalize(statement);
    return found;
}

int store_open(const char *folder, const char *mode)
{
    char path[PATH_MAX], journal[64];
    int mapped = strcmp(mode, "mmap") == 0;
    snprintf(path, sizeof path, "%s/data.sqlite", folder);
    snprintf(journal, sizeof journal, "PRAGMA journal_mode=%s", mapped ? "delete" : mode);
    return result("sqlite3_open", sqlite3_open(path, &db)) || sql(journal) || sql("PRAGMA synchronous=FULL") ||
           sql("PRAGMA wal_autocheckpoint=8") || (mapped && sql("PRAGMA mmap_size=1048576")) ||
           sql("CREATE TABLE IF NOT EXISTS pairs(key TEXT PRIMARY KEY, value BLOB) WITHOUT ROWID");
}

int store_begin(void)
{
    return sql("BEGIN IMMEDIATE");
}

int store_put(const char *key, const void *value, size_t size)
{
    return run("INSERT OR REPLACE INTO pairs VALUES(?, ?)", key, value, size);
}

int store_delete(const char *key)
{
    return run("DELETE FROM pairs WHERE key = ?", key, NULL, 0);
}

int store_commit(void)
{
    return sql("COMMIT");
}

long store_get(const char *key, void *value, size_t room)
{
    return query("SELECT value FROM pairs WHERE key = ?", key, value, room);
}

long store_count(void)
{
    return query("SELECT count(*) FROM pairs", NULL, NULL, 0);
}

int store_verify(void)
{
    return query("SELECT count(*) FROM pragma_integrity_check WHERE integrity_check <> 'ok'", NULL, NULL, 0) == 0
               ? 0
               : store_wrong("PRAGMA integrity_check", sqlite3_errmsg(db));
}

int store_close(void)
{
    return result("sqlite3_close", sqlite3_close(db));
}
