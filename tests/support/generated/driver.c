/* Executes the steps of a file, one line each: `thread operation arguments`. steps.py writes such files.
 *
 * Addresses are offsets into one reserved region, whose pages the steps map to pages of files. Bytes are in hex. */
#define _GNU_SOURCE
#include "crashcheck.h"
#include <fcntl.h>
#include <immintrin.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096
#define PAGES 64
#define THREADS 3
#define WORDS 16

static char *region;
static int handles[16];
static char *words[WORDS]; /* of the current step */
static int word_count;
static sem_t turn[THREADS], done;
static long elsewhere;

static void fail(const char *what)
{
    perror(what);
    exit(3);
}

static long number(int word) { return strtol(words[word], NULL, 10); }
static char *place(int word) { return region + number(word); }

static size_t bytes_of(int word, unsigned char *out)
{
    size_t size = strlen(words[word]) / 2;
    for (size_t at = 0; at < size; at++)
        sscanf(words[word] + 2 * at, "%2hhx", &out[at]);
    return size;
}

typedef uint16_t u16 __attribute__((aligned(1)));
typedef uint32_t u32 __attribute__((aligned(1)));
typedef uint64_t u64 __attribute__((aligned(1)));

__attribute__((target("avx"))) static void store32(char *to, const unsigned char *from, int nt)
{
    __m256i value = _mm256_loadu_si256((const __m256i *)from);
    nt ? _mm256_stream_si256((__m256i *)to, value) : _mm256_storeu_si256((__m256i *)to, value);
}

__attribute__((target("avx512f"))) static void store64(char *to, const unsigned char *from, int nt)
{
    __m512i value = _mm512_loadu_si512(from);
    nt ? _mm512_stream_si512((__m512i *)to, value) : _mm512_storeu_si512(to, value);
}

static void store(char *to, const unsigned char *from, size_t size)
{
    switch (size) {
    case 1: *to = (char)*from; break;
    case 2: *(u16 *)to = *(const u16 *)from; break;
    case 4: *(u32 *)to = *(const u32 *)from; break;
    case 8: *(u64 *)to = *(const u64 *)from; break;
    case 16: _mm_storeu_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from)); break;
    case 32: store32(to, from, 0); break;
    case 64: store64(to, from, 0); break;
#define FIXED(size) case size: memcpy(to, from, size); break;
    FIXED(3) FIXED(5) FIXED(6) FIXED(7) FIXED(9) FIXED(10) FIXED(11) FIXED(12) FIXED(13) FIXED(14) FIXED(15)
    default: fail("store");
    }
}

static void stream(char *to, const unsigned char *from, size_t size)
{
    switch (size) {
    case 4: _mm_stream_si32((int *)to, (int)*(const u32 *)from); break;
    case 8: _mm_stream_si64((long long *)to, (long long)*(const u64 *)from); break;
    case 16: _mm_stream_si128((__m128i *)to, _mm_loadu_si128((const __m128i *)from)); break;
    case 32: store32(to, from, 1); break;
    case 64: store64(to, from, 1); break;
    default: fail("nt");
    }
}

/* `lanes` holds a byte for each lane: all ones to store it. */
__attribute__((target("avx2"))) static void mask_avx2(char kind, char *to, const char *lanes, const unsigned char *from)
{
    __m128i half = _mm_loadu_si128((const __m128i *)from);
    __m256i whole = _mm256_loadu_si256((const __m256i *)from);
    int narrow;
    memcpy(&narrow, lanes, 4);
    __m128i low = _mm_loadl_epi64((const __m128i *)lanes), four = _mm_cvtsi32_si128(narrow);
    switch (kind) {
    case 'a': _mm_maskstore_epi32((int *)to, _mm_cvtepi8_epi32(low), half); break;
    case 'b': _mm256_maskstore_epi32((int *)to, _mm256_cvtepi8_epi32(low), whole); break;
    case 'c': _mm_maskstore_epi64((long long *)to, _mm_cvtepi8_epi64(four), half); break;
    case 'd': _mm256_maskstore_epi64((long long *)to, _mm256_cvtepi8_epi64(four), whole); break;
    case 'e': _mm256_maskstore_ps((float *)to, _mm256_cvtepi8_epi32(low), _mm256_castsi256_ps(whole)); break;
    case 'f': _mm_maskstore_pd((double *)to, _mm_cvtepi8_epi64(four), _mm_castsi128_pd(half)); break;
    }
}

