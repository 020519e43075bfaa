/* A complex one-dimensional FFT in six steps: the algorithm of SPLASH-2's kernel (Bailey, J. Supercomputing 4(1), 1990).
 * `fft LOG2N THREADS`: prints the seconds of a transform; exits with 1 if the inverse does not give the input back.
 *
 * The n points are a square matrix: transpose; a transform of each row, and twiddle factors; transpose; a transform of each row;
 * transpose. Each thread has rows of its own, and threads meet at barriers. */
#include <complex.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

typedef double complex point;

static long side, threads; /* of the square; a power of two */
static point *points, *other, *roots;
static double direction;
static pthread_barrier_t barrier;

static void transpose(const point *from, point *to, long first, long last) {
    for (long row = first; row < last; row++)
        for (long column = 0; column < side; column++)
            to[row * side + column] = from[column * side + row];
}

static point root(long power) {
    point value = roots[power];
    return direction < 0 ? value : conj(value);
}

/* In place, radix 2. */
static void transform_row(point *row) {
    for (long i = 1, j = 0; i < side; i++) {
        long bit = side >> 1;
        for (; j & bit; bit >>= 1)
            j ^= bit;
        j ^= bit;
        if (i < j) {
            point swapped = row[i];
            row[i] = row[j];
            row[j] = swapped;
        }
    }
    for (long length = 2; length <= side; length <<= 1)
        for (long start = 0; start < side; start += length)
            for (long i = 0; i < length / 2; i++) {
                point product = row[start + i + length / 2] * root(i * (side / length) * side);
                row[start + i + length / 2] = row[start + i] - product;
                row[start + i] += product;
            }
}

static void *work(void *argument) {
    long thread = (long)argument, first = side * thread / threads, last = side * (thread + 1) / threads;
    transpose(points, other, first, last);
    pthread_barrier_wait(&barrier);
    for (long row = first; row < last; row++) {
        transform_row(&other[row * side]);
        for (long column = 0; column < side; column++)
            other[row * side + column] *= root(row * column);
    }
    pthread_barrier_wait(&barrier);
    transpose(other, points, first, last);
    pthread_barrier_wait(&barrier);
    for (long row = first; row < last; row++)
        transform_row(&points[row * side]);
    pthread_barrier_wait(&barrier);
    transpose(points, other, first, last);
    return NULL;
}

/* Of all points, which are in `points` afterwards. */
static int transform(double sign) {
    pthread_t *others = malloc((size_t)threads * sizeof *others);
    direction = sign;
    if (!others)
        return 0;
    for (long thread = 1; thread < threads; thread++)
        if (pthread_create(&others[thread], NULL, work, (void *)thread))
            return 0;
    work(NULL);
    for (long thread = 1; thread < threads; thread++)
        pthread_join(others[thread], NULL);
    free(others);
    point *result = other;
    other = points;
    points = result;
    return 1;
}

static point input(long i) {
    return (double)(i * 7919 % 1009) / 1009 + (double)(i * 104729 % 997) / 997 * I;
}

int main(int count, char **words) {
    long log_of_points = count > 1 ? atol(words[1]) : 16, n = 1L << log_of_points;
    threads = count > 2 ? atol(words[2]) : 2;
    side = 1L << log_of_points / 2;
    if (log_of_points % 2 || !threads)
        return 2;
    points = malloc((size_t)n * sizeof *points);
    other = malloc((size_t)n * sizeof *other);
    roots = malloc((size_t)n * sizeof *roots);
    if (!points || !other || !roots || pthread_barrier_init(&barrier, NULL, (unsigned)threads))
        return 2;
    for (long i = 0; i < n; i++) {
        points[i] = input(i);
        roots[i] = cexp(-2 * acos(-1) * I * (double)i / (double)n);
    }
    struct timespec begun, ended;
    clock_gettime(CLOCK_MONOTONIC, &begun);
    if (!transform(-1))
        return 2;
    clock_gettime(CLOCK_MONOTONIC, &ended);
    printf("%.6f\n", (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) / 1e9);
    if (!transform(1))
        return 2;
    for (long i = 0; i < n; i++)
        if (cabs(points[i] / (double)n - input(i)) > 1e-9)
            return 1;
    return 0;
}
