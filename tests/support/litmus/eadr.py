"""Litmus tests of persistent memory whose caches persist too."""

from __future__ import annotations

from crashcheck.runtime.trace_format import SyncKind
from support.litmus.case import ALL, IN_ORDER, P, Q, X, Y, Z, litmus, one
from support.tracing import TraceBuilder


@litmus("eadr", "eadr", (X, Y), IN_ORDER)
def stores_persist_in_order(t: TraceBuilder) -> None:
    one(t, X)
    one(t, Y)


@litmus("eadr", "eadr", (X, Z), ALL)
def wide_store_may_be_caught_half_way(t: TraceBuilder) -> None:
    t.store("a", X, 16, b"\1" * 16)


@litmus("eadr", "eadr", ("acked", X), {(0, 0), (0, 1), (1, 1)})
def a_visible_store_is_durable(t: TraceBuilder) -> None:
    one(t, X)
    t.end(1)


@litmus("eadr", "eadr", (Y, X), IN_ORDER)
def flushes_do_nothing(t: TraceBuilder) -> None:
    one(t, Y)
    one(t, X)
    t.clwb("a", X)


@litmus("eadr", "eadr", (X, Y), ALL)
def nt_store_waits_for_a_fence(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    one(t, Y)


@litmus("eadr", "eadr", (X, Y), IN_ORDER)
def nt_store_fence_orders(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    t.sfence()
    one(t, Y)


@litmus("eadr", "eadr", ("acked", X), {(0, 0), (0, 1), (1, 1)})
def synced_write_is_durable(t: TraceBuilder) -> None:
    t.write("a", X, b"\1" * 8)
    t.fdatasync("a")
    t.end(1)


@litmus(
    "eadr",
    "eadr",
    ("acked", X, P, Q),
    {(0, x, p, q) for x in (0, 1) for p in (0, 1) for q in (0, 1)} | {(1, x, 1, q) for x in (0, 1) for q in (0, 1)},
)
def write_waits_for_a_sync_of_its_page(t: TraceBuilder) -> None:
    t.write("a", X, b"\1" * 8)
    t.write("a", Q, b"\1" * 8)
    t.write("a", P, b"\1" * 8)
    t.sync(SyncKind.ODSYNC, "a", P, 8)
    t.end(1)


@litmus("eadr", "eadr", (X, Y), IN_ORDER)
def nt_store_follows_what_was_visible(t: TraceBuilder) -> None:
    one(t, X)
    t.nt_store("a", Y, 8, 1)


@litmus("eadr", "eadr", ("acked", X), {(0, 0), (0, 1), (1, 0), (1, 1)})
def unfenced_nt_store_is_lost_after_the_promise(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    t.end(1)


@litmus("eadr", "eadr", ("acked", X), {(0, 0), (0, 1), (0, 2), (1, 2)})
def fenced_nt_store_takes_what_it_overwrote_along(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    with t.thread(2):
        t.nt_store("a", X, 8, 2)
        t.sfence()
    t.end(1)


@litmus("eadr", "eadr", (Y, X, X + 1, Z), {(0, 0, 0, 0), (0, 1, 1, 0), (0, 2, 1, 0), (1, 2, 1, 0), (1, 2, 1, 1)})
def what_was_visible_before_a_fenced_nt_store_takes_what_it_overwrote_along(t: TraceBuilder) -> None:
    with t.thread(2):
        t.nt_store("a", X, 8, 0x0101)
    t.store("a", X, 1, 2)
    t.nt_store("a", Y, 8, 1)
    t.sfence()
    one(t, Z)


@litmus("eadr", "eadr", ("acked", "size"), {(0, 3 * 4096), (0, 4096), (1, 4096)})
def size_change_before_a_promise(t: TraceBuilder) -> None:
    t.truncate("a", 4096)
    t.end(1)


@litmus("eadr", "eadr", ("acked", X), {(0, 0), (0, 1), (1, 0), (1, 1)})
def write_does_not_wait_for_a_sync_of_another_file(t: TraceBuilder) -> None:
    t.file("b", existed=False)
    t.write("a", X, b"\1" * 8)
    t.fdatasync("b")
    t.end(1)


@litmus("eadr", "eadr", ("acked", X), {(0, 0), (0, 1), (1, 1)})
def sync_covers_writes_of_every_file(t: TraceBuilder) -> None:
    t.write("a", X, b"\1" * 8)
    t.sync(SyncKind.SYNC)
    t.end(1)
