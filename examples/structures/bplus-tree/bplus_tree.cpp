/* A B+-tree after FAST and FAIR (Hwang, Kim, Won, Nam, FAST 2018): without a log, by 8-byte stores in an order in which every
 * prefix is a tree that readers understand.
 *
 * Records of a node are sorted, and end before the first null pointer. A record whose pointer is that of its left neighbour does
 * not count: insertion shifts to the right and deletion to the left, pointers first or last, so that one of the two copies counts
 * at any time. A split links the new node as a sibling, cuts the old one short, and only then updates the parent. */
#include "../common/driver.h"

namespace {

constexpr int RECORDS = 8; /* the last one is always null */
constexpr int HALF = 3;

/* Pointers are offsets: of a node, or in a leaf of a cell, so that no two records of a node have the same. */
struct Record {
    uint64_t key;
    uint64_t pointer;
};

struct Node {
    uint64_t level;    /* 0: a leaf */
    uint64_t low;      /* no key is smaller */
    uint64_t leftmost; /* the child before the first record; in a leaf the leaf itself */
    uint64_t sibling;  /* the next node of the level */
    alignas(LINE) Record record[RECORDS];

    int count() const {
        int n = 0;
        while (record[n].pointer)
            n++;
        return n;
    }
    uint64_t left_of(int i) const { return i ? record[i - 1].pointer : leftmost; }
    bool counts(int i) const { return record[i].pointer != left_of(i); }
};

struct Cell {
    uint64_t value;
};

Node *node_at(uint64_t offset) { return AT(Node, offset); }

Node *root() { return node_at(pool_root()); }

bool first_of_line(const Record *record) { return reinterpret_cast<uintptr_t>(record) % LINE == 0; }

bool last_of_line(const Record *record) { return first_of_line(record + 1); }

uint64_t make_node(uint64_t level, uint64_t low, uint64_t leftmost, uint64_t sibling) {
    uint64_t offset = pool_alloc(sizeof(Node));
    Node *node = node_at(offset);
    node->level = level;
    node->low = low;
    node->leftmost = leftmost ? leftmost : offset;
    node->sibling = sibling;
    node->record[0].pointer = 0;
    return offset;
}

/* The node of a level in which a key belongs. Siblings that no parent knows yet are found through their left neighbours. */
Node *descend(uint64_t key, uint64_t level) {
    Node *node = root();
    for (;;) {
        while (node->sibling && key >= node_at(node->sibling)->low)
            node = node_at(node->sibling);
        if (node->level == level)
            return node;
        uint64_t child = node->leftmost;
        for (int i = 0; node->record[i].pointer && node->record[i].key <= key; i++)
            if (node->counts(i))
                child = node->record[i].pointer;
        node = node_at(child);
    }
}

int position_of(const Node *node, uint64_t key) {
    for (int i = 0; node->record[i].pointer; i++)
        if (node->record[i].key == key && node->counts(i))
            return i;
    return -1;
}

/* FAST: one record up, the pointer before the key; a line has persisted before the one below it changes. */
void shift_right(Node *node, int first, int n) {
    for (int i = n - 1; i >= first; i--) {
        Record *from = &node->record[i], *to = from + 1;
        if (BUG == 3)
            PUBLISH(to->key, from->key); /* BUG 3 */
        PUBLISH(to->pointer, from->pointer); /* BUG 1, 3 */
        if (BUG != 3)
            PUBLISH(to->key, from->key); /* BUG 1 */
        if (first_of_line(to)) {
            flush(to, sizeof *to);
            if (BUG != 1)
                fence();
        }
    }
}

/* There is room. */
void insert_here(Node *node, uint64_t key, uint64_t pointer) {
    int n = node->count(), first = n;
    while (first > 0 && node->record[first - 1].key > key)
        first--;
    Record *record = &node->record[first];
    PUBLISH(node->record[n + 1].pointer, 0);
    if (last_of_line(&node->record[n]))
        persist(&node->record[n + 1], sizeof(Record));
    shift_right(node, first, n);
    if (first < n)
        PUBLISH(record->pointer, node->left_of(first)); /* BUG 1 */
    if (BUG != 2)
        PUBLISH(record->key, key);
    PUBLISH(record->pointer, pointer); /* BUG 2, 4, 12 */
    if (BUG == 2)
        PUBLISH(record->key, key); /* BUG 2 */
    if (BUG != 12)
        persist(record, sizeof *record);
}

/* Closes the gap at `first`, a record that does not count: one record down, the key before the pointer. */
void shift_left(Node *node, int first) {
    for (int i = first; node->record[i].pointer; i++) {
        Record *to = &node->record[i], *from = to + 1;
        PUBLISH(to->key, from->key);         /* BUG 9, 10 */
        PUBLISH(to->pointer, from->pointer); /* BUG 9, 10 */
        if (last_of_line(to)) {
            flush(to, sizeof *to);
            if (BUG != 9)
                fence();
        }
    }
    persist(node->record, sizeof node->record);
}

void remove_here(Node *node, int i) {
    if (BUG != 10)
        PUBLISH(node->record[i].pointer, node->left_of(i));
    shift_left(node, i);
}

void insert_at(uint64_t level, uint64_t key, uint64_t pointer);

/* The tree gets a root above the one it has, whose right half is `sibling`. */
void grow(uint64_t key, uint64_t sibling) {
    uint64_t offset = make_node(root()->level + 1, 0, pool_root(), 0);
    Node *node = node_at(offset);
    node->record[0].key = key;         /* BUG 7 */
    node->record[0].pointer = sibling; /* BUG 7 */
    node->record[1].pointer = 0;
    if (BUG == 13) {
        node->leftmost = 0;
        persist(node, sizeof *node);
        uint64_t old = pool_root();
        pool_set_root(offset);         /* BUG 13 */
        PUBLISH(node->leftmost, old);  /* BUG 13 */
    }
    flush(node, sizeof *node);
    if (BUG != 7)
        fence();
    PUBLISH(pool()->root, offset); /* BUG 7 */
    persist(&pool()->root, sizeof pool()->root);
}

void tell_parent(uint64_t child) {
    Node *node = node_at(child);
    if (node->level == root()->level)
        grow(node->low, child);
    else
        insert_at(node->level + 1, node->low, child);
}

/* FAIR: the upper records are copied to a new sibling, then cut off. */
void split(Node *node) {
    int n = node->count();
    bool leaf = node->level == 0;
    uint64_t low = node->record[HALF].key, leftmost = leaf ? 0 : node->record[HALF].pointer;
    uint64_t offset = make_node(node->level, low, leftmost, node->sibling);
    Node *right = node_at(offset);
    if (BUG == 14)
        right->sibling = 0;
    int first = leaf ? HALF : HALF + 1;
    for (int i = first; i < n; i++) {
        right->record[i - first].key = node->record[i].key;         /* BUG 5 */
        right->record[i - first].pointer = node->record[i].pointer; /* BUG 5 */
    }
    right->record[n - first].pointer = 0;
    flush(right, sizeof *right);
    if (BUG != 5)
        fence();
    uint64_t next = node->sibling;
    PUBLISH(node->sibling, offset); /* BUG 5, 6, 8, 14 */
    flush(&node->sibling, sizeof node->sibling);
    if (BUG != 6)
        fence();
    if (BUG == 14) {
        PUBLISH(right->sibling, next); /* BUG 14 */
        persist(right, sizeof *right);
    }
    PUBLISH(node->record[HALF].pointer, 0); /* BUG 6, 8 */
    persist(&node->record[HALF], sizeof(Record));
    tell_parent(offset);
}

void insert_at(uint64_t level, uint64_t key, uint64_t pointer) {
    Node *node = descend(key, level);
    if (node->count() == RECORDS - 1) {
        split(node);
        node = descend(key, level);
    }
    insert_here(node, key, pointer);
}

/* A shift or a split that a crash interrupted is completed. */
void repair(Node *node) {
    for (int i = 0; node->record[i].pointer; i++) {
        if (!node->counts(i))
            shift_left(node, i--);
    }
    if (!node->sibling || BUG == 8)
        return;
    uint64_t low = node_at(node->sibling)->low;
    for (int i = 0; node->record[i].pointer; i++) {
        if (node->record[i].key < low)
            continue;
        PUBLISH(node->record[i].pointer, 0);
        persist(&node->record[i], sizeof(Record));
    }
}

void recover() {
    if (root()->sibling) {
        repair(root());
        grow(node_at(root()->sibling)->low, root()->sibling);
    }
    Node *first = root();
    for (;;) {
        for (Node *node = first;; node = node_at(node->sibling)) {
            repair(node);
            if (!node->sibling)
                break;
            uint64_t sibling = node->sibling;
            const Node *parent = descend(node_at(sibling)->low, node->level + 1);
            bool known = parent->leftmost == sibling;
            for (int i = 0; parent->record[i].pointer; i++)
                known |= parent->record[i].pointer == sibling;
            if (!known)
                tell_parent(sibling);
        }
        if (first->level == 0)
            return;
        first = node_at(first->leftmost);
    }
}

uint64_t make_cell(uint64_t value) {
    uint64_t cell = pool_alloc(sizeof(Cell));
    AT(Cell, cell)->value = value; /* BUG 4 */
    flush(AT(Cell, cell), sizeof(Cell));
    if (BUG != 4)
        fence();
    return cell;
}

} // namespace

