/* Level hashing (Zuo, Hua, Wu, OSDI 2018): two levels of buckets, the bottom one half as large as the top one. A key has two
 * candidate buckets in each. A full table is resized in place: a new top level takes the items of the bottom level, and the old
 * top level becomes the bottom level.
 *
 * A bucket's tokens are in one word: an item counts if its token is set, and one store of the word makes a change atomic. */
#include "../common/driver.h"

#define SLOTS 4
#define FIRST_BITS 2 /* the first top level has 4 buckets */

/* A value is wider than one atomic store: the second word follows from the first. */
struct entry {
    uint64_t key;
    uint64_t value;
    uint64_t check;
};

/* Entries 0 and 1 share the tokens' line, entry 2 begins in it, and entry 3 is in the next one. */
struct bucket {
    uint64_t tokens;
    struct entry entry[SLOTS];
    uint64_t unused[3];
} __attribute__((aligned(LINE)));

/* Where the levels are: `fresh` is the new top level during a resize, else 0. */
struct geometry {
    uint64_t bits; /* the top level has 2 to the power of bits buckets */
    uint64_t top;
    uint64_t bottom;
    uint64_t fresh;
};

/* What an update in place overwrites, while it does: `entry` is 0 when none is under way. */
struct undo {
    uint64_t entry;
    uint64_t value;
    uint64_t check;
};

/* `current` decides which geometry counts. */
struct table {
    uint64_t current;
    struct geometry geometry[2] __attribute__((aligned(LINE)));
    struct undo undo __attribute__((aligned(LINE)));
} __attribute__((aligned(LINE)));

static struct table *table;

static uint64_t check_of(uint64_t value) { return (value ^ 0x5bd1e995) * 0x9e3779b97f4a7c15ULL; }

static uint64_t hash_of(uint64_t key, int which) {
    uint64_t hash = (key ^ (which ? 0xc2b2ae3d27d4eb4fULL : 0x165667b19e3779f9ULL)) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 32;
    return (hash * 0xff51afd7ed558ccdULL) >> 24;
}

static struct geometry *geometry(void) { return &table->geometry[table->current]; }

static uint64_t buckets_in(uint64_t bits) { return 1ULL << bits; }

static struct bucket *bucket_in(uint64_t level, uint64_t bits, uint64_t key, int which) {
    return AT(struct bucket, level) + hash_of(key, which) % buckets_in(bits);
}

/* Candidate bucket 0 to 3 of a key: two in the top level, then two in the bottom level. */
static struct bucket *candidate(uint64_t key, int which) {
    struct geometry *now = geometry();
    return which < 2 ? bucket_in(now->top, now->bits, key, which) : bucket_in(now->bottom, now->bits - 1, key, which & 1);
}

static bool taken(const struct bucket *bucket, int slot) { return bucket->tokens >> (8 * slot) & 1; }

static uint64_t token(int slot) { return 1ULL << (8 * slot); }

static int free_slot(const struct bucket *bucket) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (!taken(bucket, slot))
            return slot;
    return -1;
}

static int load_of(const struct bucket *bucket) {
    int load = 0;
    for (int slot = 0; slot < SLOTS; slot++)
        load += taken(bucket, slot);
    return load;
}

static int slot_of(const struct bucket *bucket, uint64_t key) {
    for (int slot = 0; slot < SLOTS; slot++)
        if (taken(bucket, slot) && bucket->entry[slot].key == key)
            return slot;
    return -1;
}

static struct bucket *find(uint64_t key, int *slot) {
    for (int which = 0; which < 4; which++) {
        struct bucket *bucket = candidate(key, which);
        *slot = slot_of(bucket, key);
        if (*slot >= 0)
            return bucket;
    }
    return NULL;
}

/* Whether the tokens, stored later in the same line, persist after the entry without a fence. */
static bool beside_tokens(const struct bucket *bucket, int slot) {
    return (uintptr_t)(&bucket->entry[slot] + 1) <= (uintptr_t)bucket + LINE;
}

