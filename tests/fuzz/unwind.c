/* What .eh_frame states of an address: the first two bytes choose it, the others are a program's memory from BASE. */
#include <stdlib.h>
#include <string.h>
#include "syscalls/recorder.h"

enum { BASE = 0x10000 };

static const unsigned char *memory;
static size_t memory_bytes;

size_t memory_read(struct tracee *thread, uint64_t address, void *to, size_t size)
{
    (void)thread;
    if (address < BASE || address - BASE >= memory_bytes)
        return 0;
    uint64_t at = address - BASE, there = memory_bytes - at;
    memcpy(to, memory + at, size < there ? size : there);
    return size < there ? size : there;
}

void die(const char *what)
{
    (void)what;
    abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct tracee thread = {0};
    struct frame_entries entries;
    struct frame_rule rule;
    if (size < 2)
        return 0;
    memory = data + 2;
    memory_bytes = size - 2;
    unwind_prepare(&thread, BASE, &entries);
    unwind_rule(&thread, &entries, BASE + data[0] + 256u * data[1], &rule);
    free(entries.built);
    return 0;
}
