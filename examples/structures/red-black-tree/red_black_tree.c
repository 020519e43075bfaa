/* A red-black tree in persistent memory (Guibas and Sedgewick, 1978; as in Cormen et al., Introduction to Algorithms), made atomic by
 * an undo log of its own.
 *
 * An entry of the log is one cache line: where a node is, and what it held. It has persisted before the number of entries takes it
 * in, and that number before the node changes. To commit, all changed nodes persist, then the number becomes 0. To abort, and
 * in recovery, the entries are put back, from the last to the first; these persist before the number becomes 0.
 * An insertion takes its node before it looks for the key, and aborts if the key is there. An update is one store, and needs no log. */
#include "../common/driver.h"

#define MOST_ENTRIES 127
#define WORDS 6

enum { BLACK, RED };

/* Offsets of nodes, 0: none. The left child of a free node is the next free one. */
struct node {
    uint64_t key;
    uint64_t value;
    uint64_t color;
    uint64_t left;
    uint64_t right;
    uint64_t parent;
} __attribute__((aligned(LINE)));

struct entry {
    uint64_t place;
    uint64_t word[WORDS];
} __attribute__((aligned(LINE)));

/* What transactions change besides nodes; of a node's size, so that the log need not know. */
struct head {
    uint64_t top;
    uint64_t free_node;
    uint64_t unused[WORDS - 2];
} __attribute__((aligned(LINE)));

struct root {
    struct head head;
    uint64_t entries __attribute__((aligned(LINE)));
    struct entry entry[MOST_ENTRIES];
} __attribute__((aligned(LINE)));

static struct root *root;

/* What the present transaction has logged, and so has to write back. */
static uint64_t touched[MOST_ENTRIES + 1];
static unsigned touched_count;

static uint64_t size; /* how many keys the tree has */

static struct node *at(uint64_t offset) { return AT(struct node, offset); }

/* The log */

static void set_entries(uint64_t count) {
    PUBLISH(root->entries, count); /* BUG 1, 2, 4, 8 */
    if (!(BUG == 8 && count == 0))
        flush(&root->entries, sizeof root->entries);
    if (!(BUG == 2 && count != 0))
        fence();
}

static void append_entry(uint64_t place) {
    struct entry *entry = &root->entry[root->entries];
    const uint64_t *from = AT(const uint64_t, place);
    if (root->entries == MOST_ENTRIES) {
        fprintf(stderr, "the log is full\n");
        exit(3);
    }
    entry->place = place;
    for (int i = 0; i < WORDS; i++)
        entry->word[i] = from[i];
    flush(entry, sizeof *entry);
    if (BUG != 1)
        fence();
    set_entries(root->entries + 1);
}

static bool is_touched(uint64_t place) {
    for (unsigned i = 0; i < touched_count; i++)
        if (touched[i] == place)
            return true;
    return false;
}

/* To be called before the first change of a node, or of the head, in a transaction. */
static void log_place(uint64_t place) {
    bool known = is_touched(place);
    if (BUG == 6 || !known)
        append_entry(place);
    if (!known)
        touched[touched_count++] = place;
}

static struct node *changing(uint64_t node) {
    log_place(node);
    return at(node);
}

static struct head *changing_head(void) {
    log_place(OFFSET(&root->head));
    return &root->head;
}

static void commit(void) {
    for (unsigned i = 0; i < (BUG == 11 ? touched_count - 1 : touched_count); i++)
        flush(at(touched[i]), sizeof(struct node));
    if (BUG != 4)
        fence();
    set_entries(0);
    touched_count = 0;
}

/* Of two entries for one place the older is put back last. */
static void roll_back(void) {
    for (uint64_t i = 0; i < root->entries; i++) {
        const struct entry *entry = &root->entry[BUG == 6 ? i : root->entries - 1 - i];
        uint64_t *to = AT(uint64_t, entry->place);
        for (int word = 0; word < (BUG == 9 ? WORDS - 1 : WORDS); word++)
            to[word] = entry->word[word]; /* BUG 6, 9 */
        flush(to, sizeof(struct node));
    }
    fence();
    set_entries(0);
    touched_count = 0;
}

