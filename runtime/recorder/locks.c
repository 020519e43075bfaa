/* Locks that a signal handler of their holder can never meet. */
#include <signal.h>

#include "recorder/locks.h"

#define KERNEL_BLOCKABLE (~0ull & ~(1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1)))

uint64_t cc_block_signals(void)
{
    uint64_t blocked = KERNEL_BLOCKABLE, old = 0;
    raw4(SYS_rt_sigprocmask, SIG_BLOCK, (long)&blocked, (long)&old, sizeof old);
    return old;
}

void cc_restore_signals(uint64_t mask)
{
    raw4(SYS_rt_sigprocmask, SIG_SETMASK, (long)&mask, 0, sizeof mask);
}

uint64_t cc_lock(struct quiet_lock *lock)
{
    uint64_t signals = cc_block_signals();
    for (uint32_t turns = 0;; turns++) {
        uint32_t free = 0;
        if (atomic_compare_exchange_weak_explicit(&lock->held, &free, 1, memory_order_acquire, memory_order_relaxed))
            return signals;
        if (turns < 100)
            __builtin_ia32_pause();
        else
            raw3(SYS_sched_yield, 0, 0, 0);
    }
}

void cc_unlock(struct quiet_lock *lock, uint64_t signals)
{
    atomic_store_explicit(&lock->held, 0, memory_order_release);
    cc_restore_signals(signals);
}
