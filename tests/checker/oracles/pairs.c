/* `FILE OPERATIONS [M]`: operations "put SLOT VALUE" and "get SLOT" on an array of slots, a cache line each. With M, so many
 * threads begin an operation each, do them one after another in reverse order, and end them. Lines begin in their order.
 * ADD is what a put does besides: compile with -DSTALE to write back the neighbour's line instead of its own. */
#include "table.h"

#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void crashcheck_op_begin(void);
void crashcheck_op_end(void);

#define MOST 8
#define SLOTS_USED 8

struct slot {
    uint64_t value __attribute__((aligned(LINE)));
};

static struct slot *slots;
static char lines[MOST][64], answers[MOST][64];
static int count;
static sem_t may_begin[MOST + 1], may_do[MOST + 1], may_end[MOST + 1];

static void run(const char *line, char *answer) {
    unsigned slot = 0;
    unsigned long value = 0;
    if (sscanf(line, "put %u %lu", &slot, &value) == 2) {
        slots[slot].value = value;
#ifdef STALE
        flush(&slots[(slot + 1) % SLOTS_USED], 8);
#else
        flush(&slots[slot], 8);
#endif
        fence();
        strcpy(answer, "ok");
    } else if (sscanf(line, "get %u", &slot) == 1) {
        sprintf(answer, "%lu", slots[slot].value);
    }
}

static void *worker(void *argument) {
    int mine = (int)(intptr_t)argument;
    sem_wait(&may_begin[mine]);
    crashcheck_op_begin();
    sem_post(mine + 1 < count ? &may_begin[mine + 1] : &may_do[count - 1]);
    sem_wait(&may_do[mine]);
    run(lines[mine], answers[mine]);
    sem_post(mine > 0 ? &may_do[mine - 1] : &may_end[0]);
    sem_wait(&may_end[mine]);
    crashcheck_op_end();
    sem_post(&may_end[mine + 1]);
    return NULL;
}

static void run_together(void) {
    pthread_t threads[MOST];
    for (int i = 0; i <= MOST; i++) {
        sem_init(&may_begin[i], 0, i == 0);
        sem_init(&may_do[i], 0, 0);
        sem_init(&may_end[i], 0, 0);
    }
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, worker, (void *)(intptr_t)i);
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

int main(int argc, char **argv) {
    FILE *operations = argc >= 3 ? fopen(argv[2], "r") : NULL;
    int together = argc > 3 ? atoi(argv[3]) : 1;
    int fd = open(argv[1], O_RDWR | O_CREAT, 0644);
    if (!operations || fd < 0 || together > MOST || ftruncate(fd, SLOTS_USED * sizeof(struct slot)) != 0)
        return 2;
    slots = mmap(NULL, SLOTS_USED * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (slots == MAP_FAILED)
        return 2;
    do {
        for (count = 0; count < together && fgets(lines[count], sizeof lines[count], operations);)
            count++;
        if (count)
            run_together();
        for (int i = 0; i < count; i++)
            printf("%s\n", answers[i]);
    } while (count == together);
    return 0;
}
