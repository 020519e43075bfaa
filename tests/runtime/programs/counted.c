/* Does so many stores, loads, atomic operations, flushes and fences that a reader can count them. */
#include <immintrin.h>
#include <stdlib.h>
#include <string.h>

struct log {
    long used, owner;
    char text[48];
    long turns;
};

static void append(struct log *log, const char *text) /* each: 1 load, 2 stores, a copy of 5 bytes, 1 flush, 1 fence */
{
    memcpy(log->text, text, 5);
    log->owner = 7;
    log->used += 5;
    _mm_clflush(log);
    _mm_sfence();
}

int main(int count, char **words)
{
    struct log *log = aligned_alloc(64, 128);
    memset(log, 0, 72);
    for (int i = 0; i < 3; i++)
        append(log, "entry");
    __atomic_fetch_add(&log->turns, 1, __ATOMIC_SEQ_CST);
    return log->used != 15;
}
