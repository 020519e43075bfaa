/* A B-tree in persistent memory (Bayer and McCreight, 1972; with the one-pass insertion and deletion of Cormen et al., Introduction to
 * Algorithms), made atomic by an undo log of its own.
 *
 * An entry of the log holds where something is and what it was, and in which transaction, with a checksum over that.
 * It has persisted before the change is made. An entry counts if its checksum is right and its number the present one: a torn entry, or
 * one of an earlier transaction, ends the log. One store of the next number therefore empties it: at commit, after all
 * changes have persisted; at an abort and in recovery, after the entries were put back, from the last to the first, and persisted.
 * Insertions split full nodes on the way down, and abort if they find the key; deletions join
 * small ones, and abort if they do not find it. A pair that becomes the last of a leaf with room needs no log:
 * one store of the leaf's length takes it in. An update is one store as well. */
#include "../common/driver.h"

#define LEAST 2 /* children of a node, except the top; at most twice as many */
#define FULL (2 * LEAST - 1)
#define LOG_WORDS 4000
#define MOST_RANGES 256

/* With LEAST == 2, all but the children are in one cache line. */
struct node {
    uint64_t length; /* pairs */
    uint64_t key[FULL];
    uint64_t value[FULL];
    uint64_t leaf;             /* 1: no children */
    uint64_t child[2 * LEAST]; /* offsets; of a free node, the first is the next free one */
} __attribute__((aligned(LINE)));

struct entry {
    uint64_t checksum;
    uint64_t transaction;
    uint64_t place;
    uint64_t words; /* at least 1 */
    uint64_t word[];
};

struct root {
    uint64_t top;
    uint64_t free_node;
    uint64_t transaction __attribute__((aligned(LINE))); /* from 1 */
    uint64_t log[LOG_WORDS] __attribute__((aligned(LINE)));
} __attribute__((aligned(LINE)));

static struct root *root;

/* What the present transaction has changed, and so has to write back. */
static struct range {
    void *place;
    uint64_t bytes;
} changed[MOST_RANGES];
static unsigned changed_count;
static uint64_t log_length; /* words */

static struct node *at(uint64_t offset) { return AT(struct node, offset); }

static void too_much(const char *what) {
    fprintf(stderr, "too much for one transaction: %s\n", what);
    exit(3);
}

/* The log */

#define ENTRY_WORDS 4 /* before its content */

static uint64_t checksum_of(const struct entry *entry) {
    uint64_t sum = entry->transaction * 0x9e3779b97f4a7c15ULL;
    sum = (sum ^ sum >> 31 ^ entry->place) * 0xff51afd7ed558ccdULL;
    sum = (sum ^ sum >> 31 ^ entry->words) * 0xc4ceb9fe1a85ec53ULL;
    for (uint64_t i = 0; BUG != 2 && i < entry->words; i++)
        sum = (sum ^ sum >> 31 ^ entry->word[i]) * 0x9e3779b97f4a7c15ULL;
    return sum ^ sum >> 32;
}

static void will_change(void *place, uint64_t bytes) {
    if (changed_count == MOST_RANGES)
        too_much("ranges");
    changed[changed_count++] = (struct range){place, bytes};
}

/* What is in the log may persist at any time. */
static void flush_changes(void) {
    for (unsigned i = 0; i < changed_count; i++)
        flush(changed[i].place, changed[i].bytes);
}

/* To be called before each change of memory that others can see. */
static void log_words(void *place, uint64_t words) {
    struct entry *entry = (struct entry *)&root->log[log_length];
    if (log_length + ENTRY_WORDS + words > LOG_WORDS)
        too_much("log");
    const uint64_t *from = (const uint64_t *)place;
    entry->transaction = root->transaction; /* BUG 11 */
    entry->place = OFFSET(place);
    entry->words = words; /* BUG 13 */
    for (uint64_t i = 0; i < words; i++)
        entry->word[i] = from[i]; /* BUG 2 */
    PUBLISH(entry->checksum, checksum_of(entry)); /* BUG 1, 12 */
    if (!(BUG == 12 && words == 1))
        flush(entry, (ENTRY_WORDS + words) * sizeof(uint64_t));
    flush_changes();
    if (BUG != 1)
        fence();
    log_length += ENTRY_WORDS + words;
    will_change(place, words * sizeof(uint64_t));
}

#define LOG(field) log_words(&(field), sizeof(field) / sizeof(uint64_t))