__attribute__((target("avx512f,avx512bw,avx512vl"))) static void mask_avx512(char kind, char *to, uint64_t lanes,
                                                                              const unsigned char *from)
{
    __m512i value = _mm512_loadu_si512(from);
    switch (kind) {
    case 'A': _mm512_mask_storeu_epi8(to, (__mmask64)lanes, value); break;
    case 'B': _mm512_mask_storeu_epi16(to, (__mmask32)lanes, value); break;
    case 'C': _mm512_mask_storeu_epi32(to, (__mmask16)lanes, value); break;
    case 'D': _mm512_mask_storeu_epi64(to, (__mmask8)lanes, value); break;
    case 'E': _mm512_mask_compressstoreu_epi32(to, (__mmask16)lanes, value); break;
    case 'F': _mm512_mask_compressstoreu_epi64(to, (__mmask8)lanes, value); break;
    case 'G': _mm256_mask_storeu_epi8(to, (__mmask32)lanes, _mm512_castsi512_si256(value)); break;
    case 'H': _mm_mask_storeu_epi32(to, (__mmask8)lanes, _mm512_castsi512_si128(value)); break;
    }
}

static void masked(char kind, char *to, const char *text, const unsigned char *from)
{
    char lanes[64] = {0};
    uint64_t bits = 0;
    for (int lane = 0; text[lane]; lane++)
        if (text[lane] == '1')
            lanes[lane] = -1, bits |= 1ull << lane;
    if (kind == 'm')
        _mm_maskmoveu_si128(_mm_loadu_si128((const __m128i *)from), _mm_loadu_si128((const __m128i *)lanes), to);
    else if (kind >= 'a')
        mask_avx2(kind, to, lanes, from);
    else
        mask_avx512(kind, to, bits, from);
}

static void locked(const char *what, char *to, uint64_t value, int size)
{
#define EACH(type) { \
    type *at = (type *)to, wrong = (type)~*(volatile type *)to; \
    switch (*what) { \
    case 'x': __atomic_exchange_n(at, (type)value, __ATOMIC_SEQ_CST); break; \
    case 'a': __atomic_fetch_add(at, (type)value, __ATOMIC_SEQ_CST); break; \
    case 's': __atomic_store_n(at, (type)value, __ATOMIC_SEQ_CST); break; \
    case 'r': __atomic_store_n(at, (type)value, __ATOMIC_RELAXED); break; \
    case 'f': __atomic_compare_exchange_n(at, &wrong, (type)value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); break; \
    case 'c': wrong = *(volatile type *)to; \
        __atomic_compare_exchange_n(at, &wrong, (type)value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); break; \
    } break; }
    switch (size) {
    case 1: EACH(uint8_t)
    case 2: EACH(uint16_t)
    case 4: EACH(uint32_t)
    case 8: EACH(uint64_t)
    }
}

__attribute__((target("clwb"))) static void write_back(char *line) { _mm_clwb(line); }
__attribute__((target("clflushopt"))) static void flush_weakly(char *line) { _mm_clflushopt(line); }

static void open_file(void)
{
    int handle = (int)number(2), flags = O_RDWR;
    for (const char *flag = words[4]; *flag; flag++)
        flags |= *flag == 'c' ? O_CREAT : *flag == 't' ? O_TRUNC : *flag == 's' ? O_DSYNC : *flag == 'a' ? O_APPEND : 0;
    if (handles[handle])
        close(handles[handle]);
    if ((handles[handle] = open(words[3], flags, 0600)) < 0)
        fail(words[3]);
}

static void write_parts(void)
{
    struct iovec parts[WORDS];
    unsigned char data[WORDS][64];
    int many = 0;
    for (int word = 5; word < word_count; word++, many++)
        parts[many] = (struct iovec){data[many], bytes_of(word, data[many])};
    int fd = handles[number(2)];
    long offset = number(3);
    ssize_t written = -1;
    switch (*words[4]) {
    case 'p': written = many == 1 ? pwrite(fd, data[0], parts[0].iov_len, offset) : pwritev(fd, parts, many, offset); break;
    case 'v': written = lseek(fd, offset, SEEK_SET) < 0 ? -1 : writev(fd, parts, many); break;
    case 'w': written = lseek(fd, offset, SEEK_SET) < 0 ? -1 : write(fd, data[0], parts[0].iov_len); break;
    case 'd': written = pwritev2(fd, parts, many, offset, RWF_DSYNC); break;
    case 's': written = pwritev2(fd, parts, many, offset, RWF_SYNC); break;
    }
    for (int part = 0; part < many; part++)
        written -= (ssize_t)parts[part].iov_len;
    if (written)
        fail("write");
}

