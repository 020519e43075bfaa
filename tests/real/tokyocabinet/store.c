/* Tokyo Cabinet's hash (mode "hash") or B+ tree database ("tree"), opened with OTSYNC: "synchronise every transaction". */
#include "store.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <tcbdb.h>

static TCHDB *hash;
static TCBDB *tree;

static int result(const char *call, bool done)
{
    return done ? 0 : store_wrong(call, tchdberrmsg(hash ? tchdbecode(hash) : tcbdbecode(tree)));
}

int store_open(const char *folder, const char *mode)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/data.tc", folder);
    if (strcmp(mode, "hash") == 0) {
        hash = tchdbnew();
        return result("tchdbtune", tchdbtune(hash, 4096, 4, 10, 0)) ||
               result("tchdbopen", tchdbopen(hash, path, HDBOWRITER | HDBOCREAT | HDBOTSYNC));
    }
    tree = tcbdbnew();
    return result("tcbdbtune", tcbdbtune(tree, 8, 8, 4096, 4, 10, 0)) ||
           result("tcbdbopen", tcbdbopen(tree, path, BDBOWRITER | BDBOCREAT | BDBOTSYNC));
}

int store_begin(void)
{
    return result("tranbegin", hash ? tchdbtranbegin(hash) : tcbdbtranbegin(tree));
}

int store_put(const char *key, const void *value, size_t size)
{
    int length = (int)strlen(key);
    return result("put", hash ? tchdbput(hash, key, length, value, (int)size) : tcbdbput(tree, key, length, value, (int)size));
}

int store_delete(const char *key)
{
    int length = (int)strlen(key);
    return result("out", hash ? tchdbout(hash, key, length) : tcbdbout(tree, key, length));
}

int store_commit(void)
{
    return result("trancommit", hash ? tchdbtrancommit(hash) : tcbdbtrancommit(tree));
}

long store_get(const char *key, void *value, size_t room)
{
    int size, length = (int)strlen(key);
    void *found = hash ? tchdbget(hash, key, length, &size) : tcbdbget(tree, key, length, &size);
    if (!found)
        return -1;
    memcpy(value, found, (size_t)size < room ? (size_t)size : room);
    free(found);
    return size;
}

long store_count(void)
{
    long keys = 0;
    int size;
    void *key;
    if (hash) {
        if (!tchdbiterinit(hash))
            return -1;
        while ((key = tchdbiternext(hash, &size)) != NULL) {
            free(key);
            keys++;
        }
    } else {
        BDBCUR *cursor = tcbdbcurnew(tree);
        bool more = tcbdbcurfirst(cursor);
        for (; more; more = tcbdbcurnext(cursor))
            keys++;
        tcbdbcurdel(cursor);
    }
    return keys;
}

int store_verify(void)
{
    return 0; /* the library has no check of its own */
}

int store_close(void)
{
    return result("close", hash ? tchdbclose(hash) : tcbdbclose(tree));
}
