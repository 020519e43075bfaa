/* A radix tree after WORT and WOART (Lee, Lim, Song, Nam, Noh, FAST 2017): four bits a level, with paths of single children
 * compressed into a prefix, and nodes of 4 or 16 children.
 *
 * A node's depth and prefix are one word, so that one store changes them. A prefix is split by a new parent that takes the node's
 * place; only then is the node's own prefix cut. In between, the depth in it shows that it is out of date, and by how much. */
#include "../common/driver.h"

#define NIBBLES 12 /* of a path, the highest first */
#define LEAF 1     /* in a reference: it is a leaf's */

enum kind { SMALL = 4, LARGE = 16 };

struct leaf {
    uint64_t key;
    uint64_t value;
};

/* The level on which the prefix begins, its length, and its nibbles, the first one lowest. */
struct header {
    uint64_t depth : 8, length : 8, prefix : 48;
};

struct node {
    struct header header;
    uint64_t kind;
};

/* In one line. A child counts if it is not 0; the nibble that leads to it is beside it. */
struct small {
    struct node node;
    uint64_t child[SMALL];
    uint8_t nibble[8];
};

struct large {
    struct node node;
    uint64_t child[LARGE] __attribute__((aligned(LINE)));
};

struct tree {
    uint64_t root;
};

static struct tree *tree;

/* Where a key is in the tree. As with names, there are families: eight neighbours share all but the last two nibbles. */
static uint64_t path_of(uint64_t key) {
    return ((key >> 3) * 0x9e3779b97f4a7c15ULL & 0xffffffffffULL) << 8 | (key & 7) << 4 | (key & 7);
}

static unsigned nibble_of(uint64_t key, unsigned level) { return path_of(key) >> (4 * (NIBBLES - 1 - level)) & 15; }

static bool is_leaf(uint64_t reference) { return reference & LEAF; }

static struct leaf *leaf_at(uint64_t reference) { return AT(struct leaf, reference - LEAF); }

static struct node *node_at(uint64_t reference) {
    struct node *node = AT(struct node, reference);
    if (node->kind != SMALL && node->kind != LARGE)
        abort();
    return node;
}

static struct small *small_of(struct node *node) { return (struct small *)(void *)node; }

static struct large *large_of(struct node *node) { return (struct large *)(void *)node; }

static uint64_t *children_of(struct node *node) {
    return node->kind == SMALL ? small_of(node)->child : large_of(node)->child;
}

static uint64_t low_nibbles(uint64_t bits, unsigned count) { return bits & ((1ULL << (4 * count)) - 1); }

static unsigned prefix_nibble(struct header header, unsigned i) { return header.prefix >> (4 * i) & 15; }

static void set_header(struct node *node, struct header header) {
    uint64_t word;
    memcpy(&word, &header, sizeof word);
    if (BUG == 6)
        PUBLISH(*(uint16_t *)(void *)node, (uint16_t)word); /* BUG 6 */
    PUBLISH(*(uint64_t *)(void *)node, word); /* BUG 4, 6 */
}

/* The header without its first nibbles. */
static struct header cut(struct header header, unsigned count) {
    struct header rest = {header.depth + count, header.length - count, header.prefix >> (4 * count)};
    return rest;
}

static uint64_t *find_child(struct node *node, unsigned nibble) {
    if (node->kind == LARGE)
        return &large_of(node)->child[nibble];
    for (int i = 0; i < SMALL; i++)
        if (small_of(node)->child[i] && small_of(node)->nibble[i] == nibble)
            return &small_of(node)->child[i];
    return NULL;
}

static int free_child(const struct small *node) {
    for (int i = 0; i < SMALL; i++)
        if (!node->child[i])
            return i;
    return -1;
}

static uint64_t make_leaf(uint64_t key, uint64_t value) {
    uint64_t offset = pool_alloc(sizeof(struct leaf));
    AT(struct leaf, offset)->key = key;     /* BUG 1 */
    AT(struct leaf, offset)->value = value; /* BUG 1 */
    flush(AT(struct leaf, offset), sizeof(struct leaf));
    if (BUG != 1)
        fence();
    return offset | LEAF;
}

/* A node for two, not yet written back. */
static uint64_t make_small(struct header header, unsigned first, uint64_t one, unsigned second, uint64_t other) {
    uint64_t offset = pool_alloc(sizeof(struct small));
    struct small *node = AT(struct small, offset);
    set_header(&node->node, header);
    node->node.kind = SMALL;          /* BUG 3, 13 */
    node->nibble[0] = (uint8_t)first; /* BUG 3 */
    node->nibble[1] = (uint8_t)second;
    node->child[0] = one; /* BUG 3 */
    node->child[1] = other;
    node->child[2] = node->child[3] = 0;
    return offset;
}

