/* The state of an explored process, as a hash: two processes with equal hashes behave the same from then on. */
#ifndef CRASHCHECK_EXPLORER_STATE_H
#define CRASHCHECK_EXPLORER_STATE_H

#include "explorer/exploration.h"

HIDDEN void cc_explore_stir_bytes(uint64_t hash[2], const void *from, size_t size);
HIDDEN void cc_explore_hash_state(uint64_t hash[2], const ucontext_t *context, uint32_t granule);
HIDDEN bool cc_explore_is_unchanged(const struct mapping *in); /* whether it shows the file's bytes still; it is lost by that */
HIDDEN bool cc_explore_met(const uint64_t hash[2]); /* whether a process was in this state before; if not, it is now */

INLINE void stir(uint64_t hash[2], uint64_t word)
{
    uint64_t one = hash[0] ^ word, two = hash[1] + word;
    hash[0] = (one << 29 | one >> 35) * 0x9e3779b97f4a7c15ull + 0xc2b2ae3d27d4eb4full;
    two = (two ^ two >> 32) * 0xd6e8feb86659fd93ull;
    hash[1] = two << 23 | two >> 41;
}

#endif
