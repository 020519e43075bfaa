"""Litmus tests of persistent memory with volatile caches."""

from __future__ import annotations

from crashcheck.runtime.trace_format import FenceKind, FlushKind, StoreFlag, SyncKind
from support.litmus.case import ALL, IN_ORDER, P, W, X, Y, Z, litmus, one
from support.tracing import TraceBuilder

# Rule 1


@litmus("px86", "1", (X, Z), IN_ORDER)
def same_line_in_order(t: TraceBuilder) -> None:
    one(t, X)
    one(t, Z)


@litmus("px86", "1", (X,), {(0,), (1,), (2,)})
def same_word_in_order(t: TraceBuilder) -> None:
    one(t, X, 1)
    one(t, X, 2)


@litmus("px86", "1", (X, X + 7), {(0, 0), (1, 1)})
def aligned_word_is_atomic(t: TraceBuilder) -> None:
    t.store("a", X, 8, b"\1" * 8)


@litmus("px86", "1", (X, Z), ALL)
def wide_store_pieces_unordered(t: TraceBuilder) -> None:
    t.store("a", X, 16, b"\1" * 16)


@litmus("px86", "1", (X, X + 7, Z, W), {(a, a, 0, c) for a in (0, 1) for c in (0, 1)})
def words_of_a_masked_store_unordered(t: TraceBuilder) -> None:
    t.store("a", X, 8, b"\1" * 8)
    t.store("a", W, 8, 1, int(StoreFlag.JOINED))


@litmus("px86", "1", (4, 8), ALL)
def word_across_a_boundary_tears(t: TraceBuilder) -> None:
    t.store("a", 4, 8, b"\1" * 8)


@litmus(
    "px86",
    "1",
    (W, X, Z, 24),
    {(0, 0, 0, 0), (1, 0, 0, 0), (1, 1, 0, 0), (1, 0, 1, 0), (1, 1, 1, 0), (1, 1, 1, 1)},
)
def wide_store_between_narrow_ones(t: TraceBuilder) -> None:
    one(t, W)
    t.store("a", X, 16, b"\1" * 16)
    one(t, 24)


# Rule 2


@litmus("px86", "2", (X, Y), ALL)
def different_lines_unordered(t: TraceBuilder) -> None:
    one(t, X)
    one(t, Y)


@litmus("px86", "2", (56, 64), ALL)
def wide_store_across_lines(t: TraceBuilder) -> None:
    t.store("a", 56, 16, b"\1" * 16)


# Rule 3


