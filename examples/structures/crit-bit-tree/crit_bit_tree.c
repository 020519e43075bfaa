/* A crit-bit tree in persistent memory, after D. J. Bernstein's description (cr.yp.to/critbit.html) and A. Langley's notes on it.
 *
 * A branch names the highest bit in which the keys below it differ, and has a child for either value of it; a leaf holds a key and
 * its record. What is new is written back before one store of an edge makes it part of the tree; one store takes a leaf and the
 * branch above it out, or puts a leaf with another record in a leaf's place. A leaf that goes is named in the root first, so that a
 * crash loses no memory: recovery looks whether it is still in the tree, and if not, finishes giving it back.
 *
 * Scans stop when they have seen as many keys as the root counts. The count may be one off after a crash: opening counts again. */
#include "../common/driver.h"

#define KEY_BITS 64

/* The offset of a node, plus BRANCH if it is a branch; 0: nothing. */
typedef uint64_t edge;

#define BRANCH 1ULL

struct branch {
    uint64_t bit; /* lower than that of the branch above; 0 is the key's lowest */
    edge child[2];
} __attribute__((aligned(LINE)));

/* The words of a record belong together: `check` shows whether they do. */
struct leaf {
    uint64_t key;
    uint64_t value;
    uint64_t revision;
    uint64_t check;
} __attribute__((aligned(LINE)));

struct root {
    edge top;
    uint64_t count;
    uint64_t leaving_branch;
    uint64_t leaving; /* a leaf that is about to leave the tree, with `leaving_branch` if that is not 0 */
} __attribute__((aligned(LINE)));

static struct root *root;

static void damaged(const char *what) {
    fprintf(stderr, "damaged: %s\n", what);
    abort();
}

static bool is_branch(edge to) { return to & BRANCH; }

static struct branch *branch_at(edge to) { return AT(struct branch, to - BRANCH); }

static struct leaf *leaf_at(edge to) { return AT(struct leaf, to); }

static int side_of(uint64_t key, uint64_t bit) { return key >> bit & 1; }

static uint64_t check_of(const struct leaf *leaf) {
    return (leaf->key ^ leaf->value * 0x9e3779b97f4a7c15ULL) + leaf->revision * 0xc2b2ae3d27d4eb4fULL;
}

/* The bits of branches fall on the way down, or it is no tree. */
static struct branch *below(edge to, uint64_t *bit) {
    struct branch *branch = branch_at(to);
    if (branch->bit >= *bit)
        damaged("a branch is not below the one above it");
    *bit = branch->bit;
    return branch;
}

/* The place of the edge to the only leaf that may have this key, and in `above` of the edge to its branch; NULL: no tree. */
static edge *descend(uint64_t key, edge **above) {
    uint64_t bit = KEY_BITS;
    edge *place = &root->top;
    *above = NULL;
    while (is_branch(*place)) {
        struct branch *branch = below(*place, &bit);
        *above = place;
        place = &branch->child[side_of(key, branch->bit)];
    }
    return *place ? place : NULL;
}

static struct leaf *take_leaf(uint64_t key, uint64_t value, uint64_t revision) {
    struct leaf *leaf = AT(struct leaf, pool_alloc(sizeof *leaf));
    leaf->key = key;
    leaf->value = value; /* BUG 1, 8 */
    leaf->revision = revision;
    leaf->check = check_of(leaf);
    return leaf;
}

static void set_edge(edge *place, edge to) {
    PUBLISH(*place, to);
    persist(place, sizeof *place);
}

static void set_count(uint64_t count) {
    PUBLISH(root->count, count);
    persist(&root->count, sizeof root->count);
}

static void announce(struct leaf *leaf, struct branch *branch) {
    root->leaving_branch = branch ? OFFSET(branch) : 0;
    PUBLISH(root->leaving, OFFSET(leaf)); /* BUG 9 */
    persist(&root->leaving, sizeof root->leaving);
}

static bool is_free(uint64_t block) {
    uint64_t size, next = pool()->free_list[pool_class(sizeof(struct leaf), &size)];
    while (next && next != block)
        next = AT(struct free_block, next)->next;
    return next == block;
}

static void give_back(uint64_t block) {
    if (BUG == 10 || !is_free(block)) /* a crash may have happened after it was given back */
        pool_free(block, LINE);       /* BUG 10 */
}

/* The leaf that was announced is in the tree no more. Its memory may be another node's as soon as nothing announces it. */
static void finish_leaving(void) {
    give_back(root->leaving);
    if (root->leaving_branch)
        give_back(root->leaving_branch);
    PUBLISH(root->leaving, 0); /* BUG 11 */
    if (BUG != 11)
        persist(&root->leaving, sizeof root->leaving);
}

/* The key of a leaf that was given back is anything: what is found then is another leaf. */
static void recover_leaving(void) {
    edge *above, *place = descend(leaf_at(root->leaving)->key, &above);
    if (BUG != 9 && place && *place == root->leaving) {
        PUBLISH(root->leaving, 0);
        persist(&root->leaving, sizeof root->leaving);
        return;
    }
    finish_leaving();
}

static uint64_t count_leaves(edge from, uint64_t bit) {
    if (!is_branch(from))
        return from != 0;
    const struct branch *branch = below(from, &bit);
    return count_leaves(branch->child[0], bit) + count_leaves(branch->child[1], bit);
}