static void structure_open(void) {
    if (pool_root()) {
        recover();
        return;
    }
    uint64_t leaf = make_node(0, 0, 0, 0);
    persist(node_at(leaf), sizeof(Node));
    pool_set_root(leaf);
}

static bool structure_insert(uint64_t key, uint64_t value) {
    if (position_of(descend(key, 0), key) >= 0)
        return false;
    insert_at(0, key, make_cell(value));
    return true;
}

static bool structure_update(uint64_t key, uint64_t value) {
    Node *node = descend(key, 0);
    int i = position_of(node, key);
    if (i < 0)
        return false;
    uint64_t old = node->record[i].pointer;
    PUBLISH(node->record[i].pointer, make_cell(value)); /* BUG 11 */
    flush(&node->record[i], sizeof(Record));
    if (BUG != 11)
        fence();
    pool_free(old, sizeof(Cell)); /* BUG 11 */
    return true;
}

static bool structure_delete(uint64_t key) {
    Node *node = descend(key, 0);
    int i = position_of(node, key);
    if (i < 0)
        return false;
    uint64_t old = node->record[i].pointer;
    remove_here(node, i);
    pool_free(old, sizeof(Cell));
    return true;
}

static bool structure_query(uint64_t key, uint64_t *value) {
    const Node *node = descend(key, 0);
    int i = position_of(node, key);
    if (i >= 0)
        *value = AT(Cell, node->record[i].pointer)->value;
    return i >= 0;
}

static size_t structure_collect(uint64_t least, struct pair *found) {
    size_t length = 0;
    for (const Node *node = descend(least, 0); node; node = node->sibling ? node_at(node->sibling) : nullptr)
        for (int i = 0; node->record[i].pointer; i++)
            if (node->counts(i) && node->record[i].key >= least)
                found[length++] = {node->record[i].key, AT(Cell, node->record[i].pointer)->value};
    return length;
}
