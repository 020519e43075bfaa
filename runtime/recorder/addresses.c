/* Where watched files are mapped: a place of their own, the same in each run, so that runs are comparable and
 * pools that hold raw pointers reopen where they were. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>

#include "internal.h"

/* Below position-independent programs and libraries without ASLR (0x5555... and 0x7fff...), and in memory that
 * AddressSanitizer leaves to the program. */
#define PLACES_START (1ul << 45)
#define PLACES_END (5ul << 44)
#define PLACE_BYTES (1ul << 36)
#define TRIES 64u

bool cc_places_files;
bool cc_learns_places;
static char table_path[PATH_ROOM];

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

static size_t write_hex(char *to, uint64_t value)
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
        at += write_hex(line + at, numbers[i]);
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

/* Maps the file where the table has it, else in the first free place of its own: -errno if no place is free. */
long cc_place(size_t length, int protection, int flags, int fd, uint64_t offset, const char *relative)
{
    struct table table;
    if (!length || !open_table(&table))
        return -ENOMEM;
    const char *end = table.text + table.size;
    uint64_t place = 0, first_free = PLACES_START;
    long result = -ENOMEM;
    bool done = false;
    struct line line;
    for (const char *at = table.text; at < end && !done;) {
        at = read_line(at, end, &line);
        uint64_t line_end = line.address - line.offset + (line.offset + line.length + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
        if (line.address >= PLACES_START && line.address < PLACES_END && line_end > first_free)
            first_free = PLACES_START + (line_end - PLACES_START + PLACE_BYTES - 1) / PLACE_BYTES * PLACE_BYTES;
        if (!is_path(&line, relative))
            continue;
        if (!place && line.address >= PLACES_START && line.address < PLACES_END)
            place = PLACES_START + (line.address - PLACES_START) / PLACE_BYTES * PLACE_BYTES;
        if (line.offset <= offset && offset < line.offset + line.length)
            done = try_map(line.address + (offset - line.offset), length, protection, flags, fd, offset, &result);
    }
    if (!done && !cc_learns_places && !cc_recording) {
        close_table(&table);
        return -ENOMEM;
    }
    uint64_t whole = (offset + length + PAGE - 1) & ~(PAGE - 1);
    uint64_t step = (whole + (1ul << 30) - 1) & ~((1ul << 30) - 1);
    if (!done && !(place && whole <= PLACE_BYTES))
        place = first_free;
    for (uint32_t i = 0; !done && i < TRIES && place + whole <= PLACES_END; i++) {
        uint64_t address = place + (uint64_t)i * step + offset;
        if (i && (uint64_t)(i + 1) * step > PLACE_BYTES)
            break;
        done = try_map(address, length, protection, flags, fd, offset, &result);
        if (done)
            add_line(&table, address, offset, length, relative);
        else if (result != -EEXIST)
            break;
    }
    close_table(&table);
    return done ? result : -ENOMEM;
}

/* Notes a place that the program or the kernel chose. */
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
