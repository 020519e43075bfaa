/* The memory of the program. What reading it costs is the kernel's work for each call (1.2 us) and for each page (0.3 us): while a
 * stack is read its pages are kept, and what the thread's latest stacks used of them is read by one call. */
#include "syscalls/recorder.h"
#include "tracee_memory.h"

#define PAGE 4096u
#define TEXT 64u           /* bytes of a text that are read at a time */
#define PAGES 96u          /* that are kept of a stack */
#define LISTS 8u           /* threads whose pages are known */
#define UNUSED 4u          /* stacks without a page, after which it is not expected any more */

struct part {               /* of a page: some of its bytes */
    uint32_t from, to;
};
struct list {
    pid_t tid;
    size_t count;
    struct {
        uint64_t start;
        struct part wanted; /* by stacks */
        unsigned unused;    /* stacks since it was used */
    } page[PAGES];
};
static struct list lists[LISTS], *list, *last = &lists[0]; /* list: of the stack that is read, or NULL; last: of the one before */
static struct {            /* of the list */
    unsigned char bytes[PAGES][PAGE];
    struct part known[PAGES];
    bool used[PAGES];
    size_t latest;
} pages;

static struct {            /* what is read with the next stack; size 0: nothing. `known`: it has been read */
    uint64_t address;
    size_t size;
    bool known;
    unsigned char bytes[PAGE];
} beside;

void memory_beside(uint64_t address, size_t size)
{
    beside.address = address;
    beside.size = size <= PAGE ? size : 0;
    beside.known = false;
}

void memory_ahead(struct tracee *thread)
{
    struct iovec here[PAGES + 1], there[PAGES + 1];
    here[0] = (struct iovec){beside.bytes, beside.size};
    there[0] = (struct iovec){(void *)(uintptr_t)beside.address, beside.size};
    list = &lists[(size_t)thread->tid % LISTS];
    if (list->tid != thread->tid)
        *list = *last;     /* a process that was forked has its parent's places */
    list->tid = thread->tid;
    for (size_t i = 0; i < list->count; i++) {
        struct part wanted = list->page[i].wanted;
        here[i + 1] = (struct iovec){pages.bytes[i] + wanted.from, wanted.to - wanted.from};
        there[i + 1] = (struct iovec){(void *)(uintptr_t)(list->page[i].start + wanted.from), wanted.to - wanted.from};
        pages.known[i] = (struct part){0, 0};
        pages.used[i] = false;
    }
    ssize_t got = list->count ? process_vm_readv(thread->tid, here, list->count + 1, there, list->count + 1, 0) : 0;
    beside.known = beside.size && got >= (ssize_t)beside.size;
    got -= (ssize_t)beside.size;
    for (size_t i = 0; i < list->count && got >= (ssize_t)here[i + 1].iov_len; got -= (ssize_t)here[++i].iov_len)
        pages.known[i] = list->page[i].wanted;
    pages.latest = 0;
}

void memory_ahead_end(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        unsigned unused = pages.used[i] ? 0 : list->page[i].unused + 1;
        list->page[kept] = list->page[i];
        list->page[kept].unused = unused;
        kept += unused < UNUSED;
    }
    list->count = kept;
    last = list;
    list = NULL;
}

/* A page of the stack's with the bytes that are wanted, NULL if it cannot be read or kept. Mostly they follow one another as before. */
static const unsigned char *page_at(struct tracee *thread, uint64_t start, struct part wanted)
{
    size_t at = pages.latest;
    for (size_t steps = 0; steps < list->count && list->page[at].start != start; steps++)
        at = at + 1 < list->count ? at + 1 : 0;
    if (at >= list->count || list->page[at].start != start) {
        if (list->count == PAGES)
            return NULL;
        at = list->count++;
        list->page[at].start = start;
        list->page[at].wanted = wanted;
        pages.known[at] = (struct part){0, 0};
    }
    struct part *known = &pages.known[at], *all = &list->page[at].wanted;
    if (wanted.from < known->from || wanted.to > known->to)
        *known = (struct part){0, tracee_read(thread->tid, start, pages.bytes[at], PAGE) == PAGE ? PAGE : 0};
    pages.used[at] = known->to > 0;
    pages.latest = at;
    if (!pages.used[at]) {
        list->page[at].unused = UNUSED; /* what is behind it could not be read with it */
        return NULL;
    }
    *all = (struct part){wanted.from < all->from ? wanted.from : all->from, wanted.to > all->to ? wanted.to : all->to};
    return pages.bytes[at];
}

size_t memory_read(struct tracee *thread, uint64_t address, void *to, size_t size)
{
    size_t done = 0;
    if (address < PAGE)    /* a null pointer, as often where something is missing */
        return 0;
    if (beside.known && address == beside.address && size == beside.size) {
        memcpy(to, beside.bytes, size);
        return size;
    }
    while (list && size <= PAGE && done < size) {
        uint32_t within = (address + done) % PAGE, part = PAGE - within < size - done ? PAGE - within : (uint32_t)(size - done);
        const unsigned char *page = page_at(thread, address + done - within, (struct part){within, within + part});
        if (!page)
            break;
        memcpy((char *)to + done, page + within, part);
        done += part;
    }
    return done == size ? done : done + tracee_read(thread->tid, address + done, (char *)to + done, size - done);
}

bool memory_path(struct tracee *thread, uint64_t address, char *to)
{
    if (!list)
        return tracee_text(thread->tid, address, to, PATH_MAX);
    for (size_t done = 0, part; done < PATH_MAX; done += part) {
        part = TEXT - (address + done) % TEXT;
        part = part < PATH_MAX - done ? part : PATH_MAX - done;
        if (memory_read(thread, address + done, to + done, part) != part)
            return false;
        if (memchr(to + done, '\0', part))
            return true;
    }
    return false;
}
