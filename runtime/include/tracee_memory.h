/* Memory of a process that is traced, read by whoever traces it: the recorder of system calls, the controller of nodes. */
#ifndef CRASHCHECK_TRACEE_MEMORY_H
#define CRASHCHECK_TRACEE_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

/* How many bytes could be read. */
static inline size_t tracee_read(pid_t tid, uint64_t address, void *to, size_t size)
{
    size_t done = 0;
    while (done < size) {
        struct iovec here = {(char *)to + done, size - done}, there = {(void *)(uintptr_t)(address + done), size - done};
        ssize_t got = process_vm_readv(tid, &here, 1, &there, 1, 0);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    return done;
}

/* Whether a text with its final zero is there and has room. Page by page: what follows it may not be readable. */
static inline bool tracee_text(pid_t tid, uint64_t address, char *to, size_t room)
{
    const size_t page = 4096;
    size_t done = 0;
    while (done < room) {
        size_t part = page - (address + done) % page;
        if (part > room - done)
            part = room - done;
        size_t got = tracee_read(tid, address + done, to + done, part);
        if (memchr(to + done, '\0', got))
            return true;
        if (got < part)
            return false;
        done += got;
    }
    return false;
}

#endif
