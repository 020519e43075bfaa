/* One of PMDK's example maps: `maps MAP FILE setup` makes an empty one, `run N` performs N operations on it, and
 * `check N ACKED` opens it after a crash: it must hold what ACKED operations leave, or one more, and take new keys. */
#ifdef RECORDED
#include <crashcheck.h>
#else
#define CRASHCHECK_OP_BEGIN()
#define CRASHCHECK_OP_END()
#endif
#include <inttypes.h>
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hashmap.h"
#include "map.h"
#include "map_hashmap_rp.h"
#include "map_rtree.h"
#include "map_skiplist.h"

#define NEW_KEYS 6

static int counts; /* whether map_foreach gives what was inserted alone: the radix tree gives its inner nodes as well */

struct root {
    TOID(struct map) map;
};

/* Operation i inserts the i-th key; every third removes the key before the last instead. */
static uint64_t key(uint64_t i)
{
    return i * 2654435761u % 1000 * 4096 + i;
}

static int removes(uint64_t i)
{
    return i % 3 == 0;
}

static int present(uint64_t i, uint64_t done)
{
    return !removes(i) && i <= done && !(removes(i + 2) && i + 2 <= done);
}

static int count(uint64_t found, PMEMoid value, void *total)
{
    (void)found;
    (void)value;
    ++*(uint64_t *)total;
    return 0;
}

static int holds(struct map_ctx *ctx, TOID(struct map) map, uint64_t operations, uint64_t done)
{
    uint64_t i, wanted = 0, found = 0;
    for (i = 1; i <= operations; i++) {
        wanted += (uint64_t)present(i, done);
        if (map_lookup(ctx, map, key(i)) != present(i, done))
            return 0;
    }
    if (!counts)
        return 1;
    map_foreach(ctx, map, count, &found);
    return found == wanted;
}

static int check(struct map_ctx *ctx, TOID(struct map) map, PMEMoid value, uint64_t operations, uint64_t acked)
{
    uint64_t i;
    if (map_check(ctx, map) || !(holds(ctx, map, operations, acked) || holds(ctx, map, operations, acked + 1)))
        return printf("the map does not hold what %" PRIu64 " operations leave\n", acked), 1;
    for (i = 1; i <= NEW_KEYS; i++)
        if (map_insert(ctx, map, operations * 5000000 + i, value) || !map_lookup(ctx, map, operations * 5000000 + i))
            return printf("a new key is not taken\n"), 1;
    return 0;
}

int main(int argc, char **argv)
{
    const struct map_ops *ops;
    struct hashmap_args seed = {1};
    uint64_t i, operations;
    int failed = 0;

    if (argc < 4)
        return 2;
    ops = !strcmp(argv[1], "rtree") ? MAP_RTREE : !strcmp(argv[1], "hashmap_rp") ? MAP_HASHMAP_RP : MAP_SKIPLIST;
    counts = ops != MAP_RTREE;
    srand(1);
    PMEMobjpool *pool = strcmp(argv[3], "setup") ? pmemobj_open(argv[2], "maps")
                                                 : pmemobj_create(argv[2], "maps", PMEMOBJ_MIN_POOL, 0644);
    if (!pool)
        return printf("%s\n", pmemobj_errormsg()), 1;
    struct map_ctx *ctx = map_ctx_init(ops, pool);
    PMEMoid value = pmemobj_root(pool, sizeof(struct root));
    struct root *root = pmemobj_direct(value);
    operations = argc > 4 ? strtoull(argv[4], NULL, 10) : 0;
    if (!strcmp(argv[3], "setup")) {
        failed = map_create(ctx, &root->map, &seed);
    } else {
        map_init(ctx, root->map);
        if (argc > 5)
            failed = check(ctx, root->map, value, operations, strtoull(argv[5], NULL, 10));
        for (i = 1; argc == 5 && i <= operations; i++) {
            CRASHCHECK_OP_BEGIN();
            if (removes(i))
                map_remove(ctx, root->map, key(i - 2));
            else
                failed |= map_insert(ctx, root->map, key(i), value);
            CRASHCHECK_OP_END();
        }
    }
    map_ctx_free(ctx);
    pmemobj_close(pool);
    return failed != 0;
}
