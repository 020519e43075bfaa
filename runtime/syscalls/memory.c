/* The memory of the program. */
#include "syscalls/recorder.h"
#include "tracee_memory.h"

size_t memory_read(struct tracee *thread, uint64_t address, void *to, size_t size)
{
    return tracee_read(thread->tid, address, to, size);
}

bool memory_path(struct tracee *thread, uint64_t address, char *to)
{
    return tracee_text(thread->tid, address, to, PATH_MAX);
}
