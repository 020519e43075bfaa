/* A store-heavy persistent hash table: what recording costs. `table FILE INSERTS [marked]`
 *
 * Each insert is four stores, two cache-line write-backs and one fence. Prints the nanoseconds of all inserts; mapping,
 * faulting in and ending are not counted. With "marked" each insert is an operation of its own.
 */
#include <crashcheck.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined FLUSH_CLWB
#define FLUSH(line) __asm__ volatile("clwb %0" : : "m"(*(volatile char *)(line)) : "memory")
#elif defined FLUSH_CLFLUSHOPT
#define FLUSH(line) __asm__ volatile("clflushopt %0" : : "m"(*(volatile char *)(line)) : "memory")
#else
#define FLUSH(line) __asm__ volatile("clflush %0" : : "m"(*(volatile char *)(line)) : "memory")
#endif
#define FENCE() __asm__ volatile("sfence" ::: "memory")

struct entry {
    uint64_t key;
    uint64_t value;
    uint64_t check;
    uint64_t valid;
};

static uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void insert(struct entry *table, uint64_t slots, uint64_t key)
{
    uint64_t slot = mix(key) & (slots - 1);
    struct entry *entry;
    while (table[slot].valid)
        slot = (slot + 1) & (slots - 1);
    entry = &table[slot];
    entry->key = key;
    entry->value = key * 3;
    entry->check = key ^ (key * 3);
    FLUSH(entry);
    entry->valid = 1;
    FLUSH(entry);
    FENCE();
}

static uint64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

int main(int argc, char **argv)
{
    uint64_t inserts, slots = 1, key, start;
    struct entry *table;
    int fd;

    if (argc < 3)
        return 2;
    inserts = strtoull(argv[2], NULL, 10);
    while (slots < inserts * 2)
        slots *= 2;
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || ftruncate(fd, (off_t)(slots * sizeof *table)) != 0)
        return 2;
    table = mmap(NULL, slots * sizeof *table, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (table == MAP_FAILED)
        return 2;
    start = now();
    if (argc > 3) {
        for (key = 1; key <= inserts; key++) {
            CRASHCHECK_OP_BEGIN();
            insert(table, slots, key);
            CRASHCHECK_OP_END();
        }
    } else {
        for (key = 1; key <= inserts; key++)
            insert(table, slots, key);
    }
    printf("%llu\n", (unsigned long long)(now() - start));
    munmap(table, slots * sizeof *table);
    close(fd);
    return 0;
}
