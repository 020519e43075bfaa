/* The ledger's program: `create FILE` makes a ledger, `run FILE` moves money, `recover FILE` rolls an unfinished transfer back
 * and fails if money appeared or vanished. */
#include "ledger.h"

#include <fcntl.h>
#include <emmintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TRANSFERS 2

static struct ledger *open_ledger(const char *path, int flags) {
    int fd = open(path, O_RDWR | flags, 0644);
    if (fd < 0 || (flags && ftruncate(fd, sizeof(struct ledger)) != 0)) {
        perror(path);
        exit(2);
    }
    struct ledger *ledger = mmap(NULL, sizeof *ledger, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ledger == MAP_FAILED) {
        perror("mmap");
        exit(2);
    }
    close(fd);
    return ledger;
}

static void persist(const void *line) {
    _mm_clflush(line);
    _mm_sfence();
}

static void save(struct ledger *ledger, int slot, uint64_t account) {
    ledger->log[slot].account = account;
    ledger->log[slot].balance = ledger->accounts[account].balance;
    persist(&ledger->log[slot]);
}

static void transfer(struct ledger *ledger, uint64_t from, uint64_t to, uint64_t amount) {
    save(ledger, 0, from);
    save(ledger, 1, to);
    ledger->logged = 2;
    persist(&ledger->logged);
    ledger->accounts[from].balance -= amount;
    persist(&ledger->accounts[from]);
    ledger->accounts[to].balance += amount;
    persist(&ledger->accounts[to]);
    ledger->logged = 0;
    persist(&ledger->logged);
}

static void recover(struct ledger *ledger) {
    while (ledger->logged > 0) {
        const struct saved *saved = &ledger->log[ledger->logged - 1];
        ledger->accounts[saved->account].balance = saved->balance;
        persist(&ledger->accounts[saved->account]);
        ledger->logged--;
        persist(&ledger->logged);
    }
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: %s create|run|recover FILE\n", argv[0]);
        return 2;
    }
    struct ledger *ledger = open_ledger(argv[2], strcmp(argv[1], "create") == 0 ? O_CREAT : 0);
    if (strcmp(argv[1], "create") == 0) {
        for (int i = 0; i < ACCOUNTS; i++)
            ledger->accounts[i].balance = TOTAL / ACCOUNTS;
        return msync(ledger, sizeof *ledger, MS_SYNC) == 0 ? 0 : 2;
    }
    recover(ledger);
    uint64_t total = 0;
    for (int i = 0; i < ACCOUNTS; i++)
        total += ledger->accounts[i].balance;
    if (total != TOTAL) {
        fprintf(stderr, "the accounts hold %llu, not %d\n", (unsigned long long)total, TOTAL);
        return 1;
    }
    if (strcmp(argv[1], "run") == 0)
        for (uint64_t i = 0; i < TRANSFERS; i++)
            transfer(ledger, i % ACCOUNTS, (i + 1) % ACCOUNTS, 30);
    return 0;
}
