/* The volume's program: `create FILE` makes a volume, `run FILE` changes its block size a few times, `recover FILE ACKED` opens it
 * after a crash, and fails if an acknowledged change is lost. */
#include "header.h"

#include <fcntl.h>
#include <emmintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#ifdef __has_include
#if __has_include("crashcheck.h")
#include "crashcheck.h"
#endif
#endif
#ifndef CRASHCHECK_OP_BEGIN
#define CRASHCHECK_OP_BEGIN() ((void)0)
#define CRASHCHECK_OP_END() ((void)0)
#endif

#define CHANGES 6

static struct volume *open_volume(const char *path, int flags) {
    int fd = open(path, O_RDWR | flags, 0644);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(struct volume)) != 0)) {
        perror(path);
        exit(2);
    }
    struct volume *volume = mmap(NULL, sizeof *volume, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (volume == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    close(fd);
    return volume;
}

static void write_header(struct header *header, uint64_t generation, uint64_t block_size) {
    header->generation = generation;
    header->block_size = block_size;
    header->checksum = checksum_of(generation, block_size);
    _mm_clflush(header);
    _mm_sfence();
}

static int whole(const struct header *header) {
    return header->checksum == checksum_of(header->generation, header->block_size);
}

/* The newer whole header, or NULL if there is none; *blocks becomes the number of blocks. */
static const struct header *recover(const struct volume *volume, uint64_t *blocks) {
    const struct header *newest = NULL;
    for (int i = 0; i < 2; i++) {
        const struct header *header = &volume->headers[i];
        if (newest && newest->generation > header->generation)
            continue;
        *blocks = VOLUME_BYTES / header->block_size;
        if (whole(header))
            newest = header;
    }
    return newest;
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s create|run|recover FILE [ACKED]\n", argv[0]);
        return 2;
    }
    struct volume *volume = open_volume(argv[2], strcmp(argv[1], "create") == 0 ? O_CREAT : 0);
    if (strcmp(argv[1], "create") == 0) {
        write_header(&volume->headers[0], 1, 512);
        return msync(volume, sizeof *volume, MS_SYNC) == 0 ? 0 : 2;
    }
    uint64_t blocks = 0;
    const struct header *newest = recover(volume, &blocks);
    if (!newest) {
        fprintf(stderr, "no header is whole\n");
        return 1;
    }
    if (strcmp(argv[1], "recover") == 0) {
        uint64_t acked = argc > 3 ? strtoull(argv[3], NULL, 10) : 0;
        if (newest->generation < 1 + acked) {
            fprintf(stderr, "%llu changes were acknowledged, generation %llu was recovered\n", (unsigned long long)acked,
                    (unsigned long long)newest->generation);
            return 1;
        }
        return 0;
    }
    for (int i = 1; i <= CHANGES; i++) {
        uint64_t generation = newest->generation + 1;
        struct header *older = &volume->headers[newest == &volume->headers[0]];
        CRASHCHECK_OP_BEGIN();
        write_header(older, generation, 512ULL << i);
        CRASHCHECK_OP_END();
        newest = older;
    }
    return 0;
}