static void next_transaction(void) {
    PUBLISH(root->transaction, root->transaction + 1); /* BUG 3, 10 */
    if (BUG != 10)
        persist(&root->transaction, sizeof root->transaction);
    log_length = 0;
    changed_count = 0;
}

static void commit(void) {
    flush_changes();
    if (BUG != 3)
        fence();
    next_transaction();
}

static bool is_entry(uint64_t position, uint64_t limit) {
    const struct entry *entry = (const struct entry *)&root->log[position];
    uint64_t room = limit - position;
    if (room <= ENTRY_WORDS || entry->words == 0)
        return false;
    if (BUG != 13 && entry->words > room - ENTRY_WORDS)
        return false;
    return checksum_of(entry) == entry->checksum && (entry->transaction == root->transaction || (BUG == 11 && position));
}

/* Puts back what the log has from this position on, the oldest entry last. Returns where it ends. */
static uint64_t put_back_from(uint64_t position, uint64_t limit) {
    if (!is_entry(position, limit))
        return position;
    const struct entry *entry = (const struct entry *)&root->log[position];
    uint64_t end = position + ENTRY_WORDS + entry->words;
    if (BUG != 6)
        end = put_back_from(end, limit);
    uint64_t *to = AT(uint64_t, entry->place);
    for (uint64_t i = 0; i < entry->words; i++)
        to[i] = entry->word[i]; /* BUG 6, 7 */
    if (BUG != 7)
        flush(to, entry->words * sizeof(uint64_t));
    return BUG == 6 ? put_back_from(end, limit) : end;
}

/* Recovery does not know where the log ends. */
static void roll_back(uint64_t limit) {
    if (put_back_from(0, limit)) {
        fence();
        next_transaction();
    }
    log_length = 0;
    changed_count = 0;
}

/* Memory for nodes */

static void add_free_node(void) {
    uint64_t node = pool_alloc(sizeof(struct node));
    at(node)->child[0] = root->free_node;
    persist(at(node), sizeof(struct node));
    PUBLISH(root->free_node, node);
    persist(&root->free_node, sizeof root->free_node);
}

/* Outside of transactions: as many as an insertion may need, one for each level and two for new ones. */
static void have_free_nodes(void) {
    unsigned needed = 2, there = 0;
    for (uint64_t node = root->top; node && !at(node)->leaf; node = at(node)->child[0])
        needed++;
    for (uint64_t node = root->free_node; node && there < needed; node = at(node)->child[0])
        there++;
    while (there++ < needed)
        add_free_node();
}

/* An empty node. Nobody sees it but the list of free nodes, which it goes back to at an abort. */
static uint64_t take_node(uint64_t leaf) {
    uint64_t taken = root->free_node;
    struct node *node = at(taken);
    LOG(root->free_node);
    root->free_node = node->child[0];
    LOG(node->child[0]);
    if (BUG != 4)
        will_change(node, sizeof *node);
    node->length = 0;
    node->leaf = leaf; /* BUG 4 */
    node->child[0] = 0;
    return taken;
}

static void free_node(uint64_t freed) {
    struct node *node = at(freed);
    LOG(root->free_node);
    LOG(node->child[0]);
    node->child[0] = root->free_node;
    root->free_node = freed;
}

/* The tree */

static void structure_open(void) {
    if (!pool_root())
        pool_set_root(pool_alloc(sizeof *root)); /* new memory is zeros: no node, no entry */
    root = AT(struct root, pool_root());
    roll_back(LOG_WORDS);
}

static void log_node(struct node *node) { log_words(node, sizeof(struct node) / sizeof(uint64_t)); }

static void set_top(uint64_t top) {
    LOG(root->top);
    root->top = top;
}

/* The first pair whose key is not smaller. */
static unsigned position_of(const struct node *node, uint64_t key) {
    unsigned i = 0;
    while (i < node->length && node->key[i] < key)
        i++;
    return i;
}

static bool has(const struct node *node, unsigned i, uint64_t key) { return i < node->length && node->key[i] == key; }

static void copy_pair(struct node *to, unsigned i, const struct node *from, unsigned j) {
    to->key[i] = from->key[j];
    to->value[i] = from->value[j];
}

