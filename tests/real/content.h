/* What the database holds after its first k transactions: the rule that the workload writes by and the check recomputes from.
 *
 * Transaction i (from 1) puts five keys whose values depend on i alone and deletes one:
 *   "count"        the number i: the check reads k from it
 *   "slot/SS"      SS = i mod SLOTS, 40 bytes; overwritten every SLOTS transactions
 *   "log/NNNNNN"   NNNNNN = i, 24..151 bytes; of many sizes, so that pages fill and split
 *   "sum"          a sum over all values that transactions 1..i wrote to slots
 *   "large"        only when i is a multiple of LARGE_EVERY: 5,000 bytes, more than a page
 *   "log/OOOOOO"   deleted, OOOOOO = i - KEEP; so that space is reused
 */
#ifndef CONTENT_H
#define CONTENT_H

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define SLOTS 8u
#define KEEP 60u
#define LARGE_EVERY 20u
#define LARGE_BYTES 5000u
#define VALUE_MAX LARGE_BYTES
#define KEY_MAX 16

static inline uint64_t content_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u; /* splitmix64 */
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline size_t content_fill(unsigned char *out, size_t size, uint64_t seed)
{
    size_t i;
    for (i = 0; i < size; i++) {
        if (i % 8 == 0)
            seed = content_mix(seed);
        out[i] = (unsigned char)(seed >> (8 * (i % 8)));
    }
    return size;
}

static inline size_t content_slot(unsigned char *out, uint64_t transaction)
{
    return content_fill(out, 40, transaction * 4 + 1);
}

static inline size_t content_log(unsigned char *out, uint64_t transaction)
{
    return content_fill(out, 24 + content_mix(transaction) % 128, transaction * 4 + 2);
}

static inline size_t content_large(unsigned char *out, uint64_t transaction)
{
    return content_fill(out, LARGE_BYTES, transaction * 4 + 3);
}

/* What transaction i adds to "sum". */
static inline uint64_t content_term(uint64_t transaction)
{
    unsigned char bytes[VALUE_MAX];
    uint64_t first;
    content_slot(bytes, transaction);
    memcpy(&first, bytes, sizeof first);
    return first;
}

/* The value that `name` must have after k transactions; 0 if it must not exist. */
static inline size_t content_expected(const char *name, uint64_t k, unsigned char *out)
{
    uint64_t i, sum = 0;
    unsigned number;
    char canonical[KEY_MAX];

    if (k == 0)
        return 0;
    if (strcmp(name, "count") == 0) {
        memcpy(out, &k, sizeof k);
        return sizeof k;
    }
    if (strcmp(name, "sum") == 0) {
        for (i = 1; i <= k; i++)
            sum += content_term(i);
        memcpy(out, &sum, sizeof sum);
        return sizeof sum;
    }
    if (strcmp(name, "large") == 0)
        return k < LARGE_EVERY ? 0 : content_large(out, k - k % LARGE_EVERY);
    if (sscanf(name, "slot/%u", &number) == 1 && number < SLOTS) {
        uint64_t last = k - (k + SLOTS - number) % SLOTS;
        snprintf(canonical, sizeof canonical, "slot/%02u", number);
        return last == 0 || last > k || strcmp(name, canonical) != 0 ? 0 : content_slot(out, last);
    }
    if (sscanf(name, "log/%u", &number) == 1 && number <= k && number + KEEP > k) {
        snprintf(canonical, sizeof canonical, "log/%06u", number);
        return strcmp(name, canonical) != 0 ? 0 : content_log(out, number);
    }
    return 0;
}

/* How many keys there are after k transactions. */
static inline uint64_t content_keys(uint64_t k)
{
    if (k == 0)
        return 0;
    return 2 + (k < SLOTS ? k : SLOTS) + (k < KEEP ? k : KEEP) + (k >= LARGE_EVERY);
}

/* The least number of transactions that must be there after `acked` were acknowledged:
 *   durable        all of them
 *   all-but-last   the last one may be missing
 *   consistent     any number may be missing, but what is there must be whole
 */
static inline int content_promise(const char *name, uint64_t acked, uint64_t *least)
{
    if (strcmp(name, "durable") == 0)
        *least = acked;
    else if (strcmp(name, "all-but-last") == 0)
        *least = acked == 0 ? 0 : acked - 1;
    else if (strcmp(name, "consistent") == 0)
        *least = 0;
    else
        return 0;
    return 1;
}

#endif
