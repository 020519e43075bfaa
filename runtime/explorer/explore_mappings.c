/* The mappings of an explored process: a shared mapping becomes a private one whose pages are closed, so that no process
 * writes to the file. What has no such meaning ends the exploration. */
#ifdef CC_SHARED
#include <sys/mman.h>
#include <sys/stat.h>

#include "explorer/exploration.h"
#include "explorer/mapping_calls.h"
#include "explorer/section.h"
#include "explorer/state.h"
#include "explorer/written.h"

/* Whether a descriptor's file is one whose granules are open, or is mapped: then its bytes are not in the file. */
HERE bool cc_explore_is_ours(long fd)
{
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)))
        return false;
    for (uint32_t i = 0; i < cc_run.table->granules; i++)
        if (cc_run.granules[i].device == state.st_dev && cc_run.granules[i].inode == state.st_ino)
            return true;
    for (uint32_t i = 0; i < cc_run.mapped; i++)
        if (cc_run.mappings[i].device == state.st_dev && cc_run.mappings[i].inode == state.st_ino)
            return true;
    return false;
}

/* Whether a mapping begins or ends within a granule. */
HERE static bool crosses_an_end(const struct mapping *in)
{
    uint64_t end = in->offset + (in->end - in->start);
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        const struct cc_explore_granule *granule = &cc_run.granules[i];
        uint64_t until = granule->offset + granule->length;
        if (in->device == granule->device && in->inode == granule->inode && granule->offset < end && until > in->offset &&
            (granule->offset < in->offset || until > end))
            return true;
    }
    return false;
}

HERE static bool is_of(const struct mapping *in, const struct stat *state)
{
    return in->device == state->st_dev && in->inode == state->st_ino;
}

/* A private mapping shows what the file holds until it is written to, so no file may be mapped in both ways, or again after
 * it was changed. Of two mappings at once the second may only be read; returns whether this is one. */
HERE static bool is_mapped_already(const struct stat *state, bool followed)
{
    bool already = false;
    for (uint32_t i = 0; i < cc_run.mapped; i++) {
        if (!is_of(&cc_run.mappings[i], state))
            continue;
        if (!followed || cc_run.mappings[i].gone)
            cc_explore_refuse(CC_EXPLORE_MAPPED_AGAIN, SYS_mmap);
        already = true;
    }
    for (uint32_t i = 0; i < cc_run.copies; i++)
        if (followed && cc_run.copy_of[i][0] == state->st_dev && cc_run.copy_of[i][1] == state->st_ino)
            cc_explore_refuse(CC_EXPLORE_MAPPED_AGAIN, SYS_mmap);
    return already;
}

HERE bool cc_explore_is_copied(long fd)
{
    struct stat state;
    bool copied = false;
    if (!raw_failed(raw3(SYS_fstat, fd, (long)&state, 0)))
        for (uint32_t i = 0; i < cc_run.copies; i++)
            copied |= cc_run.copy_of[i][0] == state.st_dev && cc_run.copy_of[i][1] == state.st_ino;
    return copied;
}

HERE static void note_copy(const struct stat *state)
{
    if (cc_run.copies == PLACES)
        cc_explore_refuse(CC_EXPLORE_ROOM, 5);
    cc_run.copy_of[cc_run.copies][0] = state->st_dev;
    cc_run.copy_of[cc_run.copies++][1] = state->st_ino;
}

/* Follows a mapping from now on: its pages that hold granules are closed. */
HERE static void follow(uintptr_t start, const long *a, const struct stat *state, bool mirrors)
{
    if (cc_run.mapped == MAPPINGS)
        cc_explore_refuse(CC_EXPLORE_ROOM, 5);
    uint64_t there = (uint64_t)state->st_size > (uint64_t)a[5] ? (uint64_t)state->st_size - (uint64_t)a[5] : 0;
    uint64_t size = there < (uint64_t)a[1] ? there : (uint64_t)a[1];
    struct mapping *in = &cc_run.mappings[cc_run.mapped++];
    in->start = start;
    in->end = start + ((size + PAGE - 1) & ~(PAGE - 1));
    in->offset = (uint64_t)a[5];
    in->device = state->st_dev;
    in->inode = state->st_ino;
    in->protection = (int)a[2];
    in->gone = false;
    in->mirrors = mirrors;
    if (mirrors) {
        in->protection = PROT_READ;
        in->end = start + (((uint64_t)a[1] + PAGE - 1) & ~(PAGE - 1));
        raw3(SYS_mprotect, (long)start, a[1], PROT_NONE);
        return;
    }
    uint64_t all = 0;
    for (uint32_t i = 0; i < cc_run.mapped; i++)
        all += cc_run.mappings[i].mirrors ? 0 : cc_run.mappings[i].end - cc_run.mappings[i].start;
    if (all > MOST_MAPPED)
        cc_explore_refuse(CC_EXPLORE_LARGE, SYS_mmap);
    if (crosses_an_end(in))
        cc_explore_refuse(CC_EXPLORE_MAPPED_IN_PART, SYS_mmap);
    cc_explore_show_known(in);
    cc_explore_close_pages(in);
}

