/* A ledger with an undo log: a transfer saves two balances, changes them, and drops the log. Recovery puts them back. */
#ifndef LEDGER_H
#define LEDGER_H

#include <stdint.h>

#define LINE 64
#define ACCOUNTS 3
#define TOTAL 300

struct account {
    uint64_t balance;
} __attribute__((aligned(LINE)));

struct saved {
    uint64_t account;
    uint64_t balance;
} __attribute__((aligned(LINE)));

struct ledger {
    uint64_t logged; /* how many of the saved balances count */
    struct saved log[2];
    struct account accounts[ACCOUNTS];
};

#endif
