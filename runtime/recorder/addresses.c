/* Where pool files are mapped: at addresses of their own, the same in each run, so that runs are comparable and
 * pools that hold raw pointers reopen where they were. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "recorder/addresses.h"
#include "recorder/locks.h"

/* Below position-independent programs and libraries without ASLR (0x5555... and 0x7fff...), and in memory that
 * AddressSanitizer leaves to the program. */
#define PLACES_START (1ul << 45)
#define PLACES_END (5ul << 44)
#define PLACE_BYTES (1ul << 36)
#define TRIES 64u

bool cc_places_files;
bool cc_learns_places;
bool cc_has_dax;
static char table_path[PATH_ROOM];
static size_t inherited_bytes; /* of the table: what earlier programs added */

struct line {
    uint64_t address, offset, length;
    const char *path;
    size_t path_length;
};

void cc_addresses_start(const char *path)
{
    size_t length = raw_length(path);
    if (length >= sizeof table_path)
        return;
    raw_move(table_path, path, length + 1);
    cc_places_files = true;
    long fd = raw3(SYS_open, (long)table_path, O_RDONLY | O_CLOEXEC, 0);
    if (raw_failed(fd))
        return;
    long size = raw3(SYS_lseek, fd, 0, SEEK_END);
    inherited_bytes = size > 0 ? (size_t)size : 0;
    raw3(SYS_close, fd, 0, 0);
}

static const char *read_hex(const char *at, const char *end, uint64_t *value)
{
    *value = 0;
    for (; at < end && *at != '\t' && *at != '\n'; at++) {
        unsigned digit = *at <= '9' ? (unsigned)(*at - '0') : (unsigned)(*at - 'a' + 10);
        *value = *value * 16 + (digit & 15);
    }
    return at < end && *at == '\t' ? at + 1 : at;
}

static const char *read_line(const char *at, const char *end, struct line *line)
{
    at = read_hex(at, end, &line->address);
    at = read_hex(at, end, &line->offset);
    at = read_hex(at, end, &line->length);
    line->path = at;
    while (at < end && *at != '\n')
        at++;
    line->path_length = (size_t)(at - line->path);
    return at < end ? at + 1 : end;
}

struct table {
    long fd;
    const char *text;
    size_t size;
    uint64_t signals;
};