/* The leaf's place goes to a node that has it and the new leaf. */
static void split_leaf(uint64_t *place, unsigned depth, uint64_t key, uint64_t value) {
    uint64_t old = *place, other = leaf_at(old)->key;
    struct header header = {depth, 0, 0};
    while (nibble_of(key, depth) == nibble_of(other, depth)) {
        header.prefix |= (uint64_t)nibble_of(key, depth++) << (4 * header.length);
        header.length++;
    }
    uint64_t leaf = make_leaf(key, value);
    uint64_t node = make_small(header, nibble_of(other, depth), old, nibble_of(key, depth), leaf);
    if (BUG == 13) {
        PUBLISH(AT(struct small, node)->node.kind, 0);
        persist(AT(struct small, node), sizeof(struct small));
        PUBLISH(*place, node); /* BUG 13 */
        persist(place, sizeof *place);
        PUBLISH(AT(struct small, node)->node.kind, SMALL); /* BUG 13 */
    }
    persist(AT(struct small, node), sizeof(struct small));
    PUBLISH(*place, node); /* BUG 1 */
    persist(place, sizeof *place);
}

/* The node's place goes to a new parent that has the first `same` nibbles of the prefix, the node and the new leaf. */
static void split_prefix(uint64_t *place, unsigned same, uint64_t key, uint64_t value) {
    struct node *node = node_at(*place);
    struct header header = node->header, shared = {header.depth, same, low_nibbles(header.prefix, same)};
    uint64_t leaf = make_leaf(key, value);
    uint64_t parent = make_small(shared, prefix_nibble(header, same), *place, nibble_of(key, header.depth + same), leaf);
    flush(AT(struct small, parent), sizeof(struct small));
    if (BUG != 3)
        fence();
    PUBLISH(*place, parent); /* BUG 1, 3, 4, 5 */
    flush(place, sizeof *place);
    if (BUG != 4)
        fence();
    set_header(node, cut(header, same + 1)); /* BUG 4, 5 */
    persist(node, sizeof *node);
}

/* A full node's place goes to a large one that has the new leaf as well. */
static void grow(uint64_t *place, unsigned nibble, uint64_t key, uint64_t value) {
    uint64_t old = *place, leaf = make_leaf(key, value), offset = pool_alloc(sizeof(struct large));
    struct small *from = small_of(node_at(old));
    struct large *to = AT(struct large, offset);
    set_header(&to->node, from->node.header);
    to->node.kind = LARGE;
    for (int i = 0; i < LARGE; i++)
        to->child[i] = 0; /* BUG 7, 9 */
    for (int i = 0; i < SMALL; i++)
        to->child[from->nibble[i]] = from->child[i]; /* BUG 7, 9 */
    to->child[nibble] = leaf;                        /* BUG 7, 9 */
    flush(to, BUG == 9 ? sizeof *to - LINE : sizeof *to);
    if (BUG != 7)
        fence();
    PUBLISH(*place, offset); /* BUG 7, 8, 9 */
    flush(place, sizeof *place);
    if (BUG != 8)
        fence();
    pool_free(old, sizeof(struct small)); /* BUG 8 */
}

static void add_child(uint64_t *place, unsigned nibble, uint64_t key, uint64_t value) {
    struct node *node = node_at(*place);
    int i = node->kind == LARGE ? (int)nibble : free_child(small_of(node));
    if (i < 0) {
        grow(place, nibble, key, value);
        return;
    }
    uint64_t leaf = make_leaf(key, value), *child = &children_of(node)[i];
    if (node->kind == SMALL && BUG != 2)
        PUBLISH(small_of(node)->nibble[i], (uint8_t)nibble);
    PUBLISH(*child, leaf); /* BUG 1, 2, 11 */
    if (node->kind == SMALL && BUG == 2)
        PUBLISH(small_of(node)->nibble[i], (uint8_t)nibble); /* BUG 2 */
    if (BUG != 11)
        persist(child, sizeof *child);
}

/* The reference to a key's leaf; `above` is the reference to its parent, or NULL. */
static uint64_t *find(uint64_t key, uint64_t **above) {
    uint64_t *place = &tree->root;
    unsigned level = 0;
    *above = NULL;
    while (place && *place && !is_leaf(*place)) {
        struct node *node = node_at(*place);
        for (unsigned i = 0; i < node->header.length; i++)
            if (prefix_nibble(node->header, i) != nibble_of(key, level++))
                return NULL;
        *above = place;
        place = find_child(node, nibble_of(key, level++));
    }
    return place && *place && leaf_at(*place)->key == key ? place : NULL;
}