/* Makes room for a pair at i; in an inner node for the child behind it, too. The node has been logged. */
static void open_gap(struct node *node, unsigned i) {
    for (unsigned j = node->length; j > i; j--) {
        copy_pair(node, j, node, j - 1);
        if (!node->leaf)
            node->child[j + 1] = node->child[j];
    }
    node->length++;
}

/* Takes out the pair at i; in an inner node the child behind it, too. The node has been logged. */
static void close_gap(struct node *node, unsigned i) {
    for (unsigned j = i + 1; j < node->length; j++) {
        copy_pair(node, j - 1, node, j);
        if (!node->leaf)
            node->child[j] = node->child[j + 1];
    }
    node->length--;
}

/* The child at i is full: its larger half becomes a node of its own, the pair in the middle comes up. */
static void split_child(struct node *parent, unsigned i) {
    struct node *left = at(parent->child[i]);
    uint64_t taken = take_node(left->leaf);
    struct node *right = at(taken);
    for (unsigned j = 0; j < LEAST - 1; j++)
        copy_pair(right, j, left, j + LEAST);
    for (unsigned j = 0; !left->leaf && j < LEAST; j++)
        right->child[j] = left->child[j + LEAST];
    right->length = LEAST - 1;
    LOG(left->length);
    left->length = LEAST - 1;
    log_node(parent);
    open_gap(parent, i);
    copy_pair(parent, i, left, LEAST - 1);
    parent->child[i + 1] = taken;
}

static void grow(void) {
    uint64_t top = take_node(root->top == 0);
    at(top)->child[0] = root->top;
    set_top(top);
    if (!at(top)->leaf)
        split_child(at(top), 0);
}

/* Without the log: the pair is written first, in the same cache line or before a fence. */
static void append_pair(struct node *leaf, uint64_t key, uint64_t value) {
    uint64_t i = leaf->length;
#if BUG == 9
    PUBLISH(leaf->length, i + 1);
#endif
    leaf->key[i] = key; /* BUG 9 */
    leaf->value[i] = value;
    if (sizeof leaf->length + sizeof leaf->key + sizeof leaf->value > LINE)
        persist(leaf, sizeof *leaf);
#if BUG != 9
    PUBLISH(leaf->length, i + 1);
#endif
    persist(leaf, sizeof *leaf);
}

static void insert_into_leaf(struct node *leaf, unsigned i, uint64_t key, uint64_t value) {
    if (log_length == 0 && i == leaf->length) {
        append_pair(leaf, key, value);
        return;
    }
    log_node(leaf);
    open_gap(leaf, i);
    leaf->key[i] = key;
    leaf->value[i] = value;
    commit();
}

static bool structure_insert(uint64_t key, uint64_t value) {
    have_free_nodes();
    if (root->top == 0 || at(root->top)->length == FULL)
        grow();
    struct node *node = at(root->top);
    for (;;) {
        unsigned i = position_of(node, key);
        if (has(node, i, key))
            break;
        if (node->leaf) {
            insert_into_leaf(node, i, key, value);
            return true;
        }
        if (at(node->child[i])->length == FULL) {
            split_child(node, i);
            if (has(node, i, key))
                break;
            i += node->key[i] < key;
        }
        node = at(node->child[i]);
    }
    roll_back(log_length);
    return false;
}

static struct node *find(uint64_t key, unsigned *i) {
    for (uint64_t node = root->top; node; node = at(node)->child[*i]) {
        *i = position_of(at(node), key);
        if (has(at(node), *i, key))
            return at(node);
        if (at(node)->leaf)
            break;
    }
    return NULL;
}

static bool structure_update(uint64_t key, uint64_t value) {
    unsigned i;
    struct node *node = find(key, &i);
    if (!node)
        return false;
    PUBLISH(node->value[i], value);
    persist(&node->value[i], sizeof node->value[i]);
    return true;
}

/* Joins the children at i and i + 1 and the pair between them. */
static void merge_children(struct node *parent, unsigned i) {
    uint64_t freed = parent->child[i + 1];
    struct node *left = at(parent->child[i]), *right = at(freed);
    log_node(left);
    copy_pair(left, left->length, parent, i);
    for (unsigned j = 0; j < right->length; j++)
        copy_pair(left, left->length + 1 + j, right, j);
    for (unsigned j = 0; !left->leaf && j <= right->length; j++)
        left->child[left->length + 1 + j] = right->child[j];
    left->length += 1 + right->length;
    log_node(parent);
    close_gap(parent, i);
    free_node(freed);
}

