/* Extendible hashing after CCEH (Nam, Cha, Choi, Noh, Nam, FAST 2019): a directory, indexed by the first bits of a key's hash,
 * of segments whose buckets are cache lines.
 *
 * A full segment is split: a new one gets copies of the keys of the upper half, the directory's entries are changed, and only then
 * the old segment's prefix does. What the old segment still holds of the upper half is dead from then on, and overwritten lazily.
 * When a segment is as deep as the directory, the directory is doubled first. */
#include "../common/driver.h"

namespace {

constexpr unsigned BUCKETS = 4; /* of a segment; a key may be in any, beginning with its own */
constexpr unsigned SLOTS = 4;
constexpr uint64_t FIRST_DEPTH = 1;

/* Key 0: free. */
struct Slot {
    uint64_t key;
    uint64_t value;
};

struct alignas(LINE) Bucket {
    Slot slot[SLOTS];
};

struct Segment {
    uint64_t prefix; /* the first bits of its keys' hashes, after a 1: depth and bits change at once */
    Bucket bucket[BUCKETS];
};

struct Directory {
    uint64_t depth;
    uint64_t segment[1]; /* 2 to the power of depth */
};

/* Where the directory is. */
struct Table {
    uint64_t directory;
};

Table *table;

uint64_t hash_of(uint64_t key) {
    uint64_t hash = (key + 0x2545f4914f6cdd1dULL) * 0x9e3779b97f4a7c15ULL;
    hash ^= hash >> 29;
    return hash * 0xbf58476d1ce4e5b9ULL;
}

uint64_t depth_of(const Segment *segment) {
    if (!segment->prefix)
        abort();
    return 63 - static_cast<uint64_t>(__builtin_clzll(segment->prefix));
}

Directory *directory() { return AT(Directory, table->directory); }

uint64_t bytes_of_directory(uint64_t depth) { return sizeof(uint64_t) * (1 + (1ULL << depth)); }

uint64_t first_bits(uint64_t hash, uint64_t depth) {
    if (depth == 0 || depth > 16)
        abort();
    return hash >> (64 - depth);
}

uint64_t index_of(uint64_t key) { return first_bits(hash_of(key), directory()->depth); }

Segment *segment_at(uint64_t index) { return AT(Segment, directory()->segment[index]); }

Segment *segment_of(uint64_t key) { return segment_at(index_of(key)); }

/* Whether a slot's key belongs to the segment: after a split, those of the upper half do not. */
bool alive(const Segment *segment, const Slot *slot) {
    uint64_t depth = depth_of(segment);
    return slot->key && (first_bits(hash_of(slot->key), depth) | 1ULL << depth) == segment->prefix;
}

Slot *probe(Segment *segment, uint64_t key, unsigned i) {
    Bucket *bucket = &segment->bucket[(hash_of(key) + i / SLOTS) % BUCKETS];
    return &bucket->slot[i % SLOTS];
}

Slot *find(Segment *segment, uint64_t key) {
    for (unsigned i = 0; i < BUCKETS * SLOTS; i++) {
        Slot *slot = probe(segment, key, i);
        if (slot->key == key)
            return slot;
    }
    return nullptr;
}

Slot *find_free(Segment *segment, uint64_t key) {
    for (unsigned i = 0; i < BUCKETS * SLOTS; i++) {
        Slot *slot = probe(segment, key, i);
        if (!alive(segment, slot))
            return slot;
    }
    return nullptr;
}

/* The key makes the slot count, after the value in the same line. */
void fill(Slot *slot, uint64_t key, uint64_t value) {
    if (BUG == 1)
        PUBLISH(slot->key, key); /* BUG 1 */
    PUBLISH(slot->value, value); /* BUG 1 */
    if (BUG != 1)
        PUBLISH(slot->key, key); /* BUG 2 */
    if (BUG != 2)
        persist(slot, sizeof *slot);
}

uint64_t make_segment(uint64_t prefix) {
    uint64_t offset = pool_alloc(sizeof(Segment));
    Segment *segment = AT(Segment, offset);
    segment->prefix = prefix; /* BUG 3 */
    for (Bucket &bucket : segment->bucket)
        for (Slot &slot : bucket.slot)
            slot.key = 0;
    return offset;
}

/* The new directory is complete before it takes the old one's place. */
void double_directory() {
    uint64_t old = table->directory, depth = directory()->depth;
    uint64_t offset = pool_alloc(bytes_of_directory(depth + 1));
    Directory *now = AT(Directory, old), *next = AT(Directory, offset);
    next->depth = BUG == 7 ? depth : depth + 1;
    if (BUG == 12) {
        for (uint64_t i = 0; i < 2ULL << depth; i++)
            next->segment[i] = 0;
        persist(next, bytes_of_directory(depth + 1));
        PUBLISH(table->directory, offset); /* BUG 12 */
        persist(table, sizeof *table);
    }
    for (uint64_t i = 0; i < 2ULL << depth; i++)
        PUBLISH(next->segment[i], now->segment[i / 2]); /* BUG 6, 12 */
    flush(next, bytes_of_directory(depth + 1));
    if (BUG != 6)
        fence();
    PUBLISH(table->directory, offset); /* BUG 6, 7, 11 */
    flush(table, sizeof *table);
    if (BUG != 11)
        fence();
    if (BUG == 7) {
        PUBLISH(next->depth, depth + 1); /* BUG 7 */
        persist(next, sizeof *next);
    }
    pool_free(old, bytes_of_directory(depth)); /* BUG 11 */
}

void copy_upper_half(const Segment *from, Segment *to) {
    for (const Bucket &bucket : from->bucket)
        for (const Slot &slot : bucket.slot) {
            if (!alive(from, &slot) || !alive(to, &slot))
                continue;
            Slot *copy = find_free(to, slot.key);
            copy->key = slot.key;     /* BUG 10 */
            copy->value = slot.value; /* BUG 10 */
        }
    if (BUG != 3)
        flush(to, LINE);
    flush(to->bucket, BUG == 10 ? sizeof to->bucket - sizeof(Bucket) : sizeof to->bucket);
    fence();
}

void split(uint64_t key) {
    if (depth_of(segment_of(key)) == directory()->depth)
        double_directory();
    Segment *segment = segment_of(key);
    uint64_t lower = segment->prefix << 1, stride = 1ULL << (directory()->depth - depth_of(segment) - 1);
    uint64_t made = make_segment(lower | 1);
    copy_upper_half(segment, AT(Segment, made));
    uint64_t middle = ((lower | 1) - (2ULL << depth_of(segment))) * stride;
    for (uint64_t i = middle + stride; i-- > middle;)
        PUBLISH(directory()->segment[i], made); /* BUG 3, 4, 5 */
    flush(&directory()->segment[middle], stride * sizeof(uint64_t));
    if (BUG != 4)
        fence();
    PUBLISH(segment->prefix, lower); /* BUG 3, 4, 5, 10, 13 */
    if (BUG != 13)
        persist(segment, LINE);
}

/* A split that did not come to its end is forgotten: entries of the new segment lead to the old one again. */
void recover() {
    uint64_t entries = 1ULL << directory()->depth;
    for (uint64_t i = 0; i < entries;) {
        const Segment *segment = segment_at(i);
        uint64_t next = i + (1ULL << (directory()->depth - depth_of(segment)));
        for (uint64_t j = next - 1; j > i; j--) {
            if (directory()->segment[j] == directory()->segment[i])
                continue;
            PUBLISH(directory()->segment[j], directory()->segment[i]);
            persist(&directory()->segment[j], sizeof(uint64_t));
        }
        i = next;
    }
}

} // namespace

