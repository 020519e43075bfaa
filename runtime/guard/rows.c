/* The log: a hash table of observations in a mapped file. Each row is counted in place, so that whatever ends the process,
 * and whichever processes share the file, what was seen is there. */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "guard/base.h"

#define ROWS_OF_TRAINING (1u << 18)
#define FACTS_OF_TRAINING (256ul << 20)
#define ROWS (1u << 12)
#define FACTS (4ul << 20)
#define PROBES 64u

/* The header of facts (facts.py): magic, version, their size without it, and what follows up to `head`. */
struct facts_head {
    char magic[8];
    uint32_t version, packed_bytes;
    uint64_t raw_bytes, key;
};

HIDDEN struct cc_guard_header *cc_log;
static uint8_t unresolved_in_a_row[ROWS]; /* of this process: the file may be of several */

static struct cc_guard_row *rows(void)
{
    return (struct cc_guard_row *)((char *)cc_log + CC_GUARD_HEADER_BYTES);
}

/* An open file of the log's size with its blocks reserved: a store to a mapped file that finds the disk full kills, and so does
 * a file that grows beyond the process's limit. What a training run may need is too much for that. */
static long open_log(const char *path, uint32_t rows_wanted, uint64_t bytes, bool training)
{
    struct rlimit limit;
    if (!raw_failed(raw4(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, (long)&limit)) && limit.rlim_cur < bytes)
        return -1;
    long file = raw4(SYS_openat, AT_FDCWD, (long)path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (raw_failed(file))
        return -1;
    struct cc_guard_header there;
    long got = raw4(SYS_pread64, file, (long)&there, sizeof there, 0);
    bool is_whole = got == sizeof there;
    bool is_new = !got || (is_whole && !there.magic); /* another process may have just made it */
    bool is_joined = is_whole && there.magic == CC_GUARD_MAGIC && there.version == CC_GUARD_VERSION && there.rows == rows_wanted;
    if (!is_new && !is_joined) { /* somebody else's, or another version's: stays as it is */
        raw3(SYS_close, file, 0, 0);
        return -1;
    }
    long sized = training ? raw3(SYS_ftruncate, file, (long)bytes, 0) : raw4(SYS_fallocate, file, 0, 0, (long)bytes);
    if (!raw_failed(sized))
        return file;
    raw3(SYS_close, file, 0, 0);
    return -1;
}

bool cc_rows_open(const char *path, bool training)
{
    uint32_t count = training ? ROWS_OF_TRAINING : ROWS;
    uint64_t facts = training ? FACTS_OF_TRAINING : FACTS;
    uint64_t bytes = CC_GUARD_HEADER_BYTES + count * sizeof(struct cc_guard_row) + facts;
    long file = path ? open_log(path, count, bytes, training) : -1;
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE : MAP_SHARED;
    long mapped = raw6(SYS_mmap, 0, (long)bytes, PROT_READ | PROT_WRITE, flags, file, 0);
    if (file >= 0)
        raw3(SYS_close, file, 0, 0);
    if (raw_failed(mapped))
        return false;
    cc_log = (struct cc_guard_header *)mapped;
    cc_log->version = CC_GUARD_VERSION; /* the same for all that log in one way */
    cc_log->rows = count;
    cc_log->facts_bytes = facts;
    __atomic_store_n(&cc_log->magic, CC_GUARD_MAGIC, __ATOMIC_RELEASE);
    return !path || file >= 0;
}

uint8_t *cc_unresolved_in_a_row(const struct cc_guard_row *row)
{
    return &unresolved_in_a_row[(row - rows()) % ROWS];
}

static uint64_t mixed(uint64_t site, uint64_t before, uint32_t kind)
{
    uint64_t hash = (site ^ kind) * 0x9e3779b97f4a7c15ull;
    return (hash ^ before ^ hash >> 29) * 0xbf58476d1ce4e5b9ull >> 32;
}

struct cc_guard_row *cc_row(uint64_t site, uint64_t before, uint32_t kind, uint32_t thread)
{
    uint64_t at = mixed(site, before, kind);
    for (uint32_t probe = 0; probe < PROBES; probe++) {
        struct cc_guard_row *row = &rows()[(at + probe) & (cc_log->rows - 1)];
        if (LIKELY(__atomic_load_n(&row->written, __ATOMIC_ACQUIRE))) {
            if (row->site == site && row->before == before && row->kind == kind)
                return row;
            continue;
        }
        uint32_t free = 0; /* a row that another thread is writing is passed by: nobody waits here */
        if (!__atomic_compare_exchange_n(&row->claimed, &free, 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
            continue;
        row->site = site;
        row->before = before;
        row->kind = kind;
        row->thread = thread;
        row->order = __atomic_add_fetch(&cc_log->order, 1, __ATOMIC_RELAXED);
        __atomic_store_n(&row->written, 1, __ATOMIC_RELEASE);
        return row;
    }
    __atomic_fetch_add(&cc_log->rows_lost, 1, __ATOMIC_RELAXED);
    return NULL;
}

static uint64_t padded_bytes(const struct facts_head *head)
{
    return (sizeof *head + head->packed_bytes + 7) & ~7ull;
}

/* Whether facts that begin so are among the first `used` bytes: of an earlier run that logged there, or another process. What
 * is being written there cannot be passed; then they are there twice. */
static bool has_facts(const char *facts, uint64_t used, const struct facts_head *wanted)
{
    for (uint64_t at = 0; at + sizeof *wanted <= used;) {
        const struct facts_head *head = (const struct facts_head *)(facts + at);
        if (raw_same((const char *)head, (const char *)wanted, sizeof *head))
            return true;
        if (!raw_same(head->magic, wanted->magic, sizeof head->magic))
            return false;
        at += padded_bytes(head);
    }
    return false;
}

void cc_rows_meet(const struct cc_guard_unit *unit)
{
    uint64_t learned = 0;
    if (unit->learned &&
        !__atomic_compare_exchange_n(&cc_log->learned, &learned, unit->learned, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
        learned != unit->learned)
        __atomic_fetch_add(&cc_log->otherwise, 1, __ATOMIC_RELAXED);
    const struct facts_head *head = unit->facts;
    if (!head)
        return;
    uint64_t bytes = padded_bytes(head);
    char *facts = (char *)cc_log + CC_GUARD_HEADER_BYTES + cc_log->rows * sizeof(struct cc_guard_row);
    uint64_t used = __atomic_load_n(&cc_log->facts_used, __ATOMIC_RELAXED);
    if (has_facts(facts, used, head))
        return;
    do {
        if (bytes > cc_log->facts_bytes - used) {
            __atomic_fetch_add(&cc_log->facts_lost, 1, __ATOMIC_RELAXED);
            return;
        }
    } while (!__atomic_compare_exchange_n(&cc_log->facts_used, &used, used + bytes, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    uint64_t magic; /* last: a process that is killed here leaves the rest readable */
    raw_move(&magic, head->magic, sizeof magic);
    raw_move(facts + used + sizeof magic, (const char *)head + sizeof magic, sizeof *head - sizeof magic + head->packed_bytes);
    __atomic_store_n((uint64_t *)(facts + used), magic, __ATOMIC_RELEASE);
}
