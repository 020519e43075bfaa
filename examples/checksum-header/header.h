/* A volume whose header is kept twice. An update writes the older copy; the checksum detects a torn copy. */
#ifndef HEADER_H
#define HEADER_H

#include <stdint.h>

#define LINE 64
#define VOLUME_BYTES 65536

struct header {
    uint64_t generation; /* the copy with the higher one counts, if it is whole */
    uint64_t block_size;
    uint64_t checksum;
} __attribute__((aligned(LINE)));

struct volume {
    struct header headers[2];
};

static inline uint64_t checksum_of(uint64_t generation, uint64_t block_size) {
    return (generation * 0x9e3779b97f4a7c15ULL) ^ (block_size * 0xc2b2ae3d27d4eb4fULL) ^ 0x5851f42d4c957f2dULL;
}

#endif
