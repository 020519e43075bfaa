/* Programs with two bugs, or with one that shows in several ways: causes work FILE, causes check FILE. CASE: which.
 * 1 to 5: two bugs in one operation; 6 to 9: a bug in the library, beside one of its caller or reached from several;
 * 10 to 12: one bug at three instances. Each operation runs OPERATIONS times. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <crashcheck.h>

#include "library.h"

#define OPERATIONS 2

struct node {
    LINE uint64_t key;
    LINE uint64_t value;
    LINE uint64_t valid;
};

struct bucket {
    LINE uint64_t tag;
    LINE uint64_t key;
    LINE uint64_t value;
    LINE uint64_t valid;
};

struct pool {
    LINE uint64_t done;
    struct node left[8], right[8];
    struct heap heap;
    struct log log;
    LINE uint64_t index[64];
    struct { LINE uint64_t words[24]; LINE uint64_t whole; } copies[3];
    struct bucket buckets[3];
};

static struct pool *pool;

static void set(struct node *node, uint64_t value, int flushes)
{
    node->value = value;
    if (flushes)
        persist(&node->value, 8);
    node->valid = 1;
    persist(&node->valid, 8);
}

#if CASE == 5
static __attribute__((noinline)) void remove_leaf(uint64_t i)
{
    pool->index[0] = 0;
    pool->left[i].key = 1; /* what was removed */
    persist(&pool->left[i].key, 8);
}

static __attribute__((noinline)) void remove_inner(uint64_t i)
{
    pool->index[8] = 0;
    pool->right[i].key = 1;
    persist(&pool->right[i].key, 8);
}
#endif

static void operation(uint64_t i)
{
    struct node *left = &pool->left[i], *right = &pool->right[i];
    uint64_t words[24];
    for (int word = 0; word < 24; word++)
        words[word] = i + 1;
#if CASE == 1 /* two records, each valid too early */
    left->value = i + 1;
    left->valid = 1;
    persist(&left->valid, 8);
    persist(&left->value, 8);
    right->key = i + 1;
    right->valid = 1;
    persist(&right->valid, 8);
    persist(&right->key, 8);
#elif CASE == 2 /* a drain that the library leaves out, and one that its caller does before: either hides the count's loss */
    left->value = i + 1;
    flush(&left->value, 8);
    log_append(&pool->log, (uint64_t)left - (uint64_t)pool);
#elif CASE == 3 /* two removals, of which each frees before it unlinks */
    set(left, i + 1, 1);
    set(right, i + 1, 1);
    pool->index[0] = i + 1;
    pool->index[8] = i + 1;
    persist(&pool->index[0], 8);
    persist(&pool->index[8], 8);
    pool->index[0] = 0;
    left->value = 0;
    persist(&left->value, 8);
    persist(&pool->index[0], 8);
    pool->index[8] = 0;
    right->value = 0;
    persist(&right->value, 8);
    persist(&pool->index[8], 8);
#elif CASE == 4 /* an early flag, and a count that is never flushed */
    left->value = i + 1;
    left->valid = 1;
    persist(&left->valid, 8);
    persist(&left->value, 8);
    pool->index[0] = i + 1;
#elif CASE == 5 /* two removals, in functions of their own, that do not flush what they unlink */
    pool->index[0] = i + 1;
    pool->index[8] = i + 1;
    persist(&pool->index[0], 8);
    persist(&pool->index[8], 8);
    if (i % 2)
        remove_leaf(i);
    else
        remove_inner(i);
#elif CASE == 6 /* a copy of which the library flushes the first line, and a mark that its caller makes first */
    pool->copies[i].whole = 1;
    persist(&pool->copies[i].whole, 8);
    copy_words(pool->copies[i].words, words, 24);
    left->valid = 1;
    persist(&left->valid, 8);
#elif CASE == 7 /* a drain that the library leaves out, an index that its caller does not flush */
    log_append(&pool->log, i + 1);
    pool->index[i * 8] = i + 1;
#elif CASE == 8 /* one bug of the library, reached by two callers */
    if (i % 2)
        left->key = 1 + heap_take(&pool->heap, i + 1);
    else
        right->key = 1 + heap_take(&pool->heap, i + 1);
    persist(&left->key, 8);
    persist(&right->key, 8);
#elif CASE == 9 /* one bug of the library, reached by two callers, and one of a caller */
    if (i % 2)
        left->key = 1 + heap_take(&pool->heap, i + 1);
    else
        right->key = 1 + heap_take(&pool->heap, i + 1);
    persist(&left->key, 8);
    persist(&right->key, 8);
    left->value = i + 1;
    left->valid = 1;
    persist(&left->valid, 8);
#elif CASE == 10 /* a bucket of three lines, of which none is flushed before it is valid */
    struct bucket *bucket = &pool->buckets[i];
    bucket->tag = i + 1;
    bucket->key = i + 1;
    bucket->value = i + 1;
    bucket->valid = 1;
    persist(&bucket->valid, 8);
#elif CASE == 11 /* three lines that one flush should cover */
    copy_words(pool->copies[i].words, words, 24);
    pool->copies[i].whole = 1;
    persist(&pool->copies[i].whole, 8);
#elif CASE == 12 /* a helper that does not flush, called for three nodes */
    set(&pool->left[i], i + 1, 0);
    set(&pool->right[i], i + 1, 0);
    set(&pool->right[i + 4], i + 1, 0);
#endif
}