static int step(void)
{
    unsigned char data[256] = {0};
    const char *what = words[1];
#define IS(name) (strcmp(what, name) == 0)
    if (IS("open")) open_file();
    else if (IS("map")) {
        size_t size = (size_t)number(5) * PAGE;
        if (mmap(region + number(2) * PAGE, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, handles[number(3)],
                 number(4) * PAGE) == MAP_FAILED)
            fail("map");
    } else if (IS("unmap")) return munmap(region + number(2) * PAGE, (size_t)number(3) * PAGE);
    else if (IS("store")) { size_t size = bytes_of(3, data); store(place(2), data, size); }
    else if (IS("nt")) { size_t size = bytes_of(3, data); stream(place(2), data, size); }
    else if (IS("copy")) { size_t size = bytes_of(3, data); memcpy(place(2), data, size); }
    else if (IS("move")) { size_t size = bytes_of(3, data); memmove(place(2), data, size); }
    else if (IS("set")) memset(place(2), (int)number(4), (size_t)number(3));
    else if (IS("masked")) { bytes_of(5, data); masked(*words[2], place(3), words[4], data); }
    else if (IS("locked")) locked(words[2], place(3), strtoull(words[5], NULL, 10), (int)number(4));
    else if (IS("clwb")) write_back(place(2));
    else if (IS("clflushopt")) flush_weakly(place(2));
    else if (IS("clflush")) _mm_clflush(place(2));
    else if (IS("sfence")) _mm_sfence();
    else if (IS("mfence")) _mm_mfence();
    else if (IS("lock")) __atomic_fetch_add(&elsewhere, 1, __ATOMIC_SEQ_CST);
    else if (IS("write")) write_parts();
    else if (IS("truncate")) return ftruncate(handles[number(2)], number(3));
    else if (IS("allocate")) return posix_fallocate(handles[number(2)], number(3), number(4));
    else if (IS("msync")) return msync(place(2), (size_t)number(3), MS_SYNC);
    else if (IS("async")) return msync(place(2), (size_t)number(3), MS_ASYNC);
    else if (IS("fsync")) return fsync(handles[number(2)]);
    else if (IS("fdatasync")) return fdatasync(handles[number(2)]);
    else if (IS("dirsync")) return fsync(handles[0]);
    else if (IS("unlink")) return unlink(words[2]);
    else if (IS("rename")) return rename(words[2], words[3]);
    else if (IS("begin")) crashcheck_op_begin();
    else if (IS("end")) crashcheck_op_end();
    else if (IS("print")) return write(1, "x", 1) - 1;
    else fail(what);
    return 0;
}

static void do_step(void)
{
    if (step())
        fail(words[1]);
}

static void *worker(void *number)
{
    for (sem_t *mine = &turn[(intptr_t)number];; sem_post(&done)) {
        sem_wait(mine);
        if (!word_count)
            return NULL;
        do_step();
    }
}

/* Changes into the folder argv[1] and executes the steps of the file argv[2]. */
int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    char line[1 << 14], *rest;
    FILE *steps = argc == 3 ? fopen(argv[2], "r") : NULL;
    if (!steps || chdir(argv[1]) || (handles[0] = open(".", O_RDONLY | O_DIRECTORY)) < 0)
        fail("driver POOL STEPS");
    region = mmap(NULL, PAGES * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED || sem_init(&done, 0, 0))
        fail("driver");
    for (intptr_t thread = 1; thread < THREADS; thread++)
        if (sem_init(&turn[thread], 0, 0) || pthread_create(&threads[thread], NULL, worker, (void *)thread))
            fail("thread");
    while (fgets(line, sizeof line, steps)) {
        word_count = 0;
        for (char *word = strtok_r(line, " \n", &rest); word && word_count < WORDS; word = strtok_r(NULL, " \n", &rest))
            words[word_count++] = word;
        if (number(0)) {
            sem_post(&turn[number(0)]);
            sem_wait(&done);
        } else
            do_step();
    }
    word_count = 0;
    for (int thread = 1; thread < THREADS; thread++) {
        sem_post(&turn[thread]);
        pthread_join(threads[thread], NULL);
    }
    return 0;
}