static void write_entry(struct bucket *bucket, int slot, uint64_t key, uint64_t value) {
    struct entry *entry = &bucket->entry[slot];
    entry->key = key;               /* BUG 1, 2 */
    entry->value = value;           /* BUG 1, 2 */
    entry->check = check_of(value); /* BUG 1, 2 */
    if (!beside_tokens(bucket, slot))
        flush(entry, sizeof *entry);
}

static void set_tokens(struct bucket *bucket, uint64_t tokens) {
    PUBLISH(bucket->tokens, tokens);
    persist(&bucket->tokens, sizeof bucket->tokens);
}

static void add(struct bucket *bucket, int slot, uint64_t key, uint64_t value) {
    if (BUG == 2 && beside_tokens(bucket, slot)) {
        PUBLISH(bucket->tokens, bucket->tokens | token(slot)); /* BUG 2 */
        write_entry(bucket, slot, key, value);
        persist(bucket, LINE);
        return;
    }
    write_entry(bucket, slot, key, value);
    if (!beside_tokens(bucket, slot) && BUG != 1)
        fence();
    PUBLISH(bucket->tokens, bucket->tokens | token(slot)); /* BUG 1, 3 */
    if (BUG != 3)
        persist(&bucket->tokens, sizeof bucket->tokens);
}

/* Takes over the item unchanged, and then releases it: a crash in between leaves it twice. */
static void move(struct bucket *to, int slot, struct bucket *from, int old) {
    to->entry[slot] = from->entry[old]; /* BUG 8, 13 */
    if (!beside_tokens(to, slot) && BUG != 8)
        persist(&to->entry[slot], sizeof to->entry[slot]);
    PUBLISH(to->tokens, to->tokens | token(slot)); /* BUG 8, 9, 10 */
    if (BUG == 8)
        flush(&to->entry[slot], sizeof to->entry[slot]);
    flush(&to->tokens, sizeof to->tokens);
    if (BUG != 9)
        fence();
    PUBLISH(from->tokens, from->tokens & ~token(old)); /* BUG 9, 10, 13 */
    persist(&from->tokens, sizeof from->tokens);
}

/* Into the emptier candidate of a level. */
static bool add_to_level(uint64_t level, uint64_t bits, uint64_t key, uint64_t value) {
    struct bucket *first = bucket_in(level, bits, key, 0), *second = bucket_in(level, bits, key, 1);
    struct bucket *bucket = load_of(second) < load_of(first) ? second : first;
    int slot = free_slot(bucket);
    if (slot < 0)
        return false;
    add(bucket, slot, key, value);
    return true;
}

/* Moves one item of a full candidate to that item's other candidate in the level. */
static bool make_room(uint64_t level, uint64_t bits, uint64_t key) {
    for (int which = 0; which < 2; which++) {
        struct bucket *from = bucket_in(level, bits, key, which);
        for (int old = 0; old < SLOTS; old++) {
            uint64_t other = from->entry[old].key;
            struct bucket *to = bucket_in(level, bits, other, bucket_in(level, bits, other, 0) == from);
            int slot = to == from ? -1 : free_slot(to);
            if (slot >= 0) {
                move(to, slot, from, old);
                return true;
            }
        }
    }
    return false;
}

static bool add_anywhere(uint64_t key, uint64_t value) {
    struct geometry *now = geometry();
    if (add_to_level(now->top, now->bits, key, value) || add_to_level(now->bottom, now->bits - 1, key, value))
        return true;
    return (make_room(now->top, now->bits, key) && add_to_level(now->top, now->bits, key, value)) ||
           (make_room(now->bottom, now->bits - 1, key) && add_to_level(now->bottom, now->bits - 1, key, value));
}

