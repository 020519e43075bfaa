#include <errno.h>
#include <sys/sendfile.h>
#include <sys/uio.h>

#include "scenes.h"

static void writes(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 0);
    NEED(write(fd, "hello", 5) == 5);
    NEED(write(fd, "", 0) == 0);
    NEED(pwrite(fd, "0123456789", 10, 100) == 10);
    struct iovec parts[3] = {{"ab", 2}, {"", 0}, {"cde", 3}};
    NEED(writev(fd, parts, 3) == 5);
    NEED(pwritev(fd, parts, 3, 50) == 5);
    int again = dup(fd);
    NEED(write(again, "!", 1) == 1);
    NEED(write(-1, "x", 1) == -1 && errno == EBADF);
    NEED(pwrite(open(in_pool(pool, "a.db"), O_RDONLY), "x", 1, 0) == -1 && errno == EBADF);
}

static void synced_writes(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open(in_pool(pool, "a.db"), O_RDWR | O_CREAT | O_SYNC, 0600);
    NEED(write(fd, "sync", 4) == 4);
    int data = open(in_pool(pool, "a.db"), O_RDWR | O_DSYNC);
    NEED(pwrite(data, "data", 4, 8) == 4);
    int append = open(in_pool(pool, "a.db"), O_WRONLY | O_APPEND);
    NEED(write(append, "tail", 4) == 4);
    NEED(pwrite(append, "more", 4, 0) == 4);
    int plain = open(in_pool(pool, "a.db"), O_RDWR);
    struct iovec part = {"flag", 4};
    NEED(pwritev2(plain, &part, 1, 2, RWF_DSYNC) == 4);
    NEED(pwritev2(plain, &part, 1, -1, 0) == 4);
    NEED(fcntl(plain, F_SETFL, O_APPEND) == 0);
    NEED(write(dup(plain), "last", 4) == 4);
}

static void syncs(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 100);
    NEED(fsync(fd) == 0);
    NEED(fdatasync(fd) == 0);
    NEED(sync_file_range(fd, 8, 16, SYNC_FILE_RANGE_WRITE) == 0);
    NEED(syncfs(fd) == 0);
    sync();
    int folder = open(pool, O_RDONLY | O_DIRECTORY);
    NEED(fsync(folder) == 0);
    NEED(mkdir(in_pool(pool, "foobar"), 0700) == 0);
    NEED(fsync(open(in_pool(pool, "foobar"), O_RDONLY | O_DIRECTORY)) == 0);
    NEED(fsync(-1) == -1 && errno == EBADF);
    int other = open("/tmp", O_RDONLY | O_DIRECTORY);
    fsync(other);
}

static void sizes(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.db", 100);
    NEED(ftruncate(fd, 100) == 0);
    NEED(ftruncate(fd, 40) == 0);
    NEED(truncate(in_pool(pool, "a.db"), 60) == 0);
    NEED(fallocate(fd, 0, 0, 200) == 0);
    NEED(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 400) == 0);
    NEED(posix_fallocate(fd, 0, 300) == 0);
    NEED(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
    NEED(open(in_pool(pool, "a.db"), O_RDWR | O_TRUNC) >= 0);
    NEED(creat(in_pool(pool, "b.db"), 0600) >= 0);
    NEED(open(in_pool(pool, "b.db"), O_RDWR | O_CREAT, 0600) >= 0);
    NEED(open(in_pool(pool, "b.db"), O_RDWR | O_CREAT | O_EXCL, 0600) == -1 && errno == EEXIST);
    NEED(ftruncate(fd, -1) == -1 && errno == EINVAL);
}

static void names(const char *pool, char **arguments)
{
    (void)arguments;
    int fd = open_file(pool, "a.tmp", 10);
    NEED(rename(in_pool(pool, "a.tmp"), in_pool(pool, "a.db")) == 0);
    NEED(pwrite(fd, "after", 5, 0) == 5);
    NEED(link(in_pool(pool, "a.db"), in_pool(pool, "b.db")) == 0);
    NEED(unlink(in_pool(pool, "b.db")) == 0);
    NEED(unlink(in_pool(pool, "none.db")) == -1 && errno == ENOENT);
    int from = open_file(pool, "source", 0);
    NEED(write(from, "source", 6) == 6);
    off_t start = 0;
    NEED(sendfile(fd, from, &start, 6) == 6);
    loff_t in = 0, out = 20;
    NEED(copy_file_range(from, &in, fd, &out, 6, 0) == 6);
}