/* Memory for nodes */

/* Outside of transactions: the list of free nodes never is empty within one. */
static void have_free_node(void) {
    if (root->head.free_node)
        return;
    uint64_t node = pool_alloc(sizeof(struct node));
    at(node)->left = 0;
    persist(at(node), sizeof(struct node));
    PUBLISH(root->head.free_node, node);
    persist(&root->head, sizeof root->head);
}

static uint64_t take_node(uint64_t key, uint64_t value) {
    uint64_t taken = root->head.free_node;
    if (BUG == 5)
        touched[touched_count++] = taken;
    struct node *node = changing(taken);
    changing_head()->free_node = node->left;
    node->key = key;
    node->value = value;
    node->color = RED;
    node->left = 0; /* BUG 5 */
    node->right = 0;
    node->parent = 0;
    return taken;
}

static void free_node(uint64_t freed) {
    struct node *node = changing(freed);
    struct head *head = changing_head();
    node->left = head->free_node;
    head->free_node = freed;
}

/* The tree */

static void damaged(void) {
    fprintf(stderr, "damaged: this is no tree\n");
    abort();
}

static uint64_t count_nodes(uint64_t node, unsigned depth) {
    if (!node)
        return 0;
    if (depth == 64)
        damaged();
    return 1 + count_nodes(at(node)->left, depth + 1) + count_nodes(at(node)->right, depth + 1);
}

static void structure_open(void) {
    if (!pool_root()) {
        uint64_t block = pool_alloc(sizeof *root);
        pool_set_root(block); /* new memory is zeros: no node, no entry */
    }
    root = AT(struct root, pool_root());
    if (BUG == 10)
        size = count_nodes(root->head.top, 0);
    if (root->entries)
        roll_back();
    if (BUG != 10)
        size = count_nodes(root->head.top, 0);
}

static uint64_t find(uint64_t key) {
    uint64_t node = root->head.top;
    while (node && at(node)->key != key)
        node = key < at(node)->key ? at(node)->left : at(node)->right;
    return node;
}

static bool is_red(uint64_t node) { return node && at(node)->color == RED; }

static void set_color(uint64_t node, uint64_t color) {
    if (node && at(node)->color != color)
        changing(node)->color = color;
}

static void set_parent(uint64_t node, uint64_t parent) {
    if (!node)
        return;
    if (BUG == 3) {
        at(node)->parent = parent; /* BUG 3 */
        flush(at(node), sizeof(struct node));
    } else {
        changing(node)->parent = parent;
    }
}

/* `to` takes the place of `from` below `parent`, which is 0 for the top. */
static void replace_child(uint64_t parent, uint64_t from, uint64_t to) {
    if (!parent)
        changing_head()->top = to;
    else if (at(parent)->left == from)
        changing(parent)->left = to;
    else
        changing(parent)->right = to;
}

/* The child on this side (0: left) comes up, its inner child changes over. */
static void rotate(uint64_t down, int side) {
    uint64_t up = side ? at(down)->right : at(down)->left, parent = at(down)->parent;
    struct node *lower = changing(down), *upper = changing(up);
    uint64_t inner = side ? upper->left : upper->right;
    if (side) {
        upper->left = down; /* BUG 10 */
        lower->right = inner;
    } else {
        upper->right = down; /* BUG 10 */
        lower->left = inner;
    }
    set_parent(inner, down);
    replace_child(parent, down, up);
    upper->parent = parent; /* BUG 9, 11 */
    lower->parent = up;     /* BUG 9, 11 */
}

static void balance_insertion(uint64_t node) {
    while (is_red(at(node)->parent)) {
        uint64_t parent = at(node)->parent, grandparent = at(parent)->parent;
        int side = parent == at(grandparent)->right;
        uint64_t uncle = side ? at(grandparent)->left : at(grandparent)->right;
        if (is_red(uncle)) {
            set_color(parent, BLACK);
            set_color(uncle, BLACK);
            set_color(grandparent, RED);
            node = grandparent;
            continue;
        }
        if (node == (side ? at(parent)->left : at(parent)->right)) {
            rotate(parent, !side);
            node = parent;
            parent = at(node)->parent;
        }
        set_color(parent, BLACK);
        set_color(grandparent, RED);
        rotate(grandparent, side);
    }
    set_color(root->head.top, BLACK);
}

