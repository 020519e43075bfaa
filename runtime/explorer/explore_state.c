/* The state of an explored process, hashed: registers, memory, positions in files and the results of its system calls. What
 * it does next depends on nothing else (explorer/explore.c). */
#ifdef CC_SHARED
#include <fcntl.h>
#include <sys/mman.h>

#include "explorer/exploration.h"
#include "explorer/section.h"
#include "explorer/state.h"

#define PAGES_AT_ONCE 512ul
/* Of an entry in /proc/self/pagemap (Linux, Documentation/admin-guide/mm/pagemap.rst). */
#define PAGE_PRESENT (1ull << 63)
#define PAGE_SWAPPED (1ull << 62)
#define PAGE_OF_FILE (1ull << 61) /* as the file has it, or shared */

HERE void cc_explore_stir_bytes(uint64_t hash[2], const void *from, size_t size)
{
    const unsigned char *bytes = from;
    uint64_t both[2] = {hash[0], hash[1]};
    size_t at = 0;
    for (; at + 8 <= size; at += 8) {
        uint64_t word;
        __builtin_memcpy(&word, bytes + at, 8);
        stir(both, word);
    }
    uint64_t rest = size - at;
    for (; at < size; at++)
        rest = rest << 8 | bytes[at];
    stir(both, rest);
    hash[0] = both[0];
    hash[1] = both[1];
}

/* Memory except what is ours. */
HERE static void stir_range(uint64_t hash[2], uintptr_t start, uintptr_t end)
{
    while (start < end) {
        uintptr_t until = end, next = end;
        for (size_t i = 0; i < sizeof cc_run.ours / sizeof *cc_run.ours; i++) {
            if (cc_run.ours[i].end <= start || cc_run.ours[i].start >= until)
                continue;
            until = cc_run.ours[i].start > start ? cc_run.ours[i].start : start;
            next = cc_run.ours[i].end < end ? cc_run.ours[i].end : end;
        }
        if (until > start) {
            stir(hash, start);
            stir(hash, until);
            cc_explore_stir_bytes(hash, (const void *)start, until - start);
        }
        start = next;
    }
}

/* Private memory: the pages that this process has written, or a process before it. The others are as they were mapped, in
 * each process that is here, and need not be read. `pagemap`: a descriptor of /proc/self/pagemap, or an error: all is read. */
HERE static void stir_private(uint64_t hash[2], uintptr_t start, uintptr_t end, long pagemap)
{
    uint64_t pages[PAGES_AT_ONCE];
    while (start < end) {
        uintptr_t first = start / PAGE;
        size_t count = (end + PAGE - 1) / PAGE - first;
        if (count > PAGES_AT_ONCE)
            count = PAGES_AT_ONCE;
        long size = (long)(count * sizeof *pages);
        if (raw_failed(pagemap) || raw4(SYS_pread64, pagemap, (long)pages, size, (long)(first * sizeof *pages)) != size) {
            stir_range(hash, start, end);
            return;
        }
        for (size_t i = 0; i < count; i++) {
            uintptr_t next = (first + i + 1) * PAGE < end ? (first + i + 1) * PAGE : end;
            if (pages[i] & (PAGE_PRESENT | PAGE_SWAPPED) && !(pages[i] & PAGE_OF_FILE))
                stir_range(hash, start, next);
            start = next;
        }
    }
}

HERE static void stir_mapping(uint64_t hash[2], const struct mapping *in, long pagemap)
{
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), PROT_READ | PROT_WRITE);
    uintptr_t from = in->start;
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uintptr_t at = address_of(in, &cc_run.granules[i]);
        if (!at || !cc_run.state_of[i].unknown)
            continue;
        stir_private(hash, from, at, pagemap);
        from = at + cc_run.granules[i].length;
        for (uint32_t byte = 0; byte < cc_run.granules[i].length; byte++)
            stir(hash, BIT(cc_run.state_of[i].known, byte) ? *(const unsigned char *)(at + byte) : 256);
        for (uint32_t word = 0; word < (cc_run.granules[i].choices + 63) / 64; word++)
            stir(hash, cc_run.state_of[i].alive[word]);
    }
    stir_private(hash, from, in->end, pagemap);
    cc_explore_close_pages(in);
}

