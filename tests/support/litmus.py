"""Litmus tests: a name, the rule of crash-model.md that it pins down, a program, and exactly what may survive.

`watch` lists what is read from a surviving image: an offset in file "a" (its byte), "size", "exists", or
"acked". `expected` is the set of all combinations that any crash may leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crashcheck.analyzer.persistence import Options
from crashcheck.runtime.trace_format import FenceKind, FlushKind, StoreFlag, SyncKind
from support.tracing import TraceBuilder

X, Z, W = 0, 8, 16  # one cache line
Y = 64  # another line, the same page
P, Q = 4096, 8192  # other pages

Watch = tuple[int | str, ...]
ALL = {(0, 0), (0, 1), (1, 0), (1, 1)}
IN_ORDER = {(0, 0), (1, 0), (1, 1)}


@dataclass(frozen=True)
class Litmus:
    name: str
    model: str
    rule: str
    watch: Watch
    program: Callable[[TraceBuilder], object]
    expected: frozenset[tuple[int, ...]]
    options: Options
    size: int  # of file "a" at first; -1: it does not exist


LITMUS: list[Litmus] = []


def litmus(
    model: str,
    rule: str,
    watch: Watch,
    expected: set[tuple[int, ...]],
    options: Options | None = None,
    size: int = 3 * 4096,
) -> Callable[[Callable[[TraceBuilder], object]], Callable[[TraceBuilder], object]]:
    def add(program: Callable[[TraceBuilder], object]) -> Callable[[TraceBuilder], object]:
        name = f"{model}-{program.__name__.replace('_', '-')}"
        LITMUS.append(Litmus(name, model, rule, watch, program, frozenset(expected), options or Options(), size))
        return program

    return add


def one(t: TraceBuilder, offset: int, value: int = 1) -> None:
    t.store("a", offset, 8, value)


# px86, rule 1


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


# px86, rule 2


@litmus("px86", "2", (X, Y), ALL)
def different_lines_unordered(t: TraceBuilder) -> None:
    one(t, X)
    one(t, Y)


@litmus("px86", "2", (56, 64), ALL)
def wide_store_across_lines(t: TraceBuilder) -> None:
    t.store("a", 56, 16, b"\1" * 16)


# px86, rule 3


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


# px86, rule 4


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


# px86, rule 5


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


# px86, rule 6


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


# px86, rule 7


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


# eadr


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


# page-cache, rule 1


@litmus("page-cache", "1", (X, Y), IN_ORDER)
def page_holds_a_prefix(t: TraceBuilder) -> None:
    one(t, X)
    one(t, Y)


@litmus("page-cache", "1", (X, P), ALL)
def pages_unordered(t: TraceBuilder) -> None:
    one(t, X)
    one(t, P)


@litmus("page-cache", "1", ("acked", X), {(0, 0), (0, 1), (1, 0), (1, 1)})
def unsynced_is_lost_after_the_promise(t: TraceBuilder) -> None:
    one(t, X)
    t.end(1)


# page-cache, rule 2


@litmus("page-cache", "2", (X, P), IN_ORDER)
def msync_orders(t: TraceBuilder) -> None:
    one(t, X)
    t.msync("a", 0, 4096)
    one(t, P)


@litmus("page-cache", "2", ("acked", X), {(0, 0), (0, 1), (1, 1)})
def synced_is_durable(t: TraceBuilder) -> None:
    one(t, X)
    t.fdatasync("a")
    t.end(1)


@litmus("page-cache", "2", (X, P), ALL)
def update_during_a_sync(t: TraceBuilder) -> None:
    begin = t.sync_begin(SyncKind.FSYNC, "a")
    with t.thread(2):
        one(t, X)
    t.sync_end(begin)
    one(t, P)


@litmus("page-cache", "2", (X, P), IN_ORDER)
def syncfs_covers_every_file(t: TraceBuilder) -> None:
    one(t, X)
    t.sync(SyncKind.SYNC)
    one(t, P)


@litmus("page-cache", "2", (X, P), ALL)
def failed_sync_orders_nothing(t: TraceBuilder) -> None:
    one(t, X)
    t.fsync("a", failed=True)
    one(t, P)


@litmus("page-cache", "2", (X, P), ALL)
def success_after_failure_covers_nothing_old(t: TraceBuilder) -> None:
    one(t, X)
    t.fsync("a", failed=True)
    t.fsync("a")
    one(t, P)


@litmus("page-cache", "2", (X, Z, P), {(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)})
def success_after_failure_covers_rewritten_pages(t: TraceBuilder) -> None:
    one(t, X)
    t.fsync("a", failed=True)
    one(t, Z)
    t.fsync("a")
    one(t, P)


@litmus("page-cache", "2", (X, P), ALL)
def update_during_a_failing_sync_may_be_lost_with_it(t: TraceBuilder) -> None:
    begin = t.sync_begin(SyncKind.FSYNC, "a")
    one(t, X)
    t.sync_end(begin, failed=True)
    t.fsync("a")
    one(t, P)


@litmus("page-cache", "2", (X, P), ALL)
def ms_async_orders_nothing(t: TraceBuilder) -> None:
    one(t, X)
    t.sync(SyncKind.MSYNC_ASYNC, "a")
    one(t, P)


@litmus("page-cache", "2", (X, P), ALL)
def sync_file_range_orders_nothing(t: TraceBuilder) -> None:
    one(t, X)
    t.sync(SyncKind.SYNC_RANGE, "a")
    one(t, P)


# page-cache, rule 3


@litmus("page-cache", "3", (510, 512), {(0, 0), (1, 1)})
def untorn_page(t: TraceBuilder) -> None:
    t.write("a", 504, b"\1" * 16)


@litmus("page-cache", "3", (510, 512), ALL, Options(tear=512))
def torn_at_sectors(t: TraceBuilder) -> None:
    t.write("a", 504, b"\1" * 16)


@litmus("page-cache", "3", (X, 512, P), {(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (1, 1, 1)}, Options(tear=512))
def sync_covers_all_sectors_of_its_pages(t: TraceBuilder) -> None:
    one(t, X)
    one(t, 512)
    t.msync("a", 0, 8)
    one(t, P)


@litmus("page-cache", "3", (4095, 4096), ALL, Options(tear=4096))
def torn_at_pages_is_not_torn_within(t: TraceBuilder) -> None:
    t.write("a", 4088, b"\1" * 16)


# page-cache, rule 4


@litmus("page-cache", "4", (4095, 4096), ALL)
def write_is_an_update_of_each_page(t: TraceBuilder) -> None:
    t.write("a", 4088, b"\1" * 16)


@litmus("page-cache", "4", (X, P, Q), {(x, p, q) for x in (0, 1) for p in (0, 1) for q in (0, 1) if p or not q})
def o_dsync_covers_its_range_only(t: TraceBuilder) -> None:
    one(t, X)
    t.write("a", P, b"\1" * 8)
    t.sync(SyncKind.ODSYNC, "a", P, 8)
    one(t, Q)


@litmus("page-cache", "4", ("acked", "size"), {(0, 4096), (0, 4104), (1, 4104)}, size=4096)
def o_sync_carries_the_size(t: TraceBuilder) -> None:
    t.write("a", 4096, b"\1" * 8)
    t.sync(SyncKind.OSYNC, "a", 4096, 8)
    t.end(1)


# page-cache, rule 5


@litmus("page-cache", "5", ("size",), {(4096,), (8192,), (12288,), (13000,)}, size=4096)
def extension_stops_at_any_block(t: TraceBuilder) -> None:
    t.truncate("a", 13000)


@litmus("page-cache", "5", ("size",), {(12288,), (100,)})
def shrinking_happens_or_not(t: TraceBuilder) -> None:
    t.truncate("a", 100)


@litmus("page-cache", "5", ("size", "acked"), {(4096, 0), (5000, 0), (5000, 1)}, size=4096)
def fdatasync_persists_the_size(t: TraceBuilder) -> None:
    t.truncate("a", 5000)
    t.fdatasync("a")
    t.end(1)


@litmus("page-cache", "5", ("size", 4096), {(4096, -1), (4104, 0), (4104, 1)}, size=4096)
def appended_size_without_its_data(t: TraceBuilder) -> None:
    t.write("a", 4096, b"\1" * 8)


@litmus("page-cache", "5", ("exists", "acked"), {(0, 0), (1, 0), (1, 1)}, size=-1)
def own_sync_persists_the_name_on_ext4(t: TraceBuilder) -> None:
    t.create("a")
    t.fdatasync("a")
    t.end(1)


@litmus("page-cache", "5", ("exists", "acked"), {(0, 0), (1, 0), (0, 1), (1, 1)}, Options(files="posix"), size=-1)
def own_sync_is_not_enough_under_posix(t: TraceBuilder) -> None:
    t.create("a")
    t.fsync("a")
    t.end(1)


@litmus("page-cache", "5", ("exists", "acked"), {(0, 0), (1, 0), (1, 1)}, Options(files="posix"), size=-1)
def own_and_folder_sync_under_posix(t: TraceBuilder) -> None:
    t.create("a")
    t.dirsync()
    t.fsync("a")
    t.end(1)


@litmus("page-cache", "5", ("exists", "acked"), {(0, 0), (1, 0), (1, 1)}, size=-1)
def folder_sync_persists_the_name_on_ext4(t: TraceBuilder) -> None:
    t.create("a")
    t.dirsync()
    t.end(1)


@litmus("page-cache", "5", ("size", X), {(8, 7), (0, -1), (8, 0), (8, 1)}, size=8)
def rewritten_after_truncation(t: TraceBuilder) -> None:
    """O_TRUNC, then as many bytes again: the old file, nothing, zeros, or the new bytes."""
    t.truncate("a", 0)
    t.write("a", 0, b"\1" * 8)


# page-cache, rule 6


@litmus("page-cache", "6", (X, P), ALL)
def flush_and_fence_order_nothing(t: TraceBuilder) -> None:
    one(t, X)
    t.clflush("a", X)
    t.sfence()
    one(t, P)