/* Maps the table's text, locked against other processes. */
static bool open_table(struct table *table)
{
    table->fd = raw3(SYS_open, (long)table_path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (raw_failed(table->fd))
        table->fd = raw3(SYS_open, (long)table_path, O_RDONLY | O_CLOEXEC, 0);
    if (raw_failed(table->fd))
        return false;
    table->signals = cc_block_signals(); /* a handler that maps a file would wait for its own thread */
    raw3(SYS_flock, table->fd, LOCK_EX, 0);
    table->text = NULL;
    long size = raw3(SYS_lseek, table->fd, 0, SEEK_END);
    table->size = size > 0 ? (size_t)size : 0;
    if (table->size) {
        long mapped = raw6(SYS_mmap, 0, size, PROT_READ, MAP_PRIVATE, table->fd, 0);
        if (raw_failed(mapped))
            table->size = 0;
        else
            table->text = (const char *)mapped;
    }
    return true;
}

static void close_table(struct table *table)
{
    if (table->text)
        raw3(SYS_munmap, (long)table->text, (long)table->size, 0);
    raw3(SYS_flock, table->fd, LOCK_UN, 0);
    raw3(SYS_close, table->fd, 0, 0);
    cc_restore_signals(table->signals);
}

static bool is_path(const struct line *line, const char *relative)
{
    return line->path_length == raw_length(relative) && raw_same(line->path, relative, line->path_length);
}

size_t cc_write_hex(char *to, uint64_t value)
{
    char digits[16];
    size_t count = 0, length = 0;
    do
        digits[count++] = "0123456789abcdef"[value & 15];
    while (value >>= 4);
    while (count)
        to[length++] = digits[--count];
    return length;
}

static void add_line(const struct table *table, uint64_t address, uint64_t offset, uint64_t length, const char *relative)
{
    char line[PATH_ROOM + 64];
    uint64_t numbers[3] = {address, offset, length};
    size_t at = 0;
    for (size_t i = 0; i < 3; i++) {
        at += cc_write_hex(line + at, numbers[i]);
        line[at++] = '\t';
    }
    size_t size = raw_length(relative);
    raw_move(line + at, relative, size);
    at += size;
    line[at++] = '\n';
    raw3(SYS_write, table->fd, (long)line, (long)at);
}

static bool try_map(uint64_t address, size_t length, int protection, int flags, int fd, uint64_t offset, long *result)
{
    *result = raw6(SYS_mmap, (long)address, (long)length, protection, flags | MAP_FIXED_NOREPLACE, fd, (long)offset);
    if (*result == (long)address)
        return true;
    if (!raw_failed(*result)) /* a kernel before 4.17 takes the flag for a hint */
        raw3(SYS_munmap, *result, (long)length, 0);
    return false;
}

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

static bool is_place(uint64_t address)
{
    return address >= PLACES_START && address < PLACES_END;
}

/* A mapping to be made, and what the table has about its file. */
struct request {
    size_t length;
    int protection, flags, fd;
    uint64_t offset;
    const char *relative;
    size_t listed_bytes;       /* of the table: what counts */
    uint64_t place;            /* of the file; 0: none */
    uint64_t first_free;       /* place that no file has */
};

static bool try_request(const struct request *wanted, uint64_t address, long *result)
{
    return try_map(address, wanted->length, wanted->protection, wanted->flags, wanted->fd, wanted->offset, result);
}

/* Whether a line has all of what is wanted, or at least its start: a file may have grown. */
static bool has(const struct line *line, const struct request *wanted, bool whole)
{
    uint64_t first = wanted->offset, last = first + (whole ? wanted->length : 1), end = line->offset + line->length;
    return is_path(line, wanted->relative) && line->offset <= first && last <= end;
}

/* Reads the table, and maps the file where a line has it: first those that have all of it, because a program may map a
 * file's header elsewhere before it maps the file. */
static bool map_where_listed(const struct table *table, struct request *wanted, bool whole, long *result)
{
    const char *end = table->text + wanted->listed_bytes;
    struct line line;
    for (const char *at = table->text; at < end;) {
        at = read_line(at, end, &line);
        uint64_t line_end = line.address - line.offset + round_up(line.offset + line.length, PLACE_BYTES);
        if (is_place(line.address) && line_end > wanted->first_free)
            wanted->first_free = PLACES_START + round_up(line_end - PLACES_START, PLACE_BYTES);
        if (!is_path(&line, wanted->relative))
            continue;
        if (!wanted->place && is_place(line.address))
            wanted->place = PLACES_START + (line.address - PLACES_START) / PLACE_BYTES * PLACE_BYTES;
        if (has(&line, wanted, whole) && try_request(wanted, line.address + (wanted->offset - line.offset), result))
            return true;
    }
    return false;
}

/* Maps the file in its place, or the first free one, and adds that to the table. */
static bool map_in_new_place(const struct table *table, const struct request *wanted, long *result)
{
    uint64_t whole = round_up(wanted->offset + wanted->length, PAGE), step = round_up(whole, 1ul << 30);
    uint64_t place = wanted->place && whole <= PLACE_BYTES ? wanted->place : wanted->first_free;
    for (uint64_t i = 0; i < TRIES && place + whole <= PLACES_END; i++) {
        uint64_t address = place + i * step + wanted->offset;
        if (i && (i + 1) * step > PLACE_BYTES)
            return false;
        if (try_request(wanted, address, result)) {
            add_line(table, address, wanted->offset, wanted->length, wanted->relative);
            return true;
        }
        if (*result != -EEXIST)
            return false;
    }
    return false;
}

/* Maps the file where the table has it, else in the first free place of its own: -ENOMEM if no place is free.
 * `hinted`: the program wants an address. It has its way, also where this program mapped the file before; but an earlier
 * program, such as [setup], may have left pointers in the file, so that its address is kept. */
long cc_place(size_t length, int protection, int flags, int fd, uint64_t offset, const char *relative, bool hinted)
{
    struct table table;
    if (!length || !open_table(&table))
        return -ENOMEM;
    size_t listed_bytes = hinted && inherited_bytes < table.size ? inherited_bytes : table.size;
    struct request wanted = {length, protection, flags, fd, offset, relative, listed_bytes, 0, PLACES_START};
    long result = -ENOMEM;
    bool done = map_where_listed(&table, &wanted, true, &result) || map_where_listed(&table, &wanted, false, &result);
    if (!done && !hinted && (cc_learns_places || cc_recording))
        done = map_in_new_place(&table, &wanted, &result);
    close_table(&table);
    return done ? result : -ENOMEM;
}

/* Adds a place that the program or the kernel chose. */
void cc_placed(uintptr_t address, size_t length, uint64_t offset, const char *relative)
{
    struct table table;
    if (!open_table(&table))
        return;
    const char *end = table.text + table.size;
    bool known = false;
    struct line line;
    for (const char *at = table.text; at < end && !known;) {
        at = read_line(at, end, &line);
        known = is_path(&line, relative) && line.address == address && line.offset == offset && line.length >= length;
    }
    if (!known)
        add_line(&table, address, offset, length, relative);
    close_table(&table);
}
