/* msync: which parts of pool files it syncs. */
#define CC_MODELS_CALLS
#include <errno.h>
#include <sys/mman.h>

#include "interpose/model.h"
#include "recorder/events.h"
#include "recorder/output.h"
#include "recorder/regions.h"
#include "recorder/trace.h"

static size_t pages(size_t size)
{
    return (size + PAGE - 1) & ~(PAGE - 1);
}

/* The part of a region that the call covers; in one event if it is the whole file or fits 32 bits. */
struct sync_part {
    uint32_t file;
    uint64_t offset, size, begin;
};

/* The part of writer->last from `address` to `end`. */
static struct sync_part part_of_region(const struct writer *writer, uintptr_t address, uintptr_t end)
{
    uint64_t size = (writer->last.end < end ? writer->last.end : end) - address;
    if (size > UINT32_MAX)
        size = UINT32_MAX & ~(PAGE - 1);
    return (struct sync_part){writer->last.file, writer->last.offset + (address - writer->last.start), size, 0};
}

static size_t parts_of(struct writer *writer, uintptr_t address, uintptr_t end, struct sync_part *part, size_t capacity)
{
    size_t parts = 0;
    for (uintptr_t next = 0; address < end; next = 0) {
        if (!cc_region(writer, address, &next)) {
            address = next ? next : end;
            continue;
        }
        struct sync_part found = part_of_region(writer, address, end);
        address += found.size;
        if (parts < capacity)
            part[parts] = found;
        parts++;
    }
    return parts;
}

/* Finds the regions in a range of addresses, and writes the first `room` parts of files that they are. How many they are. */
static size_t find_sync_parts(uintptr_t address, uintptr_t end, struct sync_part *part, size_t capacity)
{
    size_t parts = 0;
    WITH_WRITER (writer)
        parts = parts_of(writer, address, end, part, capacity);
    return parts;
}

#define FEW_PARTS 8u

static int sync_mapping(where at, void *address, size_t length, int flags)
{
    if (!cc_range_in_window(address, length))
        return REAL(msync)(address, length, flags);
    uint32_t kind = flags & MS_SYNC ? CC_MSYNC : CC_MSYNC_ASYNC;
    uintptr_t start = (uintptr_t)address, end = start + pages(length);
    struct sync_part few[FEW_PARTS], *part = few;
    int saved = errno;
    size_t parts = find_sync_parts(start, end, few, FEW_PARTS), capacity = parts;
    if (capacity > FEW_PARTS) {
        part = cc_scratch(capacity, sizeof *part);
        parts = part ? find_sync_parts(start, end, part, capacity) : 0;
        if (parts > capacity) /* another thread maps at this moment: what it adds is not part of this call */
            parts = capacity;
    }
    for (size_t i = 0; i < parts; i++)
        part[i].begin = cc_sync_begin(at, kind, part[i].file, part[i].offset, (uint32_t)part[i].size);
    errno = saved;
    int result = REAL(msync)(address, length, flags);
    saved = errno;
    for (size_t i = 0; i < parts; i++)
        cc_sync_end(at, part[i].begin, kind, part[i].file, part[i].offset, (uint32_t)part[i].size, result != 0);
    if (parts)
        cc_output(at);
    if (part && part != few)
        cc_scratch_free(part, capacity, sizeof *part);
    errno = saved;
    return result;
}
MODEL(int, msync, (void *address, size_t length, int flags), REAL(msync)(address, length, flags),
      sync_mapping(at, address, length, flags))