static void structure_open(void) {
    if (!pool_root()) {
        uint64_t block = pool_alloc(sizeof *root);
        memset(AT(struct root, block), 0, sizeof *root);
        persist(AT(struct root, block), sizeof *root);
        pool_set_root(block);
    }
    root = AT(struct root, pool_root());
    if (root->leaving)
        recover_leaving();
    uint64_t count = count_leaves(root->top, KEY_BITS);
    if (BUG != 7 && count != root->count)
        set_count(count);
}

/* The edge that a branch on this bit of this key has to take the place of. */
static edge *place_of(uint64_t key, uint64_t new_bit) {
    uint64_t bit = KEY_BITS;
    edge *place = &root->top;
    while (is_branch(*place)) {
        struct branch *branch = below(*place, &bit);
        if (branch->bit < new_bit)
            break;
        place = &branch->child[side_of(key, branch->bit)];
    }
    return place;
}

static void insert_branch(struct leaf *leaf, uint64_t bit) {
    struct branch *branch = AT(struct branch, pool_alloc(sizeof *branch));
    edge *place = place_of(leaf->key, bit);
    int side = side_of(leaf->key, bit);
    branch->child[side] = OFFSET(leaf);
    branch->child[!side] = *place; /* BUG 2 */
#if BUG == 3
    persist(branch, sizeof *branch);
    PUBLISH(*place, OFFSET(branch) + BRANCH);
    branch->bit = bit; /* BUG 3 */
    flush(branch, sizeof *branch);
    persist(place, sizeof *place);
#else
    branch->bit = bit;
    flush(branch, sizeof *branch);
    if (BUG != 2)
        fence();
    set_edge(place, OFFSET(branch) + BRANCH);
#endif
}

static bool structure_insert(uint64_t key, uint64_t value) {
    edge *above, *near = descend(key, &above);
    if (near && leaf_at(*near)->key == key)
        return false;
    struct leaf *leaf = take_leaf(key, value, 1);
    if (BUG != 1)
        flush(leaf, sizeof *leaf);
    if (near) {
        insert_branch(leaf, KEY_BITS - 1 - __builtin_clzll(key ^ leaf_at(*near)->key));
    } else {
        fence();
        set_edge(&root->top, OFFSET(leaf));
    }
    set_count(root->count + 1); /* BUG 7 */
    return true;
}

static bool structure_update(uint64_t key, uint64_t value) {
    edge *above, *place = descend(key, &above);
    if (!place || leaf_at(*place)->key != key)
        return false;
    struct leaf *old = leaf_at(*place);
#if BUG == 6
    old->value = value;
    PUBLISH(old->revision, old->revision + 1);
    PUBLISH(old->check, check_of(old)); /* BUG 6 */
    persist(old, sizeof *old);
#else
    struct leaf *leaf = take_leaf(key, value, old->revision + 1);
    if (BUG != 8)
        persist(leaf, sizeof *leaf);
    announce(old, NULL);
    set_edge(place, OFFSET(leaf));
    finish_leaving();
#endif
    return true;
}

/* Puts the branch's other child in the branch's place. */
static void unlink_leaf(edge *above, const edge *place) {
    struct branch *branch = branch_at(*above);
    edge other = branch->child[place == &branch->child[0]];
#if BUG == 4
    if (is_branch(other)) {
        *branch = *branch_at(other); /* BUG 4 */
        persist(branch, sizeof *branch);
        root->leaving_branch = OFFSET(branch_at(other));
        return;
    }
#endif
    PUBLISH(*above, other); /* BUG 5 */
    if (BUG != 5)
        persist(above, sizeof *above);
}

static bool structure_delete(uint64_t key) {
    edge *above, *place = descend(key, &above);
    if (!place || leaf_at(*place)->key != key)
        return false;
    struct leaf *leaf = leaf_at(*place);
    announce(leaf, above ? branch_at(*above) : NULL);
    if (above)
        unlink_leaf(above, place);
    else
        set_edge(&root->top, 0);
    set_count(root->count - 1); /* BUG 7 */
    finish_leaving();
    return true;
}

static bool structure_query(uint64_t key, uint64_t *value) {
    edge *above, *place = descend(key, &above);
    if (!place || leaf_at(*place)->key != key)
        return false;
    const struct leaf *leaf = leaf_at(*place);
    if (leaf->check != check_of(leaf))
        return false;
    *value = leaf->value;
    return true;
}

static size_t collect(edge from, uint64_t bit, uint64_t least, uint64_t *left, struct pair *found, size_t length) {
    if (!from || !*left)
        return length;
    if (is_branch(from)) {
        const struct branch *branch = below(from, &bit);
        length = collect(branch->child[0], bit, least, left, found, length);
        return collect(branch->child[1], bit, least, left, found, length);
    }
    const struct leaf *leaf = leaf_at(from);
    (*left)--;
    if (leaf->key >= least && length < MOST_PAIRS)
        found[length++] = (struct pair){leaf->key, leaf->value};
    return length;
}

static size_t structure_collect(uint64_t least, struct pair *found) {
    uint64_t left = root->count;
    return collect(root->top, KEY_BITS, least, &left, found, 0);
}