@litmus("px86", "3", (X, Y), IN_ORDER)
def clwb_sfence_orders(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    t.sfence()
    one(t, Y)


@litmus("px86", "3", (X, Y), IN_ORDER)
def clflushopt_mfence_orders(t: TraceBuilder) -> None:
    one(t, X)
    t.clflushopt("a", X)
    t.mfence()
    one(t, Y)


@litmus("px86", "3", (X, Y), ALL)
def clwb_without_fence(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    one(t, Y)


@litmus("px86", "3", (X, Y), ALL)
def fence_without_flush(t: TraceBuilder) -> None:
    one(t, X)
    t.sfence()
    one(t, Y)


@litmus("px86", "3", (X, Y), ALL)
def flush_before_the_store(t: TraceBuilder) -> None:
    t.clwb("a", X)
    one(t, X)
    t.sfence()
    one(t, Y)


@litmus("px86", "3", (X, Z, Y), {(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 0, 1), (1, 1, 1)})
def flush_does_not_cover_later_stores_to_the_line(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    one(t, Z)
    t.sfence()
    one(t, Y)


@litmus("px86", "3", (X, Y), ALL)
def fence_of_another_thread(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    with t.thread(2):
        t.sfence()
    one(t, Y)


@litmus("px86", "3", (X, Y), IN_ORDER)
def flush_covers_stores_of_all_threads(t: TraceBuilder) -> None:
    one(t, X)
    with t.thread(2):
        t.clwb("a", X)
        t.sfence()
        one(t, Y)


@litmus("px86", "3", (X, Y), IN_ORDER)
def fence_orders_stores_of_all_threads(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    t.sfence()
    with t.thread(2):
        one(t, Y)


@litmus("px86", "3", ("acked", X), {(0, 0), (0, 1), (1, 1)})
def flushed_and_fenced_is_durable(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    t.sfence()
    t.end(1)


@litmus("px86", "3", ("acked", X), {(0, 0), (0, 1), (1, 0), (1, 1)})
def unflushed_is_lost_after_the_promise(t: TraceBuilder) -> None:
    one(t, X)
    t.end(1)


@litmus("px86", "3", (X, Y, 128), {(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (1, 1, 1)})
def flush_of_a_range_covers_each_line_it_touches(t: TraceBuilder) -> None:
    one(t, X)
    one(t, Y)
    t.flush(FlushKind.CLWB, "a", 63, 2)
    t.sfence()
    one(t, 128)


# Rule 4


@litmus("px86", "4", (X, Y), IN_ORDER)
def clflush_needs_no_fence(t: TraceBuilder) -> None:
    one(t, X)
    t.clflush("a", X)
    one(t, Y)


@litmus("px86", "4", ("acked", X), {(0, 0), (0, 1), (1, 1)})
def clflush_is_durable_at_once(t: TraceBuilder) -> None:
    with t.thread(2):
        one(t, X)
    t.clflush("a", X)
    t.end(1)


@litmus("px86", "4", (X, Y), ALL)
def clflush_is_no_fence_for_clwb(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    t.clflush("a", 128)
    one(t, Y)


@litmus("px86", "4", (X, Y), ALL)
def clflush_is_no_fence_for_nt(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    t.clflush("a", X)
    one(t, Y)


# Rule 5


@litmus("px86", "5", (X, Z), ALL)
def nt_stores_to_one_line_unordered(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    t.nt_store("a", Z, 8, 1)


@litmus("px86", "5", (X, Z), ALL)
def nt_store_passes_a_store_to_its_line(t: TraceBuilder) -> None:
    one(t, X)
    t.nt_store("a", Z, 8, 1)


@litmus("px86", "5", (X, Y), IN_ORDER)
def nt_store_sfence_orders(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    t.sfence()
    one(t, Y)


@litmus("px86", "5", ("acked", X), {(0, 0), (0, 1), (1, 1)})
def nt_store_sfence_is_durable(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    t.sfence()
    t.end(1)


@litmus("px86", "5", (X, Y), ALL)
def nt_store_and_fence_of_another_thread(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    with t.thread(2):
        t.sfence()
    one(t, Y)


@litmus("px86", "5", (X, Y), ALL)
def nt_store_is_not_covered_by_a_flush(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    with t.thread(2):
        t.clwb("a", X)
        t.sfence()
    one(t, Y)


@litmus("px86", "5", (X,), {(0,), (1,), (2,)})
def nt_store_after_a_store_to_the_same_word(t: TraceBuilder) -> None:
    one(t, X, 1)
    t.nt_store("a", X, 8, 2)


@litmus("px86", "5", (X, Z), {(0, 0), (1, 0), (2, 0), (2, 1)})
def store_after_an_nt_store_to_the_same_word(t: TraceBuilder) -> None:
    t.nt_store("a", X, 8, 1)
    one(t, X, 2)
    one(t, Z)


@litmus("px86", "5", (Z, X, Y), {(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 2, 0), (1, 2, 1)})
def fenced_nt_store_takes_what_it_overwrote_along(t: TraceBuilder) -> None:
    one(t, Z)
    one(t, X, 1)
    t.nt_store("a", X, 8, 2)
    t.sfence()
    one(t, Y)


# Rule 6


@litmus("px86", "6", (X, Y), IN_ORDER)
def clwb_then_cas_orders(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    t.locked_store("a", Y, 8, 1)


@litmus("px86", "6", (X, Y), ALL)
def cas_without_clwb(t: TraceBuilder) -> None:
    one(t, X)
    t.locked_store("a", Y, 8, 1)


@litmus("px86", "6", (X, Y), ALL)
def cas_is_not_durable_itself(t: TraceBuilder) -> None:
    t.locked_store("a", X, 8, 1)
    one(t, Y)


@litmus("px86", "6", (X, Y), IN_ORDER)
def failed_cas_is_a_fence_and_no_store(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    t.fence(FenceKind.LOCKED)
    t.gap()
    one(t, Y)


@litmus("px86", "6", (X, Y), ALL)
def seq_cst_store_as_mov_mfence(t: TraceBuilder) -> None:
    one(t, X)
    t.clwb("a", X)
    one(t, Y)
    t.mfence()


# Rule 7


@litmus("px86", "7", (X, Y, P), {(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (1, 1, 1)})
def msync_persists_its_pages(t: TraceBuilder) -> None:
    one(t, X)
    one(t, Y)
    t.msync("a", 0, 8)
    one(t, P)


@litmus("px86", "7", (X, P), ALL)
def msync_of_another_page(t: TraceBuilder) -> None:
    one(t, X)
    t.msync("a", 4096, 4096)
    one(t, P)


@litmus("px86", "7", (P, Y), ALL)
def msync_of_the_page_before(t: TraceBuilder) -> None:
    one(t, P)
    t.msync("a", 0, 4096)
    one(t, Y)


@litmus("px86", "7", (X, Y), ALL)
def failed_msync(t: TraceBuilder) -> None:
    one(t, X)
    t.msync("a", failed=True)
    one(t, Y)


@litmus("px86", "7", (X, Y), ALL)
def store_during_msync(t: TraceBuilder) -> None:
    begin = t.sync_begin(SyncKind.MSYNC, "a")
    with t.thread(2):
        one(t, X)
    t.sync_end(begin)
    one(t, Y)


@litmus("px86", "7", (X, Z, Y), {(x, z, y) for x in (0, 1) for z in (0, 1) for y in (0, 1)})
def write_is_not_drained_by_sfence(t: TraceBuilder) -> None:
    t.write("a", X, b"\1" * 16)
    t.sfence()
    one(t, Y)


@litmus("px86", "7", (X, Z, Y), {(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (1, 1, 1)})
def write_waits_for_fdatasync(t: TraceBuilder) -> None:
    t.write("a", X, b"\1" * 16)
    t.fdatasync("a")
    one(t, Y)


@litmus("px86", "7", ("acked", X), {(0, -1), (0, 0), (0, 1), (1, 1)}, size=0)
def write_that_grows_the_file_waits_for_fdatasync(t: TraceBuilder) -> None:
    t.append("a", 0, b"\1" * 8)
    t.fdatasync("a")
    t.end(1)


@litmus("px86", "sizes", (X, "size"), {(0, 3 * 4096), (1, 3 * 4096), (0, 4096), (1, 4096)})
def size_changes_are_durable_at_once(t: TraceBuilder) -> None:
    one(t, X)
    t.truncate("a", 4096)


@litmus("px86", "sizes", ("acked", "size"), {(0, 3 * 4096), (0, 4096), (1, 4096)})
def size_change_before_a_promise(t: TraceBuilder) -> None:
    t.truncate("a", 4096)
    t.end(1)
