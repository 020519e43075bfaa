/* Dense LU factorisation by blocks, without pivoting: the algorithm of SPLASH-2's kernel (Woo et al., ISCA 1995, section 3).
 * `lu N THREADS`: prints the seconds of the factorisation; exits with 1 if the factors' product is not the matrix.
 *
 * The matrix is an array of blocks, scattered over the threads in two dimensions. For each step: factor the block on the
 * diagonal; divide those below and right of it; subtract their products from the rest. Threads meet at barriers. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCK = 16 };
typedef double block[BLOCK][BLOCK];

static long blocks; /* in each direction */
static long rows_of_threads, columns_of_threads;
static block *matrix;
static pthread_barrier_t barrier;

static block *at(long row, long column) {
    return &matrix[row * blocks + column];
}

static int is_mine(long thread, long row, long column) {
    return row % rows_of_threads * columns_of_threads + column % columns_of_threads == thread;
}

static void subtract_multiple(double *from, const double *row, double factor, long count) {
    for (long i = 0; i < count; i++)
        from[i] -= factor * row[i];
}

static void factor(block *diagonal) {
    for (long k = 0; k < BLOCK; k++)
        for (long i = k + 1; i < BLOCK; i++) {
            (*diagonal)[i][k] /= (*diagonal)[k][k];
            subtract_multiple(&(*diagonal)[i][k + 1], &(*diagonal)[k][k + 1], (*diagonal)[i][k], BLOCK - k - 1);
        }
}

/* B U = A, for the blocks below the diagonal. */
static void divide_below(block *below, block *diagonal) {
    for (long k = 0; k < BLOCK; k++)
        for (long i = 0; i < BLOCK; i++) {
            (*below)[i][k] /= (*diagonal)[k][k];
            subtract_multiple(&(*below)[i][k + 1], &(*diagonal)[k][k + 1], (*below)[i][k], BLOCK - k - 1);
        }
}

/* L B = A, for those right of it. */
static void divide_right(block *right, block *diagonal) {
    for (long k = 0; k < BLOCK; k++)
        for (long i = k + 1; i < BLOCK; i++)
            subtract_multiple((*right)[i], (*right)[k], (*diagonal)[i][k], BLOCK);
}

static void subtract_product(block *inner, block *below, block *right) {
    for (long i = 0; i < BLOCK; i++)
        for (long k = 0; k < BLOCK; k++)
            subtract_multiple((*inner)[i], (*right)[k], (*below)[i][k], BLOCK);
}

static void *work(void *argument) {
    long thread = (long)argument;
    for (long k = 0; k < blocks; k++) {
        if (is_mine(thread, k, k))
            factor(at(k, k));
        pthread_barrier_wait(&barrier);
        for (long i = k + 1; i < blocks; i++) {
            if (is_mine(thread, i, k))
                divide_below(at(i, k), at(k, k));
            if (is_mine(thread, k, i))
                divide_right(at(k, i), at(k, k));
        }
        pthread_barrier_wait(&barrier);
        for (long i = k + 1; i < blocks; i++)
            for (long j = k + 1; j < blocks; j++)
                if (is_mine(thread, i, j))
                    subtract_product(at(i, j), at(i, k), at(k, j));
    }
    return NULL;
}

static double element(long row, long column) {
    return (*at(row / BLOCK, column / BLOCK))[row % BLOCK][column % BLOCK];
}

/* What was at this place: large on the diagonal, so that no pivoting is needed. */
static double original(long row, long column, long size) {
    return row == column ? (double)size : 1.0 / (1 + (row * 7 + column * 3) % 11);
}

static int is_right(long size) {
    for (long probe = 0; probe < 64; probe++) {
        long row = probe * 31 % size, column = probe * 17 % size;
        double sum = 0;
        for (long k = 0; k <= row && k <= column; k++)
            sum += (k == row ? 1 : element(row, k)) * element(k, column);
        if (fabs(sum - original(row, column, size)) > 1e-6 * (double)size)
            return 0;
    }
    return 1;
}

int main(int count, char **words) {
    long size = count > 1 ? atol(words[1]) : 512, threads = count > 2 ? atol(words[2]) : 2;
    size = (size + BLOCK - 1) / BLOCK * BLOCK;
    blocks = size / BLOCK;
    for (rows_of_threads = 1; (rows_of_threads + 1) * (rows_of_threads + 1) <= threads;)
        rows_of_threads++;
    while (threads % rows_of_threads)
        rows_of_threads--;
    columns_of_threads = threads / rows_of_threads;
    matrix = malloc((size_t)(blocks * blocks) * sizeof *matrix);
    pthread_t *others = malloc((size_t)threads * sizeof *others);
    if (!matrix || !others || pthread_barrier_init(&barrier, NULL, (unsigned)threads))
        return 2;
    for (long row = 0; row < size; row++)
        for (long column = 0; column < size; column++)
            (*at(row / BLOCK, column / BLOCK))[row % BLOCK][column % BLOCK] = original(row, column, size);
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    for (long thread = 1; thread < threads; thread++)
        if (pthread_create(&others[thread], NULL, work, (void *)thread))
            return 2;
    work(NULL);
    for (long thread = 1; thread < threads; thread++)
        pthread_join(others[thread], NULL);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.6f\n", (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9);
    return is_right(size) ? 0 : 1;
}