static void require(int holds, const char *what)
{
    if (holds)
        return;
    puts(what);
    exit(1);
}

static void check(void)
{
    for (uint64_t i = 0; i < 8; i++) {
        struct node *left = &pool->left[i], *right = &pool->right[i];
#if CASE == 1
        require(!left->valid || left->value, "left");
        require(!right->valid || right->key, "right");
#elif CASE == 3
        require(pool->index[0] != i + 1 || left->value, "left is freed");
        require(pool->index[8] != i + 1 || right->value, "right is freed");
#elif CASE == 4
        require(!left->valid || left->value, "left");
#elif CASE == 5
        require(!left->key || pool->index[0] != i + 1, "a leaf that was removed");
        require(!right->key || pool->index[8] != i + 1, "an inner node that was removed");
#elif CASE == 9
        require(!left->valid || left->value, "left");
#elif CASE == 12
        require(!left->valid || left->value, "node");
        require(!right->valid || right->value, "node");
#endif
    }
#if CASE == 4
    require(pool->index[0] >= pool->done, "count");
#endif
#if CASE == 2 || CASE == 7
    for (uint64_t i = 0; i < pool->log.length; i++)
        require(pool->log.entries[i] != 0, "log");
#endif
#if CASE == 2
    for (uint64_t i = 0; i < 3; i++)
        require(!pool->log.entries[i] || ((struct node *)((char *)pool + pool->log.entries[i]))->value, "node");
#elif CASE == 10
    for (uint64_t i = 0; i < 3; i++) {
        struct bucket *bucket = &pool->buckets[i];
        require(!bucket->valid || bucket->tag, "tag");
        require(!bucket->valid || bucket->key, "key");
        require(!bucket->valid || bucket->value, "value");
    }
#endif
#if CASE == 7
    for (uint64_t i = 0; i < pool->done; i++)
        require(pool->index[i * 8] != 0, "index");
#endif
#if CASE == 6
    for (int i = 0; i < 3; i++) {
        require(!pool->copies[i].whole || pool->copies[i].words[0], "a mark without its copy");
        for (int word = 0; word < 24 && pool->left[i].valid; word++)
            require(pool->copies[i].words[word] != 0, "copy");
    }
#elif CASE == 11
    for (int i = 0; i < 3; i++)
        for (int word = 0; word < 24 && pool->copies[i].whole; word++)
            require(pool->copies[i].words[word] != 0, "copy");
#endif
#if CASE == 8 || CASE == 9
    for (uint64_t i = 0; i < 8; i++)
        require(!pool->heap.blocks[i].used || pool->heap.blocks[i].data[0], "block");
    for (uint64_t i = 0; i < pool->done; i++)
        require(pool->heap.first > i, "first");
#endif
}

int main(int count, char **arguments)
{
    int works = count == 3 && arguments[1][0] == 'w', fd = open(arguments[2], O_RDWR | O_CREAT, 0644);
    if (works && ftruncate(fd, sizeof *pool))
        return 2;
    if (lseek(fd, 0, SEEK_END) < (off_t)sizeof *pool)
        return 0;
    pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (!works)
        check();
    for (uint64_t i = 0; works && i < OPERATIONS; i++) {
        CRASHCHECK_OP_BEGIN();
        operation(i);
        CRASHCHECK_OP_END();
        pool->done = i + 1;
        persist(&pool->done, 8);
    }
    return 0;
}
