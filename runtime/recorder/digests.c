/* Digests of what the pool files hold. analyzer/trace/digests.py computes the same of replayed files. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "recorder/digests.h"
#include "recorder/pool_walk.h"
#include "recorder/process.h"
#include "recorder/snapshot.h"

#define UNIT (1u << 16)
#define AT_ONCE 256u /* units of data: larger pools have no digests */

static char path[PATH_ROOM];
static uint64_t apart; /* events from one digest to the next */
static uint64_t limit; /* number of the first event that has none */

struct sum {
    uint64_t digest;
    uint64_t units;
    uint64_t seed; /* of the file */
};

void cc_digests_start(const char *file, const char *at)
{
    if (!file || !*file || !at || raw_length(file) >= sizeof path)
        return;
    raw_append(path, sizeof path, file);
    apart = raw_number(&at);
    cc_snapshot_seq = raw_number(&at);
    limit = raw_number(&at);
}

bool cc_takes_digests(void)
{
    return path[0] != 0;
}

/* Of a word and where it is; a sum of these is a digest, in whichever order they are met. */
static inline uint64_t mixed(uint64_t word, uint64_t index, uint64_t seed)
{
    uint64_t x = word * 0x9e3779b97f4a7c15ull + index * 0xc2b2ae3d27d4eb4full + seed;
    x = (x ^ x >> 32) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ x >> 29) * 0x94d049bb133111ebull;
    return x ^ x >> 32;
}

/* Words of zeros count nothing, as holes do; words begin where they do without holes. */
static bool add_data(int fd, uint64_t at, uint64_t end, void *context)
{
    static uint64_t buffer[UNIT / 8];
    struct sum *sum = context;
    at &= ~7ul;
    while (at < end && ++sum->units <= AT_ONCE) {
        long got = raw4(SYS_pread64, fd, (long)buffer, (long)(end - at < UNIT ? end - at : UNIT), (long)at);
        if (got < 0)
            sum->units = AT_ONCE + 1;
        if (got <= 0)
            break;
        raw_fill((char *)buffer + got, 0, (size_t)(-got & 7));
        for (long i = 0; i < (got + 7) / 8; i++)
            if (buffer[i])
                sum->digest += mixed(buffer[i], at / 8 + (uint64_t)i + 1, sum->seed);
        if (got % 8) /* the end of the data */
            break;
        at += (uint64_t)got;
    }
    return sum->units <= AT_ONCE;
}

static void add_file(int folder, const char *name, const char *relative, void *context)
{
    struct sum *sum = context;
    struct stat state;
    if (sum->units++ > AT_ONCE)
        return;
    long fd = raw4(SYS_openat, folder, (long)name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NOATIME, 0);
    if (fd == -EPERM) /* of another owner */
        fd = raw4(SYS_openat, folder, (long)name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW, 0);
    if (raw_failed(fd)) {
        sum->units = AT_ONCE + 1;
        return;
    }
    sum->seed = raw_hash(RAW_HASH_START, relative);
    if (raw_failed(raw3(SYS_fstat, fd, (long)&state, 0))) {
        sum->units = AT_ONCE + 1;
    } else {
        sum->digest += mixed((uint64_t)state.st_size, 0, sum->seed);
        cc_walk_data((int)fd, (uint64_t)state.st_size, add_data, sum);
    }
    raw3(SYS_close, fd, 0, 0);
}

static bool is_next(uint64_t seq)
{
    return __atomic_load_n(&cc_header->next_seq, __ATOMIC_ACQUIRE) == seq;
}

uint64_t cc_digest(uint64_t seq, uint32_t count)
{
    struct sum sum = {0, 0, 0};
    if (!is_next(seq + count))
        return 0;
    cc_walk_pool(add_file, &sum);
    if (sum.units > AT_ONCE)
        return NO_SNAPSHOT;
    if (is_next(seq + count)) {
        struct digest digest = {seq, sum.digest};
        long fd = raw3(SYS_open, (long)path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (!raw_failed(fd)) {
            raw3(SYS_write, fd, (long)&digest, sizeof digest);
            raw3(SYS_close, fd, 0, 0);
        }
    }
    return seq + apart < limit ? seq + apart : NO_SNAPSHOT;
}
