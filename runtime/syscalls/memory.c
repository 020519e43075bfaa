/* The memory of the program. What reading it costs is the kernel's work for each call (1.3 us) and for each page (0.4 us): while a
 * stack is read its pages are kept, and what the thread's latest stacks of the same depth used of them is read by one call. */
#include "syscalls/recorder.h"
#include "tracee_memory.h"

#define PAGE 4096u
#define TEXT 64u           /* bytes of a text that are read at a time */
#define PAGES 96u          /* that are kept of a stack */
#define LISTS 64u          /* tops of stacks whose pages are known */
#define NEAR 512u          /* bytes between parts of two neighbouring pages, which are read with them */

/* A page is read ahead if so many 256ths of the latest stacks used it: to read it by itself costs five times as much. */
enum { EXPECTED = 40, NEW = 52, LATEST = 16 };

struct part {               /* of a page: some of its bytes */
    uint32_t from, to;
};
struct known_page {
    uint64_t start;
    struct part wanted;     /* by stacks */
    int use;                /* by 256ths of the latest stacks */
};
struct list {               /* sorted, save while a stack is read */
    pid_t tid;
    uint64_t top;           /* of the stack */
    size_t count;
    struct known_page page[PAGES];
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
    uint64_t top = thread->registers[KEPT_RSP];
    size_t ranges = 1;
    here[0] = (struct iovec){beside.bytes, beside.size};
    there[0] = (struct iovec){(void *)(uintptr_t)beside.address, beside.size};
    list = &lists[(size_t)(((uint64_t)thread->tid ^ top) * 0x9e3779b97f4a7c15u >> 32) % LISTS];
    if (list->tid != thread->tid || list->top != top)
        *list = *last;     /* a process that was forked has its parent's places */
    list->tid = thread->tid;
    list->top = top;
    for (size_t i = 0; i < list->count; i++) {
        struct part *known = &pages.known[i], *before = i ? known - 1 : NULL;
        uint64_t start = list->page[i].start;
        *known = list->page[i].wanted;
        pages.used[i] = false;
        if (before && start == list->page[i - 1].start + PAGE && PAGE - before->to + known->from <= NEAR) {
            here[i].iov_len += PAGE - before->to;
            there[ranges - 1].iov_len += PAGE - before->to;
            before->to = PAGE;
            known->from = 0;
        } else {
            there[ranges++] = (struct iovec){(void *)(uintptr_t)(start + known->from), 0};
        }
        here[i + 1] = (struct iovec){pages.bytes[i] + known->from, known->to - known->from};
        there[ranges - 1].iov_len += here[i + 1].iov_len;
    }
    ssize_t got = list->count ? process_vm_readv(thread->tid, here, list->count + 1, there, ranges, 0) : 0;
    beside.known = beside.size && got >= (ssize_t)beside.size;
    got -= (ssize_t)beside.size;
    for (size_t i = 0; i < list->count; got -= (ssize_t)here[++i].iov_len)
        if (got < (ssize_t)here[i + 1].iov_len)
            pages.known[i] = (struct part){0, 0};
    pages.latest = 0;
}

void memory_ahead_end(void)
{
    size_t kept = 0;
    for (size_t i = 0; i < list->count; i++) {
        struct known_page page = list->page[i];
        page.use += ((pages.used[i] ? 256 : 0) - page.use) / LATEST;
        if (page.use < EXPECTED)
            continue;
        size_t at = kept++;
        for (; at > 0 && list->page[at - 1].start > page.start; at--)
            list->page[at] = list->page[at - 1];
        list->page[at] = page;
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
        list->page[at].use = NEW;
        pages.known[at] = (struct part){0, 0};
    }
    struct part *known = &pages.known[at], *all = &list->page[at].wanted;
    if (wanted.from < known->from || wanted.to > known->to)
        *known = (struct part){0, tracee_read(thread->tid, start, pages.bytes[at], PAGE) == PAGE ? PAGE : 0};
    pages.used[at] = known->to > 0;
    pages.latest = at;
    if (!pages.used[at]) {
        list->page[at].use = 0; /* what is behind it could not be read with it */
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
