/* A table of pairs of numbers, each with an id. */
#include <stdlib.h>

#include "syscalls/recorder.h"

static struct pair *slot(struct table *table, uint64_t first, uint64_t second)
{
    size_t at = (size_t)((first * 0x9e3779b97f4a7c15u ^ second * 0xc2b2ae3d27d4eb4fu) >> 20) & (table->capacity - 1);
    while (table->slots[at].id && (table->slots[at].first != first || table->slots[at].second != second))
        at = (at + 1) & (table->capacity - 1);
    return &table->slots[at];
}

struct pair *pair_in(struct table *table, uint64_t first, uint64_t second)
{
    if (2 * table->used >= table->capacity) {
        struct table wider = {.capacity = table->capacity ? 2 * table->capacity : 1024, .used = table->used};
        wider.slots = calloc(wider.capacity, sizeof *wider.slots);
        if (!wider.slots)
            die("no memory");
        for (size_t i = 0; i < table->capacity; i++)
            if (table->slots[i].id)
                *slot(&wider, table->slots[i].first, table->slots[i].second) = table->slots[i];
        free(table->slots);
        *table = wider;
    }
    struct pair *pair = slot(table, first, second);
    if (!pair->id) {
        table->used++;
        pair->first = first;
        pair->second = second;
    }
    return pair;
}