static bool structure_insert(uint64_t key, uint64_t value) {
    have_free_node();
    uint64_t node = take_node(key, value), parent = 0;
    for (uint64_t next = root->head.top; next;) {
        parent = next;
        if (at(parent)->key == key) {
            roll_back();
            return false;
        }
        next = key < at(parent)->key ? at(parent)->left : at(parent)->right;
    }
    at(node)->parent = parent;
    if (!parent)
        changing_head()->top = node;
    else if (key < at(parent)->key)
        changing(parent)->left = node;
    else
        changing(parent)->right = node;
    balance_insertion(node);
    commit();
    size++;
    return true;
}

static bool structure_update(uint64_t key, uint64_t value) {
    uint64_t node = find(key);
    if (!node)
        return false;
    PUBLISH(at(node)->value, value); /* BUG 12 */
    if (BUG != 12)
        persist(at(node), sizeof(struct node));
    return true;
}

/* A black node is missing on the way to `node` (which may be 0), below `parent`. */
static void balance_deletion(uint64_t node, uint64_t parent) {
    while (parent && !is_red(node)) {
        int side = node == at(parent)->right; /* both are 0 only where the other child cannot be */
        if (node == 0)
            side = at(parent)->right == 0;
        uint64_t sibling = side ? at(parent)->left : at(parent)->right;
        if (is_red(sibling)) {
            set_color(sibling, BLACK);
            set_color(parent, RED);
            rotate(parent, !side);
            sibling = side ? at(parent)->left : at(parent)->right;
        }
        uint64_t inner = side ? at(sibling)->right : at(sibling)->left;
        uint64_t outer = side ? at(sibling)->left : at(sibling)->right;
        if (!is_red(inner) && !is_red(outer)) {
            set_color(sibling, RED);
            node = parent;
            parent = at(node)->parent;
            continue;
        }
        if (!is_red(outer)) {
            set_color(inner, BLACK);
            set_color(sibling, RED);
            rotate(sibling, side);
            outer = sibling;
            sibling = inner;
        }
        set_color(sibling, at(parent)->color);
        set_color(parent, BLACK);
        set_color(outer, BLACK);
        rotate(parent, !side);
        return;
    }
    set_color(node, BLACK);
}

/* A node with two children takes over the pair of the next larger key, whose node goes instead. */
static uint64_t node_that_goes(uint64_t node) {
    if (!at(node)->left || !at(node)->right)
        return node;
    uint64_t next = at(node)->right;
    while (at(next)->left)
        next = at(next)->left;
    struct node *stays = BUG == 7 ? at(node) : changing(node);
    stays->key = at(next)->key; /* BUG 7 */
    changing(node)->value = at(next)->value;
    return next;
}

static bool structure_delete(uint64_t key) {
    uint64_t node = find(key);
    if (!node)
        return false;
    node = node_that_goes(node);
    uint64_t child = at(node)->left ? at(node)->left : at(node)->right, parent = at(node)->parent;
    replace_child(parent, node, child);
    set_parent(child, parent);
    if (at(node)->color == BLACK)
        balance_deletion(child, parent);
    free_node(node);
    commit();
    size--;
    return true;
}

static bool structure_query(uint64_t key, uint64_t *value) {
    uint64_t node = find(key);
    if (node)
        *value = at(node)->value;
    return node != 0;
}

static size_t collect(uint64_t node, uint64_t least, struct pair *found, size_t length) {
    if (!node || length == size)
        return length;
    if (at(node)->key >= least) {
        length = collect(at(node)->left, least, found, length);
        if (length < size && length < MOST_PAIRS)
            found[length++] = (struct pair){at(node)->key, at(node)->value};
    }
    return collect(at(node)->right, least, found, length);
}

static size_t structure_collect(uint64_t least, struct pair *found) { return collect(root->head.top, least, found, 0); }