/* Whether a page shows the file's bytes, and of granules what is known of them. What was written there is lost. */
HERE static bool is_unchanged_page(const struct mapping *in, uintptr_t page)
{
    unsigned char *kept = (unsigned char *)cc_run.maps_text, *now = (unsigned char *)page;
    raw_move(kept, now, PAGE);
    raw3(SYS_madvise, (long)page, PAGE, MADV_DONTNEED);
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        uintptr_t at = address_of(in, &cc_run.granules[i]);
        if (!at)
            continue;
        const unsigned char *content = cc_run.granules[i].choices ? content_of(&cc_run.granules[i], first_alive(i)) : NULL;
        for (uint32_t byte = 0; byte < cc_run.granules[i].length; byte++) {
            if (at + byte < page || at + byte >= page + PAGE)
                continue;
            bool known = BIT(cc_run.state_of[i].known, byte);
            if (known && (!content || content[byte] != kept[at + byte - page]))
                return false;
            kept[at + byte - page] = now[at + byte - page];
        }
    }
    for (uint64_t at = 0; at < PAGE; at++)
        if (kept[at] != now[at])
            return false;
    return true;
}

HERE bool cc_explore_is_unchanged(const struct mapping *in)
{
    if (!(in->protection & PROT_WRITE))
        return true;
    bool same = true;
    long pagemap = raw3(SYS_open, (long)"/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    raw3(SYS_mprotect, (long)in->start, (long)(in->end - in->start), PROT_READ | PROT_WRITE);
    for (uintptr_t page = in->start; page < in->end && same; page += PAGE) {
        uint64_t entry;
        same = raw4(SYS_pread64, pagemap, (long)&entry, sizeof entry, (long)(page / PAGE * sizeof entry)) == sizeof entry;
        if (same && entry & (PAGE_PRESENT | PAGE_SWAPPED) && !(entry & PAGE_OF_FILE))
            same = is_unchanged_page(in, page);
    }
    if (!raw_failed(pagemap))
        raw3(SYS_close, pagemap, 0, 0);
    return same;
}

INLINE const char *hexadecimal(const char *text, uintptr_t *value)
{
    *value = 0;
    for (;; text++) {
        char digit = *text;
        if (digit >= '0' && digit <= '9')
            *value = *value << 4 | (uintptr_t)(digit - '0');
        else if (digit >= 'a' && digit <= 'f')
            *value = *value << 4 | (uintptr_t)(digit - 'a' + 10);
        else
            return text;
    }
}

/* The kernel's list of this process's memory, ended by a zero byte. */
HERE static const char *read_maps(void)
{
    long fd = raw3(SYS_open, (long)"/proc/self/maps", O_RDONLY | O_CLOEXEC, 0);
    if (raw_failed(fd))
        cc_explore_refuse(CC_EXPLORE_SETUP, 1);
    size_t size = 0;
    for (;;) {
        long part = raw3(SYS_read, fd, (long)(cc_run.maps_text + size), (long)(TEXT_ROOM - size - 1));
        if (raw_failed(part) || size + (size_t)part >= TEXT_ROOM - 1)
            cc_explore_refuse(CC_EXPLORE_ROOM, 3);
        if (!part)
            break;
        size += (size_t)part;
    }
    raw3(SYS_close, fd, 0, 0);
    cc_run.maps_text[size] = 0;
    return cc_run.maps_text;
}

struct range {
    uintptr_t start, end;
    bool counts; /* it can be read, and may differ from what it was when the process began */
    bool shared; /* with other processes */
};

/* Reads one line, as "5500-5600 rw-p 00000000 00:00 0    name"; returns the next. */
HERE static const char *read_range(const char *line, struct range *range)
{
    const char *at = hexadecimal(line, &range->start);
    at = hexadecimal(at + 1, &range->end);
    const char *flags = at + 1;
    at = flags + 5;
    for (int spaces = 0; spaces < 3 && *at && *at != '\n'; at++)
        spaces += *at == ' ';
    while (*at == ' ')
        at++;
    bool named = *at == '/', of_kernel = *at == '[' && at[1] == 'v'; /* vdso, vvar */
    range->shared = flags[3] == 's';
    range->counts = flags[0] == 'r' && !of_kernel && (flags[1] == 'w' || !named);
    while (*at && *at != '\n')
        at++;
    return *at ? at + 1 : at;
}

HERE static bool is_of_mapping(const struct range *range)
{
    for (uint32_t i = 0; i < cc_run.mapped; i++)
        if (!cc_run.mappings[i].gone && range->start < cc_run.mappings[i].end && cc_run.mappings[i].start < range->end)
            return true;
    return false;
}

/* All memory that may differ from what it was when the process began, and which memory there is. */
HERE static void stir_memory(uint64_t hash[2], uintptr_t stack)
{
    struct range range;
    long pagemap = raw3(SYS_open, (long)"/proc/self/pagemap", O_RDONLY | O_CLOEXEC, 0);
    for (const char *line = read_maps(); *line;) {
        line = read_range(line, &range);
        if (!range.counts || is_of_mapping(&range))
            continue;
        if (range.start <= stack && stack < range.end && stack - RED_ZONE > range.start)
            range.start = stack - RED_ZONE;
        stir(hash, range.start);
        stir(hash, range.end);
        if (range.shared)
            stir_range(hash, range.start, range.end);
        else
            stir_private(hash, range.start, range.end, pagemap);
    }
    for (uint32_t i = 0; i < cc_run.mapped; i++)
        if (!cc_run.mappings[i].gone && !cc_run.mappings[i].mirrors)
            stir_mapping(hash, &cc_run.mappings[i], pagemap);
    if (!raw_failed(pagemap))
        raw3(SYS_close, pagemap, 0, 0);
}

/* Vector registers as the signal frame has them; what is in its initial state counts as zero. */
HERE static void stir_vectors(uint64_t hash[2], const unsigned char *state)
{
    uint32_t magic;
    uint64_t features = 3;
    raw_move(&magic, state + 464, sizeof magic);
    bool extended = magic == 0x46505853u;
    if (extended)
        raw_move(&features, state + 512, sizeof features);
    stir(hash, features & ~(1ull << 9)); /* without the protection keys */
    if (features & 1)
        cc_explore_stir_bytes(hash, state, 24);
    cc_explore_stir_bytes(hash, state + 24, 4); /* MXCSR */
    if (features & 1)
        cc_explore_stir_bytes(hash, state + 32, 128);
    if (features & 2)
        cc_explore_stir_bytes(hash, state + 160, 256);
    if (!extended)
        return;
    for (uint32_t feature = 2; feature < 8; feature++)
        if (features >> feature & 1)
            cc_explore_stir_bytes(hash, state + cc_run.vector_at[feature], cc_run.vector_bytes[feature]);
    if (features >> 10) /* tiles */
        cc_explore_refuse(CC_EXPLORE_INSTRUCTION, 0);
}

/* What may still be read of granules that are not mapped: by system calls, or by a mapping to come. */
HERE static void stir_unmapped(uint64_t hash[2])
{
    for (uint32_t i = 0; i < cc_run.table->granules; i++) {
        bool mapped = false;
        for (uint32_t j = 0; j < cc_run.mapped; j++)
            mapped |= address_of(&cc_run.mappings[j], &cc_run.granules[i]) != 0;
        for (uint32_t word = 0; word < (cc_run.granules[i].choices + 63) / 64 && !mapped; word++)
            stir(hash, cc_run.state_of[i].alive[word]);
    }
}

HERE void cc_explore_hash_state(uint64_t hash[2], const ucontext_t *context, uint32_t granule)
{
    const greg_t *registers = context->uc_mcontext.gregs;
    hash[0] = cc_run.history[0];
    hash[1] = cc_run.history[1];
    stir(hash, granule);
    for (int i = REG_R8; i <= REG_RIP; i++)
        stir(hash, (uint64_t)registers[i]);
    stir(hash, (uint64_t)(registers[REG_EFL] & ~(TRAP_FLAG | RESUME_FLAG)));
    cc_explore_stir_bytes(hash, cc_run.descriptions, sizeof cc_run.descriptions);
    cc_explore_stir_bytes(hash, &context->uc_sigmask, 8);
    stir_vectors(hash, (const unsigned char *)context->uc_mcontext.fpregs);
    stir_memory(hash, (uintptr_t)registers[REG_RSP]);
    stir_unmapped(hash);
    if (!hash[0] && !hash[1])
        hash[0] = 1;
}

HERE bool cc_explore_met(const uint64_t hash[2])
{
    struct cc_explore_node *nodes = (struct cc_explore_node *)(void *)((char *)cc_run.table + cc_run.table->first_node);
    for (uint32_t slot = (uint32_t)hash[0] % cc_run.table->node_room;; slot = (slot + 1) % cc_run.table->node_room) {
        if (nodes[slot].hash[0] == hash[0] && nodes[slot].hash[1] == hash[1])
            return true;
        if (nodes[slot].hash[0] || nodes[slot].hash[1])
            continue;
        if (cc_run.table->nodes >= cc_run.table->node_room / 2)
            cc_explore_refuse(CC_EXPLORE_ROOM, 4);
        nodes[slot].hash[0] = hash[0];
        nodes[slot].hash[1] = hash[1];
        cc_run.table->nodes++;
        return false;
    }
}
#endif
