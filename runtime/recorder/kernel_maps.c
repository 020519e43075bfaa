/* Reads /proc/self/maps, a character at a time: "5500-5600 r-xp 00000000 00:00 0    /path". */
#include <fcntl.h>

#include "recorder/kernel_maps.h"

struct line {
    uint64_t number[7];     /* by field, those that are hex numbers: the bounds, then (after `rwxp`) the offset */
    uint32_t field, column;
    struct kernel_mapping mapping;
    char path[PATH_ROOM];
};

enum { START, END, ACCESS, OFFSET, DEVICE, INODE, PATH };

static void read_char(struct line *line, char c)
{
    if (line->field == PATH) {
        if ((c == '/' || line->mapping.length) && line->mapping.length < PATH_ROOM - 1)
            line->path[line->mapping.length++] = c;
        return;
    }
    if (c == ' ' || (c == '-' && line->field == START)) {
        line->field++;
        line->column = 0;
        return;
    }
    if (line->field == ACCESS) {
        line->mapping.writable |= line->column == 1 && c == 'w';
        line->mapping.shared |= line->column == 3 && c == 's';
    } else if (line->field <= OFFSET) {
        line->number[line->field] = line->number[line->field] * 16 + (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    line->column++;
}

static void begin_line(struct line *line)
{
    raw_fill(line->number, 0, sizeof line->number);
    line->field = line->column = 0;
    line->mapping = (struct kernel_mapping){.path = line->path};
}

static void end_line(struct line *line)
{
    static const char deleted[] = " (deleted)";
    struct kernel_mapping *mapping = &line->mapping;
    size_t tail = sizeof deleted - 1;
    mapping->start = line->number[START];
    mapping->end = line->number[END];
    mapping->offset = line->number[OFFSET];
    mapping->deleted = mapping->length > tail && raw_same(line->path + mapping->length - tail, deleted, tail);
    mapping->length -= mapping->deleted ? tail : 0;
}

bool cc_each_mapping(bool (*visit)(const struct kernel_mapping *mapping, void *data), void *data)
{
    char buffer[512];
    struct line line;
    long got, fd = raw3(SYS_open, (long)"/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    bool found = false;
    if (raw_failed(fd))
        return false;
    begin_line(&line);
    while (!found && (got = raw3(SYS_read, fd, (long)buffer, sizeof buffer)) > 0)
        for (long i = 0; i < got && !found; i++) {
            if (buffer[i] != '\n') {
                read_char(&line, buffer[i]);
                continue;
            }
            end_line(&line);
            found = visit(&line.mapping, data);
            begin_line(&line);
        }
    raw3(SYS_close, fd, 0, 0);
    return found;
}