/* The other geometry is written, and counts from the store of `current` on. */
static void set_geometry(uint64_t bits, uint64_t top, uint64_t bottom, uint64_t fresh) {
    if (BUG == 12) {
        struct geometry *now = geometry();
        PUBLISH(now->bits, bits);     /* BUG 12 */
        PUBLISH(now->top, top);       /* BUG 12 */
        PUBLISH(now->bottom, bottom); /* BUG 12 */
        PUBLISH(now->fresh, fresh);   /* BUG 12 */
        persist(now, sizeof *now);
        return;
    }
    struct geometry *next = &table->geometry[1 - table->current];
    next->bits = bits;     /* BUG 11 */
    next->top = top;       /* BUG 11 */
    next->bottom = bottom; /* BUG 11 */
    next->fresh = fresh;   /* BUG 11 */
    flush(next, sizeof *next);
    if (BUG != 11)
        fence();
    PUBLISH(table->current, 1 - table->current); /* BUG 11 */
    persist(&table->current, sizeof table->current);
}

static uint64_t make_level(uint64_t bits) {
    uint64_t level = pool_alloc(buckets_in(bits) * sizeof(struct bucket));
    for (uint64_t i = 0; i < buckets_in(bits); i++) {
        AT(struct bucket, level)[i].tokens = 0;
        flush(&AT(struct bucket, level)[i].tokens, sizeof(uint64_t));
    }
    fence();
    return level;
}

static void rehash(struct bucket *from) {
    struct geometry *now = geometry();
    for (int old = 0; old < SLOTS; old++) {
        if (!taken(from, old))
            continue;
        uint64_t key = from->entry[old].key;
        struct bucket *to = bucket_in(now->fresh, now->bits + 1, key, 0);
        struct bucket *second = bucket_in(now->fresh, now->bits + 1, key, 1);
        /* Copied before a crash: the old one goes. */
        if (slot_of(to, key) >= 0 || slot_of(second, key) >= 0) {
            set_tokens(from, from->tokens & ~token(old));
            continue;
        }
        if (load_of(second) < load_of(to))
            to = second;
        int slot = free_slot(to);
        if (slot < 0)
            abort(); /* a quarter full at most, and still no room */
        move(to, slot, from, old);
    }
}

static void finish_resize(void) {
    struct geometry now = *geometry();
    for (uint64_t i = 0; i < buckets_in(now.bits - 1); i++)
        rehash(AT(struct bucket, now.bottom) + i);
    set_geometry(now.bits + 1, now.fresh, now.top, 0);
    pool_free(now.bottom, buckets_in(now.bits - 1) * sizeof(struct bucket));
}

static void resize(void) {
    struct geometry *now = geometry();
    set_geometry(now->bits, now->top, now->bottom, make_level(now->bits + 1));
    finish_resize();
}

/* A bucket without a free slot: the old value is kept aside until the new one has persisted. */
static void overwrite(struct entry *entry, uint64_t value) {
    struct undo *undo = &table->undo;
    if (BUG == 5)
        PUBLISH(undo->entry, OFFSET(entry)); /* BUG 5 */
    PUBLISH(undo->value, entry->value);      /* BUG 5, 6 */
    PUBLISH(undo->check, entry->check);      /* BUG 5, 6 */
    if (BUG != 5)
        PUBLISH(undo->entry, OFFSET(entry)); /* BUG 6 */
    flush(undo, sizeof *undo);
    if (BUG != 6)
        fence();
    entry->value = value;           /* BUG 6, 7 */
    entry->check = check_of(value); /* BUG 7 */
    flush(entry, sizeof *entry);
    if (BUG != 7)
        fence();
    PUBLISH(undo->entry, 0); /* BUG 7 */
    persist(undo, sizeof *undo);
}

static void roll_back(void) {
    struct undo *undo = &table->undo;
    if (!undo->entry)
        return;
    struct entry *entry = AT(struct entry, undo->entry);
    entry->value = undo->value;
    entry->check = undo->check;
    persist(entry, sizeof *entry);
    PUBLISH(undo->entry, 0);
    persist(undo, sizeof *undo);
}

