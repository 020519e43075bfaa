/* Two threads and one file: one stores and persists, the other reads what is there and answers. With -DEARLY it reads before
 * the first has persisted. `answers FILE` runs, `answers FILE OUTPUT` checks that all that was answered is in FILE.
 *
 * -DSERVICE=1: records in persistent memory, each persisted when the next is stored (a server that answers queries).
 * -DSERVICE=2: a log that is appended to, and synced after each record (a replica that reports how far the log goes). */
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { RECORDS = 4 };
struct file {
    struct {
        uint64_t value;
    } __attribute__((aligned(64))) records[RECORDS];
    struct {
        uint64_t length;
    } __attribute__((aligned(4096))) log;
} __attribute__((aligned(4096)));

static struct file *file;
static sem_t readable, answered;

static void persist(void *place, size_t size) {
#if SERVICE == 1
    (void)size;
    __builtin_ia32_clflush(place);
    __builtin_ia32_sfence();
#else
    if (msync((void *)((uintptr_t)place & ~(uintptr_t)4095), size, MS_SYNC) != 0)
        abort();
#endif
}

static void may_be_read(void) {
    sem_post(&readable);
    sem_wait(&answered);
}

static void update(int number) {
#if SERVICE == 1
    void *place = &file->records[number].value;
    file->records[number].value = 7 * (uint64_t)(number + 1);
#else
    void *place = &file->log.length;
    file->log.length = (uint64_t)(number + 1);
#endif
#ifdef EARLY
    may_be_read();
#endif
    persist(place, 64);
#ifndef EARLY
    may_be_read();
#endif
}

static void answer(int number) {
#if SERVICE == 1
    uint64_t value = file->records[number].value;
    printf("record %d is %d\n", number, (int)value);
#else
    uint64_t length = file->log.length;
    printf("the log has %d records after %d\n", (int)length, number);
#endif
    fflush(stdout);
}

static void *serve(void *unused) {
    for (int number = 0; number < RECORDS; number++) {
        sem_wait(&readable);
        answer(number);
        sem_post(&answered);
    }
    return unused;
}

static int check(const char *output) {
    FILE *said = fopen(output, "r");
    int first, second;
    if (!said)
        return 2;
#if SERVICE == 1
    while (fscanf(said, "record %d is %d\n", &first, &second) == 2)
        if (file->records[first].value != (uint64_t)second)
            return 1;
#else
    while (fscanf(said, "the log has %d records after %d\n", &first, &second) == 2)
        if (file->log.length < (uint64_t)first)
            return 1;
#endif
    return 0;
}

int main(int argc, char **argv) {
    int fd = argc > 1 ? open(argv[1], O_RDWR | O_CREAT, 0644) : -1;
    if (fd < 0 || ftruncate(fd, sizeof *file) != 0)
        return 2;
    file = mmap(NULL, sizeof *file, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (file == MAP_FAILED)
        return 2;
    if (argc > 2)
        return check(argv[2]);
    pthread_t thread;
    sem_init(&readable, 0, 0);
    sem_init(&answered, 0, 0);
    if (pthread_create(&thread, NULL, serve, NULL) != 0)
        return 2;
    for (int number = 0; number < RECORDS; number++)
        update(number);
    pthread_join(thread, NULL);
    return 0;
}
