"""Atomic operations are bracketed, with flags for whether they fence and whether they stored."""

from __future__ import annotations

from collections.abc import Callable

Run = Callable[..., list[str]]


def test_each_atomic_operation_is_recorded_with_what_the_instruction_does(recorded: Run, clang: str) -> None:
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
    events = recorded(source, "-O2", "-mcx16", clang=clang)
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


def test_what_libatomic_does_is_recorded_like_an_instruction(recorded: Run, clang: str) -> None:
    source = """
#include <stdatomic.h>
typedef struct { unsigned n; unsigned char b[4]; } loose;
struct n { _Atomic __int128 wide; loose small; };
int main(void) {
    struct n *n = (struct n *)pool; OPAQUE(n);
    loose one = {1, {2, 3, 4, 5}}, two = {2, {0}}, old;
    watch(pool, sizeof pool);
    __atomic_store(&n->small, &one, __ATOMIC_RELEASE);
    __atomic_exchange(&n->small, &two, &old, __ATOMIC_SEQ_CST);
    if (old.n != 1) return 1;
    if (!__atomic_compare_exchange(&n->small, &two, &one, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return 2;
    if (__atomic_compare_exchange(&n->small, &two, &one, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) return 3;
    atomic_store_explicit(&n->wide, 7, memory_order_release);
    atomic_fetch_add(&n->wide, 2);
    return atomic_load(&n->wide) != 9;
}
"""
    events = recorded(source, "-O1", "-latomic", clang=clang)
    assert [line for line in events if line.startswith("end")] == [
        "end @16 0100000002030405 locked=0 stored=1 instance=0 | n.small at main:9",
        "end @16 0200000000000000 locked=1 stored=1 instance=0 | n.small at main:10",
        "end @16 0100000002030405 locked=1 stored=1 instance=0 | n.small at main:12",
        "end @16 0100000002030405 locked=1 stored=0 instance=0 | n.small at main:13",
        "end @0 07000000000000000000000000000000 locked=0 stored=1 instance=0 | n.wide at main:14",
        "end @0 09000000000000000000000000000000 locked=1 stored=1 instance=0 | n.wide at main:15",
    ]


def test_locked_operations_elsewhere_are_fences_only_while_one_is_wanted(recorded: Run) -> None:
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
    assert recorded(source, "-O2") == [
        f"fence locked |{variable} at main:{line}"
        for line, variable in ((9, ""), (10, ""), (12, ""), (13, " other"), (14, ""))
    ]


def test_only_a_sequentially_consistent_fence_is_an_instruction(recorded: Run) -> None:
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
    assert recorded(source, "-O2") == ["fence mfence | at main:5", "fence mfence | at main:9"]


def test_fields_of_globals_and_fixed_addresses_are_operands_of_any_instruction(recorded: Run, clang: str) -> None:
    source = """
#include <sys/mman.h>
struct s { int a; int b; long c[4]; struct { char x; long y; } in; };
static struct s g; extern struct s weak_one __attribute__((weak)); struct s weak_one;
static char bytes[64] __attribute__((aligned(16)));
#define AT ((struct s *)0x10000000000)
int main(void) {
    long sum = 0;
    if (mmap(AT, 4096, PROT_READ | PROT_WRITE, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != (void *)AT) return 9;
    watch((void *)AT, 4096);
    __atomic_store_n(&g.b, 3, __ATOMIC_RELAXED);
    __atomic_store_n(&g.c[2], 4, __ATOMIC_SEQ_CST);
    sum += __atomic_fetch_add(&weak_one.in.y, 3, __ATOMIC_SEQ_CST);
    sum += __sync_bool_compare_and_swap(&g.b, 3, 4);
    __atomic_store_n((long *)(bytes + 8), 5, __ATOMIC_RELEASE);
    __atomic_store_n((int **)(bytes + 16), &g.b, __ATOMIC_RELEASE);
    __atomic_store_n((int *)((uintptr_t)&g + 8), 6, __ATOMIC_RELAXED);
    sum += __atomic_load_n(&g.b, __ATOMIC_RELAXED) + __atomic_load_n((long *)(bytes + 8), __ATOMIC_ACQUIRE);
    sum += *__atomic_load_n((int **)(bytes + 16), __ATOMIC_ACQUIRE) + weak_one.in.y + g.c[0] + g.c[2];
    AT->b = 1;
    __atomic_store_n(&AT->b, 2, __ATOMIC_RELAXED);
    __atomic_store_n(&AT->c[1], (long)&g.c[3], __ATOMIC_RELEASE);
    __atomic_fetch_add(&AT->in.y, 7, __ATOMIC_RELAXED);
    *(volatile int *)AT = (int)sum;
    return 0;
}
"""
    for level in ("-O0", "-O2"):
        events = [line.split(" |")[0].split(" instance")[0] for line in recorded(source, level, clang=clang)]
        pointer = events.pop(4)  # the address of the program is not the same in each run
        assert pointer.startswith("end @16 ")
        assert pointer.endswith(" locked=0 stored=1")
        assert events == [
            "store @4 01000000 flags=0",
            "begin @4",
            "end @4 02000000 locked=0 stored=1",
            "begin @16",
            "begin @48",
            "end @48 0700000000000000 locked=1 stored=1",
            "store @0 1b000000 flags=16",
        ]
