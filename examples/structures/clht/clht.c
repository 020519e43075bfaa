/* A cache-line hash table in persistent memory, after CLHT (David, Guerraoui, Trigonakis, ASPLOS 2015) and its persistent
 * conversion in RECIPE (Lee et al., SOSP 2019).
 *
 * A bucket is one cache line: a lock, three keys, three values and the next bucket of its chain. Stores to one line persist in
 * the order in which they are made, so that a value followed by its key needs no fence between them. A full chain gets another
 * bucket, which is written back before it is linked. Too many of these, and all pairs are copied to a table twice as large,
 * which one store of the root's pointer puts in place; the old table is given back. */
#include "../common/driver.h"

#define SLOTS 3
#define FIRST_BUCKETS 4
#define PATIENCE 1000

/* A key of 0 is a free slot. Heads of chains are in the table's array; `next` is the offset of another bucket, or 0. */
struct bucket {
    uint64_t lock;
    uint64_t key[SLOTS];
    uint64_t value[SLOTS];
    uint64_t next;
} __attribute__((aligned(LINE)));

struct table {
    uint64_t buckets; /* a power of two */
    uint64_t seed;
    uint64_t array; /* the heads of its chains */
} __attribute__((aligned(LINE)));

struct root {
    uint64_t table;
} __attribute__((aligned(LINE)));

static struct root *root;
static uint64_t overflowing; /* buckets behind the heads of the present table */

static struct bucket *bucket_at(uint64_t offset) { return offset ? AT(struct bucket, offset) : NULL; }

static struct bucket *buckets_of(const struct table *table) { return AT(struct bucket, table->array); }

static struct bucket *head_in(const struct table *table, uint64_t key) {
    uint64_t hash = (key ^ table->seed) * 0x9e3779b97f4a7c15ULL;
    return &buckets_of(table)[(hash >> 32) & (table->buckets - 1)];
}

static struct bucket *head_of(uint64_t key) { return head_in(AT(struct table, root->table), key); }

static void lock(struct bucket *head) {
    int left = PATIENCE;
    while (head->lock) /* one thread: nobody will unlock it */
        if (--left == 0)
            abort();
    head->lock = 1; /* BUG 8 */
}

static void unlock(struct bucket *head) { PUBLISH(head->lock, 0); }

/* A bucket for a chain, empty and not yet written back. */
static struct bucket *take_bucket(void) {
    struct bucket *bucket = AT(struct bucket, pool_alloc(sizeof *bucket));
    bucket->lock = 0;
    for (int i = 0; i < SLOTS; i++)
        bucket->key[i] = 0;
    bucket->next = 0;
    return bucket;
}

static struct bucket *find(struct bucket *head, uint64_t key, int *slot) {
    for (struct bucket *bucket = head; bucket; bucket = bucket_at(bucket->next))
        for (int i = 0; i < SLOTS; i++)
            if (bucket->key[i] == key) {
                *slot = i;
                return bucket;
            }
    return NULL;
}

/* The value first: whoever sees the key sees its value. */
static void fill(struct bucket *bucket, int slot, uint64_t key, uint64_t value) {
#if BUG == 1
    bucket->key[slot] = key;
    PUBLISH(bucket->value[slot], value); /* BUG 1 */
#else
    bucket->value[slot] = value;
    PUBLISH(bucket->key[slot], key);
#endif
}

/* While a new table is filled nobody sees it: nothing is written back until it is whole. */
static void copy_pair(struct table *to, uint64_t key, uint64_t value) {
    struct bucket *bucket = head_in(to, key);
    for (;;) {
        for (int i = 0; i < SLOTS; i++)
            if (bucket->key[i] == 0) {
                bucket->value[i] = value;
                bucket->key[i] = key; /* BUG 5, 7 */
                return;
            }
        if (!bucket->next) {
            struct bucket *more = take_bucket();
            overflowing++;
            bucket->next = OFFSET(more);
        }
        bucket = bucket_at(bucket->next);
    }
}

/* Gives back a table that is no longer the root's. */
static void free_table(struct table *old) {
    struct bucket *array = buckets_of(old);
    uint64_t buckets = old->buckets;
    for (uint64_t i = 0; i < buckets; i++)
        for (struct bucket *more = bucket_at(array[i].next), *next; more; more = next) {
            next = bucket_at(more->next);
            pool_free(OFFSET(more), sizeof *more);
        }
    pool_free(OFFSET(array), buckets * sizeof *array);
    pool_free(OFFSET(old), sizeof *old);
}

/* A table whose buckets hold whatever its memory held before. */
static struct table *take_table(uint64_t buckets, uint64_t seed) {
    struct table *table = AT(struct table, pool_alloc(sizeof *table));
    table->buckets = buckets; /* BUG 11 */
    table->seed = seed;
    table->array = pool_alloc(buckets * sizeof(struct bucket));
    return table;
}

static void flush_buckets(struct table *table) {
    struct bucket *array = buckets_of(table);
    flush(array, (BUG == 5 ? table->buckets / 2 : table->buckets) * sizeof *array);
    for (uint64_t i = 0; BUG != 7 && i < table->buckets; i++)
        for (const struct bucket *more = bucket_at(array[i].next); more; more = bucket_at(more->next))
            flush(more, sizeof *more);
}

