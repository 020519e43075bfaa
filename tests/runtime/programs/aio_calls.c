/* Asynchronous requests by io_submit, one part for each second argument; the first is the folder. No part of crashcheck in it. */
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK 4096

struct ring { /* what the kernel shares */
    uint32_t id, count, head, tail, magic, compatible, incompatible, bytes;
    struct io_event events[];
};

static aio_context_t context;

static long must(long result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
    return result;
}
#define MUST(call) must((long)(call), #call)

static struct iocb request(int code, int fd, const void *from, size_t size, int64_t offset)
{
    struct iocb iocb = {.aio_lio_opcode = (uint16_t)code, .aio_fildes = (uint32_t)fd, .aio_buf = (uintptr_t)from, .aio_offset = offset};
    iocb.aio_nbytes = size;
    return iocb;
}

static void submit(struct iocb *requests, long many)
{
    struct iocb *all[16];
    for (long i = 0; i < many; i++)
        all[i] = &requests[i];
    MUST(syscall(SYS_io_submit, context, many, all) == many ? 0 : -1);
}

static void wait_for(long many)
{
    struct io_event ended[16];
    MUST(syscall(SYS_io_getevents, context, many, many, ended, NULL) == many ? 0 : -1);
}

static int make(const char *name, int flags)
{
    return (int)MUST(open(name, O_RDWR | O_CREAT | flags, 0644));
}

static void writes(void)
{
    int a = make("a", 0), append = make("b", O_APPEND);
    struct iovec parts[2] = {{(void *)"two ", 4}, {(void *)"parts", 5}};
    struct iocb some[5] = {request(IOCB_CMD_PWRITE, a, "one", 3, 0), request(IOCB_CMD_PWRITEV, a, parts, 2, 8),
                           request(IOCB_CMD_PWRITE, append, "first ", 6, 0), request(IOCB_CMD_PWRITE, append, "second", 6, 0),
                           request(IOCB_CMD_FDSYNC, a, NULL, 0, 0)};
    submit(some, 5);
    wait_for(5);
    some[0] = request(IOCB_CMD_PWRITE, a, "synced", 6, 32);
    some[0].aio_rw_flags = RWF_DSYNC;
    submit(some, 1);
    wait_for(1);
    some[0] = request(IOCB_CMD_FSYNC, a, NULL, 0, 0);
    submit(some, 1);
    wait_for(1);
    MUST(write(1, "done\n", 5));
}

/* Reads the ring itself, as fio and qemu do: no call shows that the requests have ended. */
static void by_the_ring(void)
{
    int fd = make("a", 0);
    struct iocb some[1];
    volatile struct ring *ring = (volatile struct ring *)context;
    for (int i = 0; i < 300; i++) { /* more than it has places */
        some[0] = i % 2 ? request(IOCB_CMD_FDSYNC, fd, NULL, 0, 0) : request(IOCB_CMD_PWRITE, fd, &i, sizeof i, 4 * i);
        submit(some, 1);
        while (ring->head == ring->tail)
            ;
        ring->head = (ring->head + 1) % ring->count;
    }
    MUST(write(1, "done\n", 5));
}

static void partly(void)
{
    int fd = make("a", 0), only_read = (int)MUST(open("a", O_RDONLY));
    struct iocb some[3] = {request(IOCB_CMD_PWRITE, fd, "yes", 3, 0), request(IOCB_CMD_PWRITE, only_read, "no", 2, 0),
                           request(IOCB_CMD_PWRITE, fd, "never", 5, 0)};
    struct iocb *all[3] = {&some[0], &some[1], &some[2]};
    MUST(syscall(SYS_io_submit, context, 3, all) == 1 ? 0 : -1);
}

static void direct(void)
{
    int fd = make("a", O_DIRECT);
    char *block = NULL;
    MUST(posix_memalign((void **)&block, BLOCK, BLOCK));
    memset(block, 'd', BLOCK);
    MUST(pwrite(fd, block, BLOCK, 0));
    MUST(pwrite(fd, block, BLOCK, BLOCK));
    MUST(fsync(fd));
    memset(block, 'e', BLOCK);
    struct iocb some[2] = {request(IOCB_CMD_PWRITE, fd, block, BLOCK, 0), request(IOCB_CMD_PWRITE, fd, block, BLOCK, BLOCK)};
    submit(some, 2);
    wait_for(2);
    some[0] = request(IOCB_CMD_FDSYNC, fd, NULL, 0, 0);
    submit(some, 1);
    wait_for(1);
    MUST(write(1, "done\n", 5));
}

static void abandons(void)
{
    int fd = make("a", 0);
    struct iocb some[2] = {request(IOCB_CMD_PWRITE, fd, "x", 1, 0), request(IOCB_CMD_FSYNC, fd, NULL, 0, 0)};
    submit(some, 2);
    MUST(syscall(SYS_io_destroy, context));
}

static void *syncs(void *stopped)
{
    int fd = make("b", 0);
    while (!__atomic_load_n((int *)stopped, __ATOMIC_ACQUIRE))
        MUST(fdatasync(fd));
    return NULL;
}

static void beside_syncs(void)
{
    int fd = make("a", 0), stopped = 0;
    pthread_t thread;
    MUST(-pthread_create(&thread, NULL, syncs, &stopped));
    for (int64_t at = 0; at < 500; at++) {
        struct iocb one = request(IOCB_CMD_PWRITE, fd, "x", 1, at);
        submit(&one, 1);
        wait_for(1);
    }
    __atomic_store_n(&stopped, 1, __ATOMIC_RELEASE);
    MUST(-pthread_join(thread, NULL));
}

int main(int count, char **words)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } parts[] = {{"writes", writes}, {"ring", by_the_ring}, {"partly", partly}, {"direct", direct}, {"abandons", abandons},
                 {"beside", beside_syncs}};
    MUST(count == 3 ? 0 : -1);
    MUST(chdir(words[1]));
    MUST(syscall(SYS_io_setup, 16, &context));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        if (strcmp(parts[i].name, words[2]) == 0) {
            parts[i].run();
            return 0;
        }
    }
    return 3;
}
