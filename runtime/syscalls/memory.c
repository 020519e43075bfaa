/* The memory of the program. */
#include "syscalls/recorder.h"
#include "tracee_memory.h"

#define AHEAD 128u         /* readings of one stack that are kept */
#define AHEAD_BYTES 16384u

struct readings {
    pid_t tid;
    size_t count, bytes;
    struct iovec each[AHEAD];
};
static struct readings lists[2], *now = &lists[0], *before = &lists[1];
static struct {            /* what was read at the places of `before` */
    unsigned char bytes[AHEAD_BYTES];
    size_t size, next, at, used; /* next: the reading that is expected next, and where its bytes are */
    bool open;
} ahead;

void memory_ahead(struct tracee *thread)
{
    struct readings *former = now;
    now = before;
    before = former;
    *now = (struct readings){.tid = thread->tid, .count = 0};
    ahead.size = ahead.next = ahead.at = ahead.used = 0;
    ahead.open = true;
    if (before->tid != thread->tid || before->count < 2)
        return;
    struct iovec here = {ahead.bytes, before->bytes};
    ssize_t got = process_vm_readv(thread->tid, &here, 1, before->each, before->count, 0);
    ahead.size = got > 0 ? (size_t)got : 0;
}

void memory_ahead_end(void)
{
    ahead.open = false;
    if (ahead.size && 2 * ahead.used < before->count)
        now->tid = 0;       /* its stacks differ: the next one is read as it comes */
}

/* Whether a reading was made ahead: mostly they follow one another as before. */
static bool was_read(uint64_t address, void *to, size_t size)
{
    for (size_t steps = 0; ahead.size && steps < before->count; steps++) {
        const struct iovec *each = &before->each[ahead.next];
        size_t at = ahead.at;
        ahead.at += each->iov_len;
        if (++ahead.next == before->count)
            ahead.next = ahead.at = 0;
        if ((uintptr_t)each->iov_base == address && each->iov_len == size && at + size <= ahead.size) {
            memcpy(to, ahead.bytes + at, size);
            ahead.used++;
            return true;
        }
    }
    return false;
}

static void note(uint64_t address, size_t size)
{
    if (now->count == AHEAD || now->bytes + size > AHEAD_BYTES)
        return;
    now->each[now->count++] = (struct iovec){(void *)(uintptr_t)address, size};
    now->bytes += size;
}

size_t memory_read(struct tracee *thread, uint64_t address, void *to, size_t size)
{
    if (!ahead.open)
        return tracee_read(thread->tid, address, to, size);
    size_t got = was_read(address, to, size) ? size : tracee_read(thread->tid, address, to, size);
    if (got == size)
        note(address, size);
    return got;
}

void memory_read_each(struct tracee *thread, const uint64_t *addresses, size_t count, void *to, size_t size)
{
    struct iovec here = {to, count * size}, there[READ_AT_ONCE];
    size_t done = 0, known = 0;
    while (ahead.open && known < count && was_read(addresses[known], (char *)to + known * size, size))
        note(addresses[known++], size);
    if (known == count)
        return;
    memset(to, 0, count * size);
    for (size_t i = 0; i < count && i < READ_AT_ONCE; i++)
        there[i] = (struct iovec){(void *)(uintptr_t)addresses[i], size};
    if (count && count <= READ_AT_ONCE) {
        ssize_t got = process_vm_readv(thread->tid, &here, 1, there, count, 0);
        done = got > 0 ? (size_t)got / size : 0;
    }
    for (size_t i = known; ahead.open && i < done; i++)
        note(addresses[i], size);
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
