/* What files that may be stored to hold. No call shows a store: each such file has a shadow, its content when it was last
 * compared, and is compared again where the order of stores matters. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "syscalls/recorder.h"

#define PAGE 4096u
#define BLOCK (64u * 1024)

struct shadow {
    int fd;
    char *bytes;
    uint64_t size, capacity;
    struct inode *inode;
    struct shadow *next;
};

static struct shadow *shadows;

static void grow(struct shadow *shadow, uint64_t size)
{
    if (size > shadow->capacity) {
        uint64_t capacity = (size + size / 2 + BLOCK) & ~(uint64_t)(BLOCK - 1);
        char *at = shadow->bytes ? mremap(shadow->bytes, shadow->capacity, capacity, MREMAP_MAYMOVE)
                                 : mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            die("no memory for a copy of a mapped file");
        shadow->bytes = at;
        shadow->capacity = capacity;
    }
    shadow->size = size > shadow->size ? size : shadow->size;
}

/* What changed in a page is one store, with the equal bytes in between: parts of it, in an order that nobody knows, would be contents that
 * the page never had. */
static void compare_block(struct tracee *thread, struct shadow *shadow, uint64_t base, const char *now, uint64_t size)
{
    char *was = shadow->bytes + base;
    for (uint64_t page = 0; page < size; page += PAGE) {
        uint64_t low = page, high = page + PAGE < size ? page + PAGE : size;
        if (memcmp(was + low, now + low, high - low) == 0)
            continue;
        while (was[low] == now[low])
            low++;
        while (was[high - 1] == now[high - 1])
            high--;
        struct cc_event event = {.kind = CC_STORE, .flags = CC_STORE_COMPARED, .file = shadow->inode->id, .offset = base + low};
        trace_bytes(thread, event, NULL, 0, now + low, high - low);
        memcpy(was + low, now + low, high - low);
    }
}

/* Calls `each` for the data of a file; what is a hole on both sides is not read. */
static void with_blocks(struct shadow *shadow, uint64_t from, uint64_t to, struct tracee *thread,
                        void (*each)(struct tracee *, struct shadow *, uint64_t, const char *, uint64_t))
{
    static char block[BLOCK];
    while (from < to) {
        off_t data = lseek(shadow->fd, (off_t)from, SEEK_DATA);
        if (data < 0 || (uint64_t)data >= to)
            return;
        off_t hole = lseek(shadow->fd, data, SEEK_HOLE);
        uint64_t end = hole < 0 ? to : ((uint64_t)hole + PAGE - 1) / PAGE * PAGE; /* whole pages, whatever the blocks of the disk */
        end = end < to ? end : to;
        for (from = (uint64_t)data / PAGE * PAGE; from < end;) {
            uint64_t part = BLOCK - from % BLOCK < end - from ? BLOCK - from % BLOCK : end - from;
            ssize_t got = pread(shadow->fd, block, part, (off_t)from);
            if (got <= 0)
                return;
            each(thread, shadow, from, block, (uint64_t)got);
            from += (uint64_t)got;
        }
    }
}

static void take_block(struct tracee *thread, struct shadow *shadow, uint64_t base, const char *now, uint64_t size)
{
    (void)thread;
    memcpy(shadow->bytes + base, now, size);
}

static uint64_t size_now(struct shadow *shadow)
{
    struct stat state;
    return fstat(shadow->fd, &state) == 0 ? (uint64_t)state.st_size : 0;
}

/* It is recorded, and no difference. */
static void stored(uint32_t inode, uint64_t offset, const void *bytes, uint64_t size)
{
    struct shadow *shadow = inode <= inodes_count() ? inode_at(inode)->shadow : NULL;
    if (!shadow)
        return;
    grow(shadow, offset + size);
    memcpy(shadow->bytes + offset, bytes, size);
}

void shadow_compare(struct tracee *thread, struct inode *inode)
{
    struct shadow *shadow = inode->shadow;
    if (!shadow)
        return;
    stores_take(stored);
    uint64_t size = size_now(shadow);
    grow(shadow, size);
    with_blocks(shadow, 0, size, thread, compare_block);
}

void shadows_compare_all(struct tracee *thread)
{
    for (struct shadow *shadow = shadows; shadow; shadow = shadow->next)
        shadow_compare(thread, shadow->inode);
}

void shadows_compare_before(struct tracee *thread)
{
    if (!shadows)
        return;
    stack_locate(thread);
    shadows_compare_all(thread);
}

void shadow_refresh(struct inode *inode, uint64_t offset, uint64_t size)
{
    struct shadow *shadow = inode->shadow;
    if (!shadow)
        return;
    stores_take(stored);
    uint64_t end = size_now(shadow);
    grow(shadow, end);
    if (shadow->size > end) { /* it was cut: what comes there later begins as zeros */
        madvise(shadow->bytes + (end + PAGE - 1) / PAGE * PAGE, shadow->capacity - (end + PAGE - 1) / PAGE * PAGE, MADV_DONTNEED);
        if (end % PAGE)
            memset(shadow->bytes + end, 0, PAGE - end % PAGE);
        shadow->size = end;
    }
    if (offset + size < end)
        end = offset + size;
    if (offset < end) {
        memset(shadow->bytes + offset, 0, end - offset);
        with_blocks(shadow, offset, end, NULL, take_block);
    }
}

void shadow_begin(struct tracee *thread, struct inode *inode, int fd)
{
    struct shadow *shadow = calloc(1, sizeof *shadow);
    if (!shadow)
        die("no memory");
    shadow->fd = readable(fd);
    shadow->inode = inode;
    if (shadow->fd < 0) {
        unfollowed(thread, inode, "a mapping that cannot be read");
        free(shadow);
        return;
    }
    inode->shadow = shadow;
    shadow->next = shadows;
    shadows = shadow;
    shadow_refresh(inode, 0, UINT64_MAX / 2);
}

void shadow_end(struct tracee *thread, struct inode *inode)
{
    struct shadow *shadow = inode->shadow, **at = &shadows;
    if (!shadow)
        return;
    shadow_compare(thread, inode);
    while (*at != shadow)
        at = &(*at)->next;
    *at = shadow->next;
    if (shadow->bytes)
        munmap(shadow->bytes, shadow->capacity);
    close(shadow->fd);
    free(shadow);
    inode->shadow = NULL;
}
