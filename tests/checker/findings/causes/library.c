/* Library functions, right unless CASE takes something out. */
#include "library.h"

/* Takes the first free block and fills it. A block that is used holds data. */
uint64_t heap_take(struct heap *heap, uint64_t value)
{
    uint64_t number = heap->first;
    struct block *block = &heap->blocks[number];
    block->data[0] = value;
#if CASE != 9
    persist(&block->data[0], 8);
#endif
    block->used = 1;
    persist(&block->used, 8);
    heap->first = number + 1;
#if CASE != 8
    persist(&heap->first, 8);
#endif
    return number;
}

/* An entry below the length is not zero. */
void log_append(struct log *log, uint64_t value)
{
    uint64_t length = log->length;
    log->entries[length] = value;
#if CASE == 2 || CASE == 7
    flush(&log->entries[length], 8); /* and no drain */
#else
    persist(&log->entries[length], 8);
#endif
    log->length = length + 1;
    persist(&log->length, 8);
}

void copy_words(uint64_t *to, const uint64_t *from, size_t count)
{
    for (size_t i = 0; i < count; i++)
        to[i] = from[i];
#if CASE == 6 || CASE == 11
    persist(to, 64); /* the first line alone */
#else
    persist(to, 8 * count);
#endif
}
