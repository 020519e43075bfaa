"""A ledger of three accounts in a mapped file, small enough to be built and searched in a second, in any version."""

from __future__ import annotations

HEADER = """#include <stdint.h>
struct account {
    uint64_t owner;
    PADDING
    uint64_t used;
} __attribute__((aligned(128)));
"""
APART = "char padding[64];"
SOURCE = """#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <emmintrin.h>
#include "ledger.h"
#include "crashcheck.h"

static void persist(void *at) {
    _mm_clflush(at);
    _mm_sfence();
}

static void put(struct account *account, uint64_t owner) {
    account->owner = owner;
    FIRST
    account->used = 1;
    persist(&account->used);
}

int main(int argc, char **argv) {
    int fd = open(argv[2], O_RDWR | O_CREAT, 0644);
    if (argc != 3 || fd < 0 || ftruncate(fd, 4096) != 0)
        return 2;
    struct account *accounts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    for (int i = 0; i < 3; i++) {
        if (strcmp(argv[1], "run") == 0) {
            CRASHCHECK_OP_BEGIN();
            put(&accounts[i], 7 + i);
            CRASHCHECK_OP_END();
        } else if (accounts[i].used && !accounts[i].owner) {
            printf("account %d is used and has no owner\\n", i);
            return 1;
        }
    }
    return 0;
}
"""
CONFIG = """[build]
command = "crashcheck-cc -O1 -g -o ledger ledger.c && echo built >> built"
[setup]
command = "./ledger check {pool}/ledger.pm"
[workload]
command = "./ledger run {pool}/ledger.pm"
[pool]
files = ["ledger.pm"]
[check]
command = "./ledger check {pool}/ledger.pm"
[model]
name = "px86"
"""
PERSISTED = "persist(&account->owner);"


def files(first: str, padding: str = APART) -> dict[str, str]:
    """A version. `first` follows the store of the owner; `padding` is between the two fields."""
    return {
        "ledger.c": SOURCE.replace("FIRST", first),
        "ledger.h": HEADER.replace("PADDING", padding),
        "crashcheck.toml": CONFIG,
        ".gitignore": "/ledger\n/built\n/out.json\n",
    }
