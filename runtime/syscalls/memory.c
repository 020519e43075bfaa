/* The memory of the program. */
#include <string.h>
#include <sys/uio.h>

#include "syscalls/recorder.h"

#define PAGE 4096u

size_t memory_read(struct tracee *thread, uint64_t address, void *to, size_t size)
{
    size_t done = 0;
    while (done < size) {
        struct iovec here = {(char *)to + done, size - done}, there = {(void *)(uintptr_t)(address + done), size - done};
        ssize_t got = process_vm_readv(thread->tid, &here, 1, &there, 1, 0);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

bool memory_path(struct tracee *thread, uint64_t address, char *to)
{
    size_t done = 0;
    while (done < PATH_MAX) {
        size_t part = PAGE - (address + done) % PAGE;
        if (part > PATH_MAX - done)
            part = PATH_MAX - done;
        size_t got = memory_read(thread, address + done, to + done, part);
        if (memchr(to + done, '\0', got))
            return true;
        if (got < part)
            return false;
        done += got;
    }
    return false;
}