/* A pair goes from the child at i - 1 up, and the one between them down to the child at i. */
static void borrow_from_left(struct node *parent, unsigned i) {
    struct node *node = at(parent->child[i]), *left = at(parent->child[i - 1]);
    log_node(node);
    if (!node->leaf) {
        node->child[node->length + 1] = node->child[node->length];
        for (unsigned j = node->length; j > 0; j--)
            node->child[j] = node->child[j - 1];
        node->child[0] = left->child[left->length];
    }
    for (unsigned j = node->length; j > 0; j--)
        copy_pair(node, j, node, j - 1);
    copy_pair(node, 0, parent, i - 1);
    node->length++;
    log_node(parent);
    copy_pair(parent, i - 1, left, left->length - 1);
    LOG(left->length);
    left->length--;
}

static void borrow_from_right(struct node *parent, unsigned i) {
    struct node *node = at(parent->child[i]), *right = at(parent->child[i + 1]);
    log_node(node);
    copy_pair(node, node->length, parent, i);
    if (!node->leaf)
        node->child[node->length + 1] = right->child[0];
    node->length++;
    log_node(parent);
    copy_pair(parent, i, right, 0);
    log_node(right);
    if (!right->leaf)
        right->child[0] = right->child[1];
    close_gap(right, 0);
}

/* The child at i, or what it became part of, with a pair more than the least. */
static struct node *child_to_delete_from(struct node *parent, unsigned i) {
    if (at(parent->child[i])->length >= LEAST)
        return at(parent->child[i]);
    if (i > 0 && at(parent->child[i - 1])->length >= LEAST) {
        borrow_from_left(parent, i);
    } else if (i < parent->length && at(parent->child[i + 1])->length >= LEAST) {
        borrow_from_right(parent, i);
    } else {
        i -= i == parent->length;
        merge_children(parent, i);
    }
    return at(parent->child[i]);
}

/* The pair at i, of an inner node, gives way to its neighbour from a child that has enough, and that is deleted there; or it moves into
 * the joined children. */
static struct node *delete_from_inner(struct node *node, unsigned i, uint64_t *key) {
    bool from_left = at(node->child[i])->length >= LEAST;
    if (!from_left && at(node->child[i + 1])->length < LEAST) {
        merge_children(node, i);
        return at(node->child[i]);
    }
    struct node *child = at(node->child[from_left ? i : i + 1]), *last = child;
    while (!last->leaf)
        last = at(last->child[from_left ? last->length : 0]);
    if (BUG == 5)
        will_change(node, sizeof *node);
    else
        log_node(node);
    copy_pair(node, i, last, from_left ? last->length - 1 : 0); /* BUG 5 */
    *key = node->key[i];
    return child;
}

static bool structure_delete(uint64_t key) {
    if (!root->top)
        return false;
    struct node *node = at(root->top);
    for (;;) {
        unsigned i = position_of(node, key);
        bool found = has(node, i, key);
        if (node->leaf) {
            if (!found) {
                roll_back(log_length);
                return false;
            }
            if (BUG == 14)
                log_words(node, 1 + FULL);
            else
                log_node(node);
            close_gap(node, i); /* BUG 14 */
            break;
        }
        node = found ? delete_from_inner(node, i, &key) : child_to_delete_from(node, i);
    }
    uint64_t top = root->top;
    if (at(top)->length == 0 && !at(top)->leaf) {
#if BUG == 8
        will_change(&root->top, sizeof root->top);
        root->top = at(top)->child[0]; /* BUG 8 */
#else
        set_top(at(top)->child[0]);
#endif
        free_node(top);
    }
    commit();
    return true;
}

static bool structure_query(uint64_t key, uint64_t *value) {
    unsigned i;
    const struct node *node = find(key, &i);
    if (node)
        *value = node->value[i];
    return node != NULL;
}

static size_t collect(uint64_t offset, uint64_t least, struct pair *found, size_t length) {
    const struct node *node = at(offset);
    for (unsigned i = position_of(node, least); i <= node->length; i++) {
        if (!node->leaf)
            length = collect(node->child[i], least, found, length);
        if (i < node->length && length < MOST_PAIRS)
            found[length++] = (struct pair){node->key[i], node->value[i]};
    }
    return length;
}

static size_t structure_collect(uint64_t least, struct pair *found) {
    return root->top ? collect(root->top, least, found, 0) : 0;
}
