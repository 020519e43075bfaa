/* QDBM's Villa, a B+ tree: a crash of the process in a transaction leaves the database whole (its specification). */
#include "store.h"

#include <depot.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <cabin.h>
#include <villa.h>

static VILLA *db;

static int result(const char *call, int done)
{
    return done ? 0 : store_wrong(call, dperrmsg(dpecode));
}

int store_open(const char *folder, const char *mode)
{
    char path[PATH_MAX];
    (void)mode;
    snprintf(path, sizeof path, "%s/data.qdbm", folder);
    db = vlopen(path, VL_OWRITER | VL_OCREAT | VL_ONOLCK, VL_CMPLEX);
    return result("vlopen", db != NULL);
}

int store_begin(void)
{
    return result("vltranbegin", vltranbegin(db));
}

int store_put(const char *key, const void *value, size_t size)
{
    return result("vlput", vlput(db, key, -1, value, (int)size, VL_DOVER));
}

int store_delete(const char *key)
{
    return result("vlout", vlout(db, key, -1));
}

int store_commit(void)
{
    return result("vltrancommit", vltrancommit(db));
}

long store_get(const char *key, void *value, size_t room)
{
    int size;
    char *found = vlget(db, key, -1, &size);
    if (!found)
        return -1;
    memcpy(value, found, (size_t)size < room ? (size_t)size : room);
    free(found);
    return size;
}

long store_count(void)
{
    long keys = 0;
    int more = vlcurfirst(db);
    for (; more; more = vlcurnext(db))
        keys++;
    return keys;
}

int store_verify(void)
{
    return 0; /* the library has no check of its own */
}

int store_close(void)
{
    return result("vlclose", vlclose(db));
}