/* Whether the kernel would allow this mapping: it may not write to the file, or not know MAP_SYNC of it. */
HERE static long try_mapping(const long *a)
{
    long tried = raw6(SYS_mmap, 0, a[1], a[2], a[3] & ~(MAP_FIXED | MAP_FIXED_NOREPLACE), a[4], a[5]);
    if (!raw_failed(tried))
        raw3(SYS_munmap, tried, a[1], 0);
    return tried;
}

HERE long cc_explore_maps(long number, const long *a)
{
    long flags = a[3];
    bool anonymous = flags & MAP_ANONYMOUS, shared = (flags & MAP_TYPE) != MAP_PRIVATE;
    if ((flags & MAP_FIXED) && lies_in_file((uintptr_t)a[0], (size_t)a[1]))
        cc_explore_refuse(CC_EXPLORE_MAPPED_AGAIN, (uint32_t)number);
    if (shared)
        flags = (flags & ~(MAP_TYPE | MAP_SYNC)) | MAP_PRIVATE;
    if (!anonymous && cc_explore_written(a[4]))
        cc_explore_refuse(CC_EXPLORE_WRITTEN, (uint32_t)number);
    bool followed = shared || (!anonymous && cc_explore_is_ours(a[4]));
    if (shared && !anonymous) {
        long tried = try_mapping(a);
        if (raw_failed(tried))
            return tried;
    }
    long result = raw6(SYS_mmap, a[0], a[1], a[2], flags, a[4], a[5]);
    if (raw_failed(result) || anonymous)
        return result;
    struct stat state;
    if (raw_failed(raw3(SYS_fstat, a[4], (long)&state, 0)))
        cc_explore_refuse(CC_EXPLORE_SETUP, 3);
    bool already = is_mapped_already(&state, followed);
    if (followed)
        follow((uintptr_t)result, a, &state, already);
    else
        note_copy(&state);
    return result;
}

/* A mapping that was only read is forgotten; of another one what was written is in no file. */
HERE long cc_explore_unmaps(long number, const long *a)
{
    for (uint32_t i = cc_run.mapped; i-- > 0;) {
        struct mapping *in = &cc_run.mappings[i];
        if (in->gone || (uintptr_t)a[0] >= in->end || (uintptr_t)(a[0] + a[1]) <= in->start)
            continue;
        if ((uintptr_t)a[0] > in->start || (uintptr_t)(a[0] + a[1]) < in->end)
            cc_explore_refuse(CC_EXPLORE_MAPPED_AGAIN, (uint32_t)number);
        if (in->mirrors || cc_explore_is_unchanged(in))
            *in = cc_run.mappings[--cc_run.mapped];
        else
            in->gone = true;
    }
    return raw3(SYS_munmap, a[0], a[1], 0);
}

/* Memory that cannot be written to is no part of a state where a file is behind it: its bytes are, from here on. */
HERE long cc_explore_protects(long number, const long *a)
{
    if (!(a[2] & (PROT_READ | PROT_WRITE)) || lies_in_file((uintptr_t)a[0], (size_t)a[1]))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    long result = raw3(SYS_mprotect, a[0], a[1], a[2]);
    if (!raw_failed(result) && !(a[2] & PROT_WRITE))
        cc_explore_stir_bytes(cc_run.history, (const void *)a[0], (size_t)a[1]);
    return result;
}

/* Advice that concerns the memory of this process only. Others concern other memory in the children, or another time. */
HERE static bool is_followed_advice(long advice)
{
    switch (advice) {
    case MADV_DONTNEED: case MADV_NORMAL: case MADV_RANDOM: case MADV_SEQUENTIAL: case MADV_WILLNEED: case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE: case MADV_DONTDUMP:
        return true;
    default:
        return false;
    }
}

/* Advice after which memory holds what it held, whatever is behind it. */
HERE static bool changes_no_byte(long advice)
{
    return advice == MADV_NORMAL || advice == MADV_RANDOM || advice == MADV_SEQUENTIAL || advice == MADV_WILLNEED;
}

HERE long cc_explore_advises(long number, const long *a)
{
    if (!is_followed_advice(a[2]))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    if (!changes_no_byte(a[2]) && lies_in_file((uintptr_t)a[0], (size_t)a[1]))
        cc_explore_refuse(CC_EXPLORE_PASSED, (uint32_t)number);
    return raw3(SYS_madvise, a[0], a[1], a[2]);
}

HERE long cc_explore_remaps(long number, const long *a)
{
    if (lies_in_file((uintptr_t)a[0], (size_t)a[1]) || (a[3] & ~MREMAP_MAYMOVE))
        cc_explore_refuse(CC_EXPLORE_CALL, (uint32_t)number);
    return raw6(SYS_mremap, a[0], a[1], a[2], a[3], 0, 0);
}
#endif