/* What a write-ahead log does: a new file takes the name of an old one, and a log goes away and begins again. */
static void renames(const char *pool, char **arguments)
{
    (void)arguments;
    int old = open_file(pool, "a.db", 0), new = open_file(pool, "b.db", 0), log = open_file(pool, "c.db", 0);
    NEED(write(old, "old", 3) == 3);
    NEED(write(new, "newer", 5) == 5);
    NEED(ftruncate(new, 3 << 20) == 0);
    NEED(pwrite(new, "tail", 4, 2 << 20) == 4);
    char *at = map_file(new, 4096);
    STORE(1, at + 5, '!');
    NEED(write(log, "log", 3) == 3);
    NEED(rename(in_pool(pool, "b.db"), in_pool(pool, "a.db")) == 0);
    STORE(2, at + 6, '?');
    NEED(pwrite(new, "W", 1, 7) == 1);
    NEED(pwrite(old, "lost", 4, 0) == 4);
    NEED(unlink(in_pool(pool, "c.db")) == 0);
    NEED(write(log, "lost", 4) == 4);
    log = open_file(pool, "c.db", 0);
    NEED(write(log, "again", 5) == 5);
    int other = open_file(pool, "d.db", 0);
    NEED(write(other, "moved", 5) == 5);
    NEED(rename(in_pool(pool, "d.db"), in_pool(pool, "d.out")) == 0);
    other = open_file(pool, "e.db", 0);
    NEED(write(other, "goes", 4) == 4);
    char *replaced = map_file(other, 4096);
    other = open_file(pool, "e.tmp", 0);
    NEED(write(other, "comes", 5) == 5);
    NEED(rename(in_pool(pool, "e.tmp"), in_pool(pool, "e.db")) == 0);
    STORE(3, replaced + 1, '-');
    NEED(unlink(in_pool(pool, "none.db")) == -1 && errno == ENOENT);
    NEED(rename(in_pool(pool, "none.db"), in_pool(pool, "a.db")) == -1 && errno == ENOENT);
}

static void vectored(const char *pool, char **arguments)
{
    (void)arguments;
    static char long_part[600];
    memset(long_part, 'x', sizeof long_part);
    int fd = open_file(pool, "a.db", 8192);
    struct iovec parts[4] = {{"ab", 2}, {"", 0}, {long_part, sizeof long_part}, {"yz", 2}};
    NEED(pwritev(fd, parts, 4, 4000) == 604);
    fd = open(in_pool(pool, "a.db"), O_WRONLY | O_APPEND | O_DSYNC);
    NEED(writev(fd, parts, 2) == 2);
    NEED(writev(fd, parts, 4) == 604);
}

static void reads(const char *pool, char **arguments)
{
    (void)arguments;
    int from = open_file(pool, "source", 0);
    NEED(write(from, "0123456789abcdef", 16) == 16);
    char *at = map_file(open_file(pool, "a.db", 4096), 4096);
    char here[4];
    NEED(pread(from, at + 10, 16, 0) == 16);
    NEED(lseek(from, 4, SEEK_SET) == 4);
    NEED(read(from, at + 100, 50) == 12);
    NEED(lseek(from, 0, SEEK_SET) == 0);
    struct iovec parts[3] = {{here, 4}, {at + 200, 4}, {at + 300, 100}};
    NEED(readv(from, parts, 3) == 16);
    FILE *stream = fopen(in_pool(pool, "source"), "r");
    NEED(fread(at + 400, 3, 2, stream) == 2);
}

static void counts(const char *pool, char **arguments)
{
    (void)arguments;
    uint64_t *at = map_file(open_file(pool, "deep.db", 1 << 30), 1 << 30);
    int fd = open_file(pool, "written.db", 0), other = open_file(pool, "unwatched", 0);
    for (uint64_t i = 1; i <= 10; i++) {
        STORE(1, at, i);
        uint64_t half = i;
        NEED(pwrite(fd, &half, 8, 0) == 8);
    }
    NEED(write(other, "x", 1) == 1);
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {{"writes", writes}, {"synced-writes", synced_writes}, {"syncs", syncs},
        {"sizes", sizes}, {"names", names}, {"reads", reads}, {"renames", renames}, {"vectored", vectored}, {"counts", counts}, {NULL, NULL}};
    return play(scenes, argc, argv);
}
