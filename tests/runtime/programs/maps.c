#include "scenes.h"
#include <errno.h>

static void two_mappings(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 16384);
    char *one = map_file(fd, 16384), *two = map_file(fd, 16384);
    NEED(one != two);
    STORE(1, one + 5000, 'a');
    STORE(2, two + 5000, 'b');
    char *tail = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 8192);
    NEED(tail != MAP_FAILED);
    STORE(3, tail + 1, 'c');
    printf("%p %p %p\n", (void *)one, (void *)two, (void *)tail);
}

static void two_files(const char *pool, char **arguments)
{
    (void)arguments;
    char *one = map_file(open_file(pool, "a.db", 4096), 4096), *two = map_file(open_file(pool, "b.db", 4096), 4096);
    STORE(1, one + 1, 'a');
    STORE(2, two + 2, 'b');
}

static void moved(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 1 << 20);
    char *at = map_file(fd, 8192);
    STORE(1, at + 10, 'a');
    char *grown = mremap(at, 8192, 1 << 20, MREMAP_MAYMOVE);
    NEED(grown != MAP_FAILED);
    STORE(2, grown + (1 << 20) - 1, 'b');
    char *place = mmap(NULL, 8192, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *part = mremap(grown + 4096, 4096, 8192, MREMAP_MAYMOVE | MREMAP_FIXED, place);
    NEED(part == place);
    STORE(3, part + 1, 'c');
    STORE(4, part + 4097, 'd');
    STORE(5, grown + 8192, 'e');
}

static void unmapped_in_parts(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 12288);
    char *at = map_file(fd, 12288);
    NEED(munmap(at + 4096, 4096) == 0);
    char *hole = mmap(at + 4096, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    NEED(hole == at + 4096);
    STORE(1, at + 4095, 'a');
    STORE(2, hole, 'x');
    STORE(3, at + 8192, 'b');
    char *over = mmap(at, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    NEED(over == at);
    STORE(4, over, 'y');
    NEED(munmap(at + 1, 4096) == -1);
    STORE(5, at + 8193, 'c');
}

/* A hundred mappings of one page, every other page of the file, side by side. */
static char *many_mappings(int fd)
{
    char *at = mmap(NULL, 100 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 100; i++)
        NEED(mmap(at + i * 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, i * 8192) != MAP_FAILED);
    return at;
}

static void many(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 200 * 4096);
    char *at = many_mappings(fd);
    STORE(1, at + 99 * 4096, 'a');
    NEED(msync(at, 100 * 4096, MS_SYNC) == 0);
    NEED(munmap(at, 100 * 4096) == 0);
    at = many_mappings(fd);
    NEED(mmap(at, 100 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
    STORE(2, at + 99 * 4096, 'x');
}

static void side_by_side(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 4 * 4096);
    char *at = mmap(NULL, 4 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const int page[4] = {0, 1, 0, 3};
    for (int i = 0; i < 4; i++)
        NEED(mmap(at + i * 4096, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, page[i] * 4096) != MAP_FAILED);
    char *(*volatile copy)(char *, const char *, size_t) = (char *(*)(char *, const char *, size_t))(void *)memcpy;
    copy(at + 4094, "abcd", 4);
    copy(at + 8190, "efgh", 4);
    STORE(1, at, 'z');
}

/* Stores through a mapping while its file has a name that is recorded, and while it has another. */
static void takes_a_name(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.tmp", 8192), old = open_file(pool, "a.db", 4096);
    char *at = map_file(fd, 8192), *replaced = map_file(old, 4096);
    STORE(1, at + 1, 'x');
    NEED(rename(in_pool(pool, "a.tmp"), in_pool(pool, "a.db")) == 0);
    STORE(2, at + 4098, 'b');
    STORE(3, replaced, 'x');
    NEED(rename(in_pool(pool, "a.db"), in_pool(pool, "a.tmp")) == 0);
    STORE(4, at + 3, 'x');
    NEED(rename(in_pool(pool, "a.tmp"), in_pool(pool, "a.db")) == 0);
    STORE(5, at + 4, 'c');
    NEED(munmap(at, 8192) == 0);
}

static void without_sync(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 4096);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0);
    if (at == MAP_FAILED)
        printf("%s\n", strerror(errno));
    else
        STORE(1, at + 1, 'a');
}

