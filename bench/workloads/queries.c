/* Reads of persistent structures: what recording loads costs where there is little else. `queries FILE COUNT`
 *
 * Fills a hash table and a binary search tree with COUNT / 8 keys each, and looks up COUNT keys in each. Prints
 * the nanoseconds that reading took.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

struct entry {
    uint64_t key;
    uint64_t value;
};

struct node {
    uint64_t key;
    uint32_t child[2];
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static struct entry *find(struct entry *table, uint64_t slots, uint64_t key)
{
    uint64_t slot = mix(key) & (slots - 1);
    while (table[slot].key && table[slot].key != key)
        slot = (slot + 1) & (slots - 1);
    return &table[slot];
}

static uint32_t descend(const struct node *nodes, uint64_t key, uint32_t *parent)
{
    uint32_t at = nodes[0].child[1];
    *parent = 0;
    while (at && nodes[at].key != key) {
        *parent = at;
        at = nodes[at].child[key > nodes[at].key];
    }
    return at;
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv)
{
    uint64_t count, keys, slots = 1, key, found = 0, start;
    uint32_t parent;
    size_t bytes;
    char *pool;
    int fd;

    if (argc != 3)
        return 2;
    count = strtoull(argv[2], NULL, 10);
    keys = count / 8;
    while (slots < keys * 2)
        slots *= 2;
    bytes = slots * sizeof(struct entry) + (keys + 2) * sizeof(struct node);
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0)
        return 2;
    pool = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (pool == MAP_FAILED)
        return 2;
    struct entry *table = (struct entry *)pool;
    struct node *nodes = (struct node *)(pool + slots * sizeof *table);
    for (key = 1; key <= keys; key++) {
        struct entry *entry = find(table, slots, key);
        entry->key = key;
        entry->value = key * 3;
        uint64_t mixed = mix(key);
        descend(nodes, mixed, &parent);
        nodes[key].key = mixed;
        nodes[parent].child[parent == 0 || mixed > nodes[parent].key] = (uint32_t)key;
    }
    start = now();
    for (key = 1; key <= count; key++) {
        found += find(table, slots, key % keys + 1)->value != 0;
        found += descend(nodes, mix(key % keys + 1), &parent) != 0;
    }
    printf("%llu\n", (unsigned long long)(now() - start));
    return found == 2 * count ? 0 : 1;
}
