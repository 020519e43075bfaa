/* A program that may not be killed between two of its updates, and that stores what differs from run to run.
 *
 *   prefix FILE                 the workload
 *   prefix FILE check           the check: a and b are set together
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

void untraced(uint64_t *word); /* in a file of its own, built without crashcheck-cc */

struct page {
    uint64_t word[512];
};

static void put(struct page *page, uint64_t value)
{
    page->word[0] = value;
    msync(page, sizeof *page, MS_SYNC);
}

#ifdef THREAD
/* A thread in the background, which does more in one run than in another. */
struct work {
    struct page *pages;
    size_t amount;
};

static void *maintain(void *argument)
{
    const struct work *work = argument;
    for (size_t i = 0; i < work->amount; i++)
        work->pages[0].word[1] = i;
    return NULL;
}
#endif

#ifdef ROUNDS
/* Another page, in a thread's turn, which comes in another round in the first run in this folder than in all others. */
static void *put_elsewhere(void *pages)
{
    put((struct page *)pages, 7);
    return NULL;
}

static void put_in_a_thread(struct page *pages)
{
    pthread_t thread;
    if (pthread_create(&thread, NULL, put_elsewhere, pages) || pthread_join(thread, NULL))
        exit(4);
}
#endif

/* Never 0, and not the same in a run with a longer path, or at another time. */
static uint64_t differs(const char *path)
{
#ifdef TIME
    (void)path;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
#else
    char *copy = malloc(64 * strlen(path)), *next = malloc(16);
    if (!copy || !next)
        exit(4);
    strcpy(copy, path);
    return (uint64_t)(uintptr_t)next * 4096 + strlen(copy);
#endif
}

int main(int argc, char **argv)
{
    int fd = open(argv[1], O_RDWR | O_CREAT, 0666);
    if (fd < 0 || (argc == 2 && ftruncate(fd, 3 * sizeof(struct page))))
        return 3;
    if (argc > 2) {
        uint64_t a = 0, b = 0, stored = 0;
        if (pread(fd, &stored, 8, 0) < 0 || pread(fd, &a, 8, 4096) < 0 || pread(fd, &b, 8, 8192) < 0)
            return 3;
        if (a != b)
            printf("a is %lu and b is %lu since %lx\n", a, b, stored);
        return a != b;
    }
    struct page *pages = mmap(NULL, 3 * sizeof *pages, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (pages == MAP_FAILED)
        return 3;
    put(&pages[0], differs(argv[1]));
#ifdef THREAD
    pthread_t thread;
    if (pthread_create(&thread, NULL, maintain, &(struct work){pages, strlen(argv[1])}) || pthread_join(thread, NULL))
        return 4;
#endif
#ifdef ROUNDS
    uint64_t turn = open("ran", O_CREAT | O_EXCL, 0666) >= 0 ? 2 : 1;
    for (uint64_t round = 1; round <= 2; round++) {
#ifdef UNTRACED
        untraced(&pages[2].word[0]);
#endif
        put(&pages[1], round);
        if (round == turn)
            put_in_a_thread(pages);
        put(&pages[2], round);
    }
    return 0;
#endif
#ifdef UNTRACED
    untraced(&pages[2].word[0]);
#endif
    put(&pages[1], 1);
    put(&pages[2], 1);
    return 0;
}
