"""Atomic operations are bracketed, with flags for whether they fence and whether they stored."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., list[str]]


def test_each_atomic_operation_says_what_the_instruction_does(told: Run, clang: str) -> None:
    source = """
#include <stdatomic.h>
struct n { _Atomic long a; _Atomic int b; __int128 wide; _Atomic(int *) p; };
int main(void) {
    struct n *n = (struct n *)pool; OPAQUE(n);
    watch(pool, sizeof pool);
    atomic_store(&n->a, 1);
    atomic_store_explicit(&n->a, 2, memory_order_release);
    atomic_store_explicit(&n->b, 3, memory_order_relaxed);
    atomic_fetch_add(&n->a, 5);
    atomic_fetch_or_explicit(&n->b, 8, memory_order_relaxed);
    atomic_exchange(&n->b, 9);
    long expected = 7;
    if (!atomic_compare_exchange_strong(&n->a, &expected, 10)) return 1;
    if (atomic_compare_exchange_strong(&n->a, &expected, 11)) return 2;
    __sync_bool_compare_and_swap(&n->wide, 0, 1);
    atomic_store(&n->p, (int *)8);
    return 0;
}
"""
    events = told(source, "-O2", "-mcx16", clang=clang)
    assert [line for line in events if line.startswith("begin")] == [
        f"begin @{offset}" for offset in (0, 0, 8, 0, 8, 8, 0, 0, 16, 32)
    ]
    assert [line for line in events if not line.startswith("begin")] == [
        "end @0 0100000000000000 locked=1 stored=1 instance=0 | n.a at main:7",
        "end @0 0200000000000000 locked=0 stored=1 instance=0 | n.a at main:8",
        "end @8 03000000 locked=0 stored=1 instance=0 | n.b at main:9",
        "end @0 0700000000000000 locked=1 stored=1 instance=0 | n.a at main:10",
        "end @8 0b000000 locked=1 stored=1 instance=0 | n.b at main:11",
        "end @8 09000000 locked=1 stored=1 instance=0 | n.b at main:12",
        "end @0 0a00000000000000 locked=1 stored=1 instance=0 | n.a at main:14",
        "end @0 0a00000000000000 locked=1 stored=0 instance=0 | n.a at main:15",
        "end @16 01000000000000000000000000000000 locked=1 stored=1 instance=0 | n.wide at main:16",
        "end @32 0800000000000000 locked=1 stored=1 instance=0 | n.p at main:17",
    ]


def test_locked_operations_elsewhere_are_fences_only_while_one_is_wanted(told: Run) -> None:
    source = """
static long other;
int main(void) {
    long *o = &other; OPAQUE(o);
    long local = 0;
    watch(pool, sizeof pool);
    __atomic_fetch_add(o, 1, __ATOMIC_SEQ_CST);
    wanted(1);
    __atomic_fetch_add(o, 1, __ATOMIC_RELAXED);
    __atomic_store_n(o, 1, __ATOMIC_SEQ_CST);
    __atomic_store_n(o, 1, __ATOMIC_RELEASE);
    __atomic_fetch_add(&local, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&other, 1, __ATOMIC_RELAXED);
    __asm__ volatile("lock; addl $0,0(%%rsp)" ::: "memory", "cc");
    wanted(0);
    __asm__ volatile("lock; addl $0,0(%%rsp)" ::: "memory", "cc");
    return 0;
}
"""
    assert told(source, "-O2") == [
        f"fence locked |{variable} at main:{line}"
        for line, variable in ((9, ""), (10, ""), (12, ""), (13, " other"), (14, ""))
    ]


def test_only_a_sequentially_consistent_fence_is_an_instruction(told: Run) -> None:
    source = """
#include <stdatomic.h>
int main(void) {
    watch(pool, sizeof pool);
    atomic_thread_fence(memory_order_seq_cst);
    atomic_thread_fence(memory_order_acq_rel);
    atomic_thread_fence(memory_order_release);
    atomic_signal_fence(memory_order_seq_cst);
    __sync_synchronize();
    unwatch();
    atomic_thread_fence(memory_order_seq_cst);
    return 0;
}
"""
    assert told(source, "-O2") == ["fence mfence | at main:5", "fence mfence | at main:9"]