/* A prefix that a split left uncut is cut now: it begins above the level on which its node is. */
static void repair(uint64_t reference, unsigned level) {
    if (!reference || is_leaf(reference))
        return;
    struct node *node = node_at(reference);
    if (node->header.depth < level && BUG != 5) {
        set_header(node, cut(node->header, level - node->header.depth));
        persist(node, sizeof *node);
    }
    for (unsigned i = 0; i < node->kind; i++)
        repair(children_of(node)[i], node->header.depth + node->header.length + 1);
}

static void structure_open(void) {
    if (pool_root()) {
        tree = AT(struct tree, pool_root());
        repair(tree->root, 0);
        return;
    }
    uint64_t made = pool_alloc(sizeof *tree);
    tree = AT(struct tree, made);
    tree->root = 0;
    persist(tree, sizeof *tree);
    pool_set_root(made);
}

static bool structure_insert(uint64_t key, uint64_t value) {
    uint64_t *place = &tree->root;
    unsigned level = 0;
    if (key >> 43)
        abort(); /* two keys would have one path */
    while (*place && !is_leaf(*place)) {
        struct node *node = node_at(*place);
        struct header header = node->header;
        for (unsigned i = 0; i < header.length; i++)
            if (prefix_nibble(header, i) != nibble_of(key, level + i)) {
                split_prefix(place, i, key, value);
                return true;
            }
        level += header.length;
        uint64_t *child = find_child(node, nibble_of(key, level));
        if (!child || !*child) {
            add_child(place, nibble_of(key, level), key, value);
            return true;
        }
        place = child;
        level++;
    }
    if (*place && leaf_at(*place)->key == key)
        return false;
    if (*place) {
        split_leaf(place, level, key, value);
        return true;
    }
    PUBLISH(*place, make_leaf(key, value)); /* BUG 1 */
    persist(place, sizeof *place);
    return true;
}

static bool structure_update(uint64_t key, uint64_t value) {
    uint64_t *above, *place = find(key, &above);
    if (!place)
        return false;
    uint64_t old = *place, leaf = make_leaf(key, value);
    if (BUG == 10) {
        PUBLISH(*place, 0); /* BUG 10 */
        persist(place, sizeof *place);
    }
    PUBLISH(*place, leaf); /* BUG 1, 10 */
    persist(place, sizeof *place);
    pool_free(old - LEAF, sizeof(struct leaf));
    return true;
}

/* The only other child of a small node, if that is a leaf; else 0. */
static uint64_t left_alone(struct node *node, const uint64_t *child) {
    uint64_t other = 0;
    for (int i = 0; i < SMALL && node->kind == SMALL; i++) {
        uint64_t *each = &small_of(node)->child[i];
        if (each == child || !*each)
            continue;
        if (other || !is_leaf(*each))
            return 0;
        other = *each;
    }
    return other;
}

/* Of two leaves the other one takes the node's place: one store, as for any other leaf. */
static bool structure_delete(uint64_t key) {
    uint64_t *above, *place = find(key, &above);
    if (!place)
        return false;
    uint64_t old = *place, node = above ? *above : 0, other = node ? left_alone(node_at(node), place) : 0;
    if (!other) {
        PUBLISH(*place, 0);
        persist(place, sizeof *place);
    } else {
        PUBLISH(*above, other); /* BUG 12 */
        flush(above, sizeof *above);
        if (BUG != 12)
            fence();
        pool_free(node, sizeof(struct small)); /* BUG 12 */
    }
    pool_free(old - LEAF, sizeof(struct leaf));
    return true;
}

static bool structure_query(uint64_t key, uint64_t *value) {
    uint64_t *above, *place = find(key, &above);
    if (place)
        *value = leaf_at(*place)->value;
    return place != NULL;
}

static size_t collect(uint64_t reference, uint64_t least, struct pair *found) {
    if (!reference)
        return 0;
    if (is_leaf(reference)) {
        *found = (struct pair){leaf_at(reference)->key, leaf_at(reference)->value};
        return leaf_at(reference)->key >= least;
    }
    size_t length = 0;
    for (unsigned i = 0; i < node_at(reference)->kind; i++)
        length += collect(children_of(node_at(reference))[i], least, found + length);
    return length;
}

static size_t structure_collect(uint64_t least, struct pair *found) { return collect(tree->root, least, found); }
