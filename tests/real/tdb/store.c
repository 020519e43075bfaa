/* TDB: transactions "automatically recover the database on the next open if the system crashes" (tdb.h). */
#include "store.h"

#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <tdb.h>

static struct tdb_context *tdb;
static int verify; /* in mode "verified"; mode "content" does without tdb_check, which refuses good databases (docs/found.md) */

static void show(struct tdb_context *of, enum tdb_debug_level level, const char *text, ...)
{
    va_list rest;
    (void)of;
    if (level > TDB_DEBUG_ERROR)
        return;
    va_start(rest, text);
    vprintf(text, rest);
    va_end(rest);
}

static int result(const char *call, int rc)
{
    return rc ? store_wrong(call, tdb_errorstr(tdb)) : 0;
}

static TDB_DATA data(const void *bytes, size_t size)
{
    TDB_DATA made = {(unsigned char *)bytes, size};
    return made;
}

int store_open(const char *folder, const char *mode)
{
    struct tdb_logging_context log = {show, NULL};
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/data.tdb", folder);
    verify = strcmp(mode, "verified") == 0;
    tdb = tdb_open_ex(path, 0, TDB_DEFAULT, O_RDWR | O_CREAT, 0644, &log, NULL);
    return tdb ? 0 : store_wrong("tdb_open_ex", "the database does not open");
}

int store_begin(void)
{
    return result("tdb_transaction_start", tdb_transaction_start(tdb));
}

int store_put(const char *key, const void *value, size_t size)
{
    return result("tdb_store", tdb_store(tdb, data(key, strlen(key)), data(value, size), TDB_REPLACE));
}

int store_delete(const char *key)
{
    return result("tdb_delete", tdb_delete(tdb, data(key, strlen(key))));
}

int store_commit(void)
{
    return result("tdb_transaction_commit", tdb_transaction_commit(tdb));
}

long store_get(const char *key, void *value, size_t room)
{
    TDB_DATA found = tdb_fetch(tdb, data(key, strlen(key)));
    long size = found.dptr ? (long)found.dsize : -1;
    if (found.dptr)
        memcpy(value, found.dptr, found.dsize < room ? found.dsize : room);
    free(found.dptr);
    return size;
}

long store_count(void)
{
    return tdb_traverse_read(tdb, NULL, NULL);
}

int store_verify(void)
{
    return verify ? result("tdb_check", tdb_check(tdb, NULL, NULL)) : 0;
}

int store_close(void)
{
    return tdb_close(tdb) ? store_wrong("tdb_close", "failed") : 0;
}