static void resize(void) {
    struct table *old = AT(struct table, root->table), *table = take_table(2 * old->buckets, old->seed + 1);
    const struct bucket *from = buckets_of(old);
    memset(buckets_of(table), 0, table->buckets * sizeof *from);
    overflowing = 0;
    for (uint64_t i = 0; i < old->buckets; i++)
        for (const struct bucket *bucket = &from[i]; bucket; bucket = bucket_at(bucket->next))
            for (int slot = 0; slot < SLOTS; slot++)
                if (bucket->key[slot])
                    copy_pair(table, bucket->key[slot], bucket->value[slot]);
    if (BUG != 11)
        flush(table, sizeof *table);
    flush_buckets(table);
    if (BUG != 4)
        fence();
    PUBLISH(root->table, OFFSET(table)); /* BUG 4, 6 */
    if (BUG != 6)
        persist(root, sizeof *root);
    free_table(old);
}

/* The pool's memory is zeros until it is first given back. */
static void create(void) {
    struct table *table = take_table(FIRST_BUCKETS, 1);
    persist(table, sizeof *table);
    uint64_t block = pool_alloc(sizeof *root);
    AT(struct root, block)->table = OFFSET(table);
    persist(AT(struct root, block), sizeof *root);
    pool_set_root(block);
}

/* What a process had locked when it died stays locked in the file. */
static void structure_open(void) {
    if (!pool_root())
        create();
    root = AT(struct root, pool_root());
    struct table *table = AT(struct table, root->table);
    overflowing = 0;
    for (uint64_t i = 0; i < table->buckets; i++) {
        struct bucket *head = &buckets_of(table)[i];
        if (BUG != 8 && head->lock)
            unlock(head);
        for (const struct bucket *more = bucket_at(head->next); more; more = bucket_at(more->next))
            overflowing++;
    }
}

static void append(struct bucket *last, uint64_t key, uint64_t value) {
    struct bucket *more = take_bucket();
    overflowing++;
    fill(more, 0, key, value); /* BUG 2 */
    if (BUG != 2)
        persist(more, sizeof *more);
    PUBLISH(last->next, OFFSET(more));
    persist(last, sizeof *last);
}

static bool structure_insert(uint64_t key, uint64_t value) {
    struct bucket *head = head_of(key), *last = head;
    int slot;
    bool added = false;
    lock(head);
    if (find(head, key, &slot)) {
        unlock(head);
        return false;
    }
    struct bucket *room = find(head, 0, &slot);
    if (room) {
        fill(room, slot, key, value);
        persist(room, sizeof *room);
    } else {
        while (last->next)
            last = bucket_at(last->next);
        append(last, key, value);
        added = true;
    }
    unlock(head);
    if (added && overflowing > AT(struct table, root->table)->buckets / 2)
        resize();
    return true;
}

static bool structure_update(uint64_t key, uint64_t value) {
    struct bucket *head = head_of(key);
    int slot;
    lock(head);
    struct bucket *bucket = find(head, key, &slot);
    if (bucket) {
#if BUG == 10
        PUBLISH(bucket->key[slot], 0); /* BUG 10 */
        fill(bucket, slot, key, value);
#else
        bucket->value[slot] = value;
#endif
        persist(bucket, sizeof *bucket);
    }
    unlock(head);
    return bucket != NULL;
}

static bool empty(const struct bucket *bucket) {
    for (int i = 0; i < SLOTS; i++)
        if (bucket->key[i])
            return false;
    return true;
}

static bool structure_delete(uint64_t key) {
    struct bucket *head = head_of(key);
    int slot;
    lock(head);
    struct bucket *bucket = find(head, key, &slot);
    if (bucket) {
        bucket->key[slot] = 0; /* BUG 9 */
        if (BUG != 9)
            persist(bucket, sizeof *bucket);
        if (bucket != head && empty(bucket)) {
            struct bucket *before = head;
            while (bucket_at(before->next) != bucket)
                before = bucket_at(before->next);
            PUBLISH(before->next, bucket->next); /* BUG 3 */
            if (BUG != 3)
                persist(before, sizeof *before);
            pool_free(OFFSET(bucket), sizeof *bucket);
            overflowing--;
        }
    }
    unlock(head);
    return bucket != NULL;
}

static bool structure_query(uint64_t key, uint64_t *value) {
    int slot;
    const struct bucket *bucket = find(head_of(key), key, &slot);
    if (bucket)
        *value = bucket->value[slot];
    return bucket != NULL;
}

static size_t structure_collect(uint64_t least, struct pair *found) {
    const struct table *table = AT(struct table, root->table);
    size_t count = 0;
    for (uint64_t i = 0; i < table->buckets; i++)
        for (const struct bucket *bucket = &buckets_of(table)[i]; bucket; bucket = bucket_at(bucket->next))
            for (int slot = 0; slot < SLOTS; slot++)
                if (bucket->key[slot] && bucket->key[slot] >= least && count < MOST_PAIRS)
                    found[count++] = (struct pair){bucket->key[slot], bucket->value[slot]};
    return count;
}
