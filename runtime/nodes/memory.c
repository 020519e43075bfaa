/* The memory of the processes. */
#include <stdlib.h>
#include <sys/uio.h>

#include "nodes/parts.h"
#include "tracee_memory.h"

#define RED_ZONE 128u
#define PARTS_MOST 1024u

size_t memory_read(const struct thread *thread, uint64_t address, void *to, size_t size)
{
    return tracee_read(thread->tid, address, to, size);
}

bool memory_write(const struct thread *thread, uint64_t address, const void *from, size_t size)
{
    struct iovec here = {(void *)(uintptr_t)from, size}, there = {(void *)(uintptr_t)address, size};
    return process_vm_writev(thread->tid, &here, 1, &there, 1, 0) == (ssize_t)size;
}

bool memory_text(const struct thread *thread, uint64_t address, char *to, size_t room)
{
    return tracee_text(thread->tid, address, to, room);
}

uint64_t memory_scratch(const struct thread *thread, size_t size)
{
    return (thread->called.rsp - RED_ZONE - size) & ~(uint64_t)63;
}

size_t memory_gather(const struct thread *thread, uint64_t parts, uint64_t count, unsigned char **bytes)
{
    struct iovec part[PARTS_MOST];
    size_t size = 0;
    *bytes = NULL;
    if (count > PARTS_MOST || memory_read(thread, parts, part, count * sizeof *part) != count * sizeof *part)
        return 0;
    for (uint64_t i = 0; i < count; i++)
        size += part[i].iov_len;
    unsigned char *to = malloc(size + 1);
    size_t done = 0;
    for (uint64_t i = 0; to && i < count; i++)
        done += memory_read(thread, (uintptr_t)part[i].iov_base, to + done, part[i].iov_len);
    *bytes = to;
    return done;
}
