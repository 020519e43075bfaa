/* A driver that appends records of eight lines: POOL OPERATIONS. An operation "add VALUE" prints how many records there are and
 * what they hold. RESULTS: how it opens the file that it prints to. EARLY: the count is stored first. */
#include <fcntl.h>
#include <emmintrin.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <crashcheck.h>

#define LINES 8
#define RECORDS 32

struct pool {
    uint64_t count;
    char unused[56];
    struct {
        uint64_t value;
        char unused[56];
    } lines[RECORDS][LINES];
};

static void persist(const void *from, size_t size)
{
    for (size_t at = 0; at < size; at += 64)
        _mm_clflush((const char *)from + at);
    _mm_sfence();
}

static void add(struct pool *pool, uint64_t value)
{
    uint64_t count = pool->count;
#ifdef EARLY
    pool->count = count + 1;
    persist(&pool->count, 8);
#endif
    for (int i = 0; i < LINES; i++)
        pool->lines[count][i].value = value + (uint64_t)i;
    persist(pool->lines[count], sizeof pool->lines[count]);
#ifndef EARLY
    pool->count = count + 1;
    persist(&pool->count, 8);
#endif
}

int main(int count, char **arguments)
{
    (void)count;
    char path[4096], line[64];
    int fd = open(arguments[1], O_RDWR | O_CREAT, 0644);
    struct stat state;
    if (!fstat(fd, &state) && !state.st_size && ftruncate(fd, sizeof(struct pool)))
        return 2;
    struct pool *pool = mmap(NULL, sizeof *pool, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    snprintf(path, sizeof path, "%s/results.txt", dirname(arguments[1]));
    FILE *operations = fopen(arguments[2], "r"), *results = RESULTS;
    while (fgets(line, sizeof line, operations)) {
        uint64_t value, sum = 0;
        sscanf(line, "add %lu", &value);
        CRASHCHECK_OP_BEGIN();
        add(pool, value);
        CRASHCHECK_OP_END();
        for (uint64_t i = 0; i < pool->count; i++)
            for (int j = 0; j < LINES; j++)
                sum += pool->lines[i][j].value;
        fprintf(results, "%lu records, %lu\n", pool->count, sum);
    }
    return 0;
}