static void private_mapping(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 4096);
    char *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    NEED(at != MAP_FAILED);
    STORE(1, at, 'x');
}

static void own_address(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 8192);
    void *wish = (void *)0x300000000000, *hint = (void *)0x310000000000;
    char *at = mmap(wish, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0);
    NEED(at == wish);
    STORE(1, at + 1, 'a');
    char *hinted = mmap(hint, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    STORE(2, hinted + 2, 'b');
    printf("%p %p\n", (void *)at, (void *)hinted);
}

/* Prints where each of the named files is mapped when the program leaves the choice open. */
static void where_mapped(const char *pool, char **arguments)
{
    for (; *arguments; arguments++) {
        int fd = open_file(pool, *arguments, 8192);
        char *at = map_file(fd, 8192);
        STORE(1, at, 'w');
        printf("%s %p\n", *arguments, (void *)at);
    }
}

/* A list in the file, by raw pointers: each call maps the file's first page, as a header is, and then all of it at the
 * address that it asks for, and adds a node. Reads the list from its beginning first. */
static void linked(const char *pool, char **arguments)
{
    struct node {
        struct node *next;
        uint64_t number;
    };
    int fd = open_file(pool, "a.db", 16384);
    char *header = map_file(fd, 4096);
    NEED(munmap(header, 4096) == 0);
    struct node *nodes = mmap((void *)strtoul(arguments[0], NULL, 16), 16384, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(nodes != MAP_FAILED);
    struct node *last = nodes;
    while (last->next)
        last = last->next;
    struct node *added = last + 1;
    added->number = last->number + 1;
    STORE(1, &last->next, added);
    printf("%p %lu\n", (void *)nodes, added->number);
}

/* Fails where a file is not mapped at the address that it asks for; `taken`: something else is there. */
static void insists(const char *pool, char **arguments)
{
    void *wish = (void *)strtoul(arguments[0], NULL, 16);
    int fd = open_file(pool, "a.db", 8192);
    if (arguments[1] && strcmp(arguments[1], "taken") == 0)
        NEED(mmap(wish, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == wish);
    char *at = mmap(wish, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    NEED(at != MAP_FAILED);
    printf("%p\n", (void *)at);
    if (at != wish)
        exit(42);
    STORE(1, at, (char)(*at + 1));
}

static void synced(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 12288);
    char *at = map_file(fd, 12288);
    STORE(1, at, 'a');
    NEED(msync(at + 4096, 5000, MS_SYNC) == 0);
    NEED(msync(at, 4096, MS_ASYNC) == 0);
    NEED(msync(at + 1, 4096, MS_SYNC) == -1);
}

static void bulk(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 1 << 20);
    char *at = map_file(fd, 1 << 20), *source = malloc(1 << 20);
    memset(source, 'q', 1 << 20);
    cc_copy(at + 3, source, 300000, 0, &hand_unit, 1, 0);
    memcpy(at + 3, source, 300000);
    cc_fill(at + 400000, 0x107, 20, 0, &hand_unit, 2, 0);
    memset(at + 400000, 7, 20);
    uint64_t wide[2] = {1, 2};
    cc_store(at + 500000, wide, sizeof wide, (uint64_t)(uintptr_t)at, &hand_unit, 3, 0, 1);
    memcpy(at + 500000, wide, sizeof wide);
    /* Only the end of this one is in the mapping. */
    cc_fill(at - 8, 9, 16, 0, &hand_unit, 4, 0);
    free(source);
}

static void sparse(const char *pool, char **arguments)
{
    (void)arguments;
    size_t size = 3ul << 35;
    char *at = map_file(open_file(pool, "a.db", 0), size);
    STORE(1, at + size - 1, 'x');
    char *other = map_file(open_file(pool, "b.db", 4096), 4096);
    STORE(2, other, 'y');
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"two-mappings", two_mappings}, {"two-files", two_files}, {"moved", moved},
        {"unmapped-in-parts", unmapped_in_parts}, {"private", private_mapping}, {"without-sync", without_sync}, {"many", many}, {"side-by-side", side_by_side}, {"own-address", own_address}, {"insists", insists},
        {"takes-a-name", takes_a_name},
        {"where", where_mapped}, {"linked", linked}, {"synced", synced}, {"bulk", bulk}, {"sparse", sparse}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