static void structure_open(void) {
    if (pool_root()) {
        table = AT(Table, pool_root());
        if (BUG != 5)
            recover();
        return;
    }
    uint64_t made = pool_alloc(sizeof(Table)), entries = pool_alloc(bytes_of_directory(FIRST_DEPTH));
    Directory *first = AT(Directory, entries);
    first->depth = FIRST_DEPTH;
    for (uint64_t i = 0; i < 1ULL << FIRST_DEPTH; i++) {
        uint64_t segment = make_segment(1ULL << FIRST_DEPTH | i);
        persist(AT(Segment, segment), sizeof(Segment));
        first->segment[i] = segment;
    }
    persist(first, bytes_of_directory(FIRST_DEPTH));
    table = AT(Table, made);
    table->directory = entries;
    persist(table, sizeof *table);
    pool_set_root(made);
}

static bool structure_insert(uint64_t key, uint64_t value) {
    if (find(segment_of(key), key))
        return false;
    Slot *slot;
    while (!(slot = find_free(segment_of(key), key)))
        split(key);
    fill(slot, key, value);
    return true;
}

static bool structure_update(uint64_t key, uint64_t value) {
    Slot *slot = find(segment_of(key), key);
    if (!slot)
        return false;
    if (BUG == 8) {
        PUBLISH(slot->key, 0); /* BUG 8 */
        PUBLISH(slot->value, value);
        PUBLISH(slot->key, key); /* BUG 8 */
    } else {
        PUBLISH(slot->value, value);
    }
    persist(slot, sizeof *slot);
    return true;
}

static bool structure_delete(uint64_t key) {
    Slot *slot = find(segment_of(key), key);
    if (!slot)
        return false;
    PUBLISH(slot->key, 0); /* BUG 9 */
    if (BUG != 9)
        persist(slot, sizeof *slot);
    return true;
}

static bool structure_query(uint64_t key, uint64_t *value) {
    const Slot *slot = find(segment_of(key), key);
    if (slot)
        *value = slot->value;
    return slot != nullptr;
}

static size_t structure_collect(uint64_t least, struct pair *found) {
    size_t length = 0;
    for (uint64_t i = 0; i < 1ULL << directory()->depth; i++) {
        const Segment *segment = segment_at(i);
        if (i && directory()->segment[i] == directory()->segment[i - 1])
            continue;
        for (const Bucket &bucket : segment->bucket)
            for (const Slot &slot : bucket.slot)
                if (alive(segment, &slot) && slot.key >= least)
                    found[length++] = {slot.key, slot.value};
    }
    return length;
}