/* An item that a move left twice is dropped from the bucket that is searched last. */
static void drop_doubles(struct bucket *bucket) {
    for (int slot = 0; slot < SLOTS; slot++) {
        int first;
        if (taken(bucket, slot) && find(bucket->entry[slot].key, &first) != bucket)
            set_tokens(bucket, bucket->tokens & ~token(slot));
    }
}

static void recover(void) {
    roll_back();
    if (geometry()->fresh && BUG != 13)
        finish_resize();
    struct geometry *now = geometry();
    for (uint64_t i = 0; i < buckets_in(now->bits) && BUG != 10; i++)
        drop_doubles(AT(struct bucket, now->top) + i);
    for (uint64_t i = 0; i < buckets_in(now->bits - 1) && BUG != 10; i++)
        drop_doubles(AT(struct bucket, now->bottom) + i);
}

static void structure_open(void) {
    if (pool_root()) {
        table = AT(struct table, pool_root());
        recover();
        return;
    }
    uint64_t block = pool_alloc(sizeof *table);
    table = AT(struct table, block);
    if (BUG == 15)
        pool_set_root(block); /* BUG 15 */
    uint64_t top = make_level(FIRST_BITS), bottom = make_level(FIRST_BITS - 1);
    table->current = 0; /* BUG 15 */
    table->geometry[0].bits = FIRST_BITS;
    table->geometry[0].top = top; /* BUG 15 */
    table->geometry[0].bottom = bottom;
    table->geometry[0].fresh = 0;
    table->undo.entry = 0;
    persist(table, sizeof *table);
    pool_set_root(block);
}

static bool structure_insert(uint64_t key, uint64_t value) {
    int slot;
    if (find(key, &slot))
        return false;
    while (!add_anywhere(key, value))
        resize();
    return true;
}

static bool structure_update(uint64_t key, uint64_t value) {
    int old;
    struct bucket *bucket = find(key, &old);
    if (!bucket)
        return false;
    int slot = free_slot(bucket);
    if (slot < 0) {
        overwrite(&bucket->entry[old], value);
        return true;
    }
    write_entry(bucket, slot, key, value);
    if (!beside_tokens(bucket, slot))
        fence();
    if (BUG == 4)
        PUBLISH(bucket->tokens, bucket->tokens & ~token(old)); /* BUG 4 */
    PUBLISH(bucket->tokens, (bucket->tokens & ~token(old)) | token(slot)); /* BUG 4 */
    persist(&bucket->tokens, sizeof bucket->tokens);
    return true;
}

static bool structure_delete(uint64_t key) {
    int slot;
    struct bucket *bucket = find(key, &slot);
    if (!bucket)
        return false;
    PUBLISH(bucket->tokens, bucket->tokens & ~token(slot)); /* BUG 14 */
    if (BUG != 14)
        persist(&bucket->tokens, sizeof bucket->tokens);
    return true;
}

/* Both words of the value: a torn one gives a number that nobody wrote. */
static uint64_t value_of(const struct entry *entry) { return entry->value + entry->check - check_of(entry->value); }

static bool structure_query(uint64_t key, uint64_t *value) {
    int slot;
    struct bucket *bucket = find(key, &slot);
    if (bucket)
        *value = value_of(&bucket->entry[slot]);
    return bucket != NULL;
}

static size_t collect_level(uint64_t level, uint64_t bits, uint64_t least, struct pair *found) {
    size_t length = 0;
    for (uint64_t i = 0; i < buckets_in(bits); i++) {
        const struct bucket *bucket = AT(struct bucket, level) + i;
        for (int slot = 0; slot < SLOTS; slot++)
            if (taken(bucket, slot) && bucket->entry[slot].key >= least)
                found[length++] = (struct pair){bucket->entry[slot].key, value_of(&bucket->entry[slot])};
    }
    return length;
}

static size_t structure_collect(uint64_t least, struct pair *found) {
    struct geometry *now = geometry();
    size_t length = collect_level(now->top, now->bits, least, found);
    return length + collect_level(now->bottom, now->bits - 1, least, found + length);
}
