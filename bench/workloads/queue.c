/* A lock-free queue under producers and consumers: `queue ITEMS THREADS`, half of the threads are producers.
 * Prints the seconds; exits with 1 if an item is lost, doubled, or overtakes one of the same producer.
 *
 * The queue of Michael and Scott (PODC 1996, figure 1) with their counted pointers: a pointer is the number of a node and a
 * count that makes each of its values a new one. Nodes that are free are on a stack of the same pointers (Treiber). */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { NODES = 1024, MOST_THREADS = 16 };
struct node {
    _Atomic uint64_t next; /* counted */
    _Atomic uint64_t value;
};
static struct node nodes[NODES + 1]; /* number 0 is NULL */
static _Atomic uint64_t head, tail, unused;
static _Atomic long taken;
static long items, producers;
static uint64_t sums[MOST_THREADS];

static uint32_t number_of(uint64_t pointer) {
    return (uint32_t)pointer;
}

static uint64_t counted(uint64_t before, uint32_t number) {
    return ((before >> 32) + 1) << 32 | number;
}

static uint32_t allocate(void) {
    for (;;) {
        uint64_t top = atomic_load(&unused);
        if (number_of(top) == 0) {
            sched_yield();
            continue;
        }
        uint64_t next = atomic_load(&nodes[number_of(top)].next);
        if (atomic_compare_exchange_weak(&unused, &top, counted(top, number_of(next))))
            return number_of(top);
    }
}

static void release(uint32_t number) {
    uint64_t top = atomic_load(&unused);
    do
        atomic_store(&nodes[number].next, counted(atomic_load(&nodes[number].next), number_of(top)));
    while (!atomic_compare_exchange_weak(&unused, &top, counted(top, number)));
}

static void enqueue(uint64_t value) {
    uint32_t number = allocate();
    atomic_store(&nodes[number].value, value);
    atomic_store(&nodes[number].next, counted(atomic_load(&nodes[number].next), 0));
    for (;;) {
        uint64_t last = atomic_load(&tail), next = atomic_load(&nodes[number_of(last)].next);
        if (last != atomic_load(&tail))
            continue;
        if (number_of(next) != 0) {
            atomic_compare_exchange_weak(&tail, &last, counted(last, number_of(next)));
        } else if (atomic_compare_exchange_weak(&nodes[number_of(last)].next, &next, counted(next, number))) {
            atomic_compare_exchange_strong(&tail, &last, counted(last, number));
            return;
        }
    }
}

static int dequeue(uint64_t *value) {
    for (;;) {
        uint64_t first = atomic_load(&head), last = atomic_load(&tail);
        uint64_t next = atomic_load(&nodes[number_of(first)].next);
        if (first != atomic_load(&head))
            continue;
        if (number_of(first) == number_of(last)) {
            if (number_of(next) == 0)
                return 0;
            atomic_compare_exchange_weak(&tail, &last, counted(last, number_of(next)));
            continue;
        }
        *value = atomic_load(&nodes[number_of(next)].value);
        if (atomic_compare_exchange_weak(&head, &first, counted(first, number_of(next)))) {
            release(number_of(first));
            return 1;
        }
    }
}

static void *produce(void *own) {
    uint64_t producer = (uint64_t)(uintptr_t)own;
    for (long i = 1; i <= items; i++)
        enqueue(producer << 48 | (uint64_t)i);
    return NULL;
}

static void *consume(void *own) {
    uint64_t latest[MOST_THREADS] = {0}, value;
    while (atomic_load(&taken) < items * producers) {
        if (!dequeue(&value)) {
            sched_yield();
            continue;
        }
        uint64_t producer = value >> 48, number = value & 0xFFFFFFFFFFFF;
        if (number <= latest[producer]) {
            fprintf(stderr, "item %lu of producer %lu is too late\n", (unsigned long)number, (unsigned long)producer);
            exit(1);
        }
        latest[producer] = number;
        *(uint64_t *)own += number;
        atomic_fetch_add(&taken, 1);
    }
    return NULL;
}

int main(int argc, char **argv) {
    long threads = argc == 3 ? atol(argv[2]) : 0;
    if (threads < 2 || threads > MOST_THREADS)
        return 2;
    items = atol(argv[1]);
    producers = threads / 2;
    for (uint32_t number = NODES; number > 1; number--)
        release(number);
    atomic_store(&head, 1);
    atomic_store(&tail, 1);
    pthread_t running[MOST_THREADS];
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long i = 0; i < threads; i++) {
        int failed = i < producers ? pthread_create(&running[i], NULL, produce, (void *)(uintptr_t)i)
                                   : pthread_create(&running[i], NULL, consume, &sums[i]);
        if (failed)
            return 2;
    }
    uint64_t sum = 0;
    for (long i = 0; i < threads; i++) {
        pthread_join(running[i], NULL);
        sum += sums[i];
    }
    clock_gettime(CLOCK_MONOTONIC, &ended);
    if (sum != (uint64_t)(producers * (items * (items + 1) / 2))) {
        fprintf(stderr, "items were lost or doubled\n");
        return 1;
    }
    printf("%.6f\n", (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9);
    return 0;
}
