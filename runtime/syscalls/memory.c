/* The memory of the program. */
#include "syscalls/recorder.h"
#include "tracee_memory.h"

size_t memory_read(struct tracee *thread, uint64_t address, void *to, size_t size)
{
    return tracee_read(thread->tid, address, to, size);
}

void memory_read_each(struct tracee *thread, const uint64_t *addresses, size_t count, void *to, size_t size)
{
    struct iovec here = {to, count * size}, there[READ_AT_ONCE];
    size_t done = 0;
    memset(to, 0, count * size);
    for (size_t i = 0; i < count && i < READ_AT_ONCE; i++)
        there[i] = (struct iovec){(void *)(uintptr_t)addresses[i], size};
    if (count && count <= READ_AT_ONCE) {
        ssize_t got = process_vm_readv(thread->tid, &here, 1, there, count, 0);
        done = got > 0 ? (size_t)got / size : 0;
    }
    for (; done < count; done++) { /* what the kernel stopped at cannot be read, what follows may be */
        char *at = (char *)to + done * size;
        if (memory_read(thread, addresses[done], at, size) != size)
            memset(at, 0, size);
    }
}

bool memory_path(struct tracee *thread, uint64_t address, char *to)
{
    return tracee_text(thread->tid, address, to, PATH_MAX);
}
