"""Litmus tests of files behind the page cache."""

from __future__ import annotations

from crashcheck.analyzer.persistence import Options
from crashcheck.runtime.trace_format import StoreFlag, SyncKind
from support.litmus.case import ALL, IN_ORDER, P, Q, X, Y, Z, litmus, one
from support.tracing import TraceBuilder

# Rule 1


@litmus("page-cache", "1", (X, Y), IN_ORDER)
def page_holds_a_prefix(t: TraceBuilder) -> None:
    one(t, X)
    one(t, Y)


@litmus("page-cache", "1", (X, Y, Z, P), {(a, a, z, p) for a, z in IN_ORDER for p in (0, 1)})
def masked_store_is_one_update(t: TraceBuilder) -> None:
    one(t, X)
    t.store("a", Y, 8, 1, int(StoreFlag.JOINED))
    t.store("a", P, 8, 1, int(StoreFlag.JOINED))  # another page
    one(t, Z)


@litmus("page-cache", "1", (X, P), ALL)
def pages_unordered(t: TraceBuilder) -> None:
    one(t, X)
    one(t, P)


@litmus("page-cache", "1", ("acked", X), {(0, 0), (0, 1), (1, 0), (1, 1)})
def unsynced_is_lost_after_the_promise(t: TraceBuilder) -> None:
    one(t, X)
    t.end(1)


# Rule 2


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
def msync_of_a_clean_page_orders_nothing(t: TraceBuilder) -> None:
    one(t, X)
    one(t, P)
    t.msync("a", Q, 4096)


@litmus("page-cache", "2", (X, P), ALL)
def sync_file_range_orders_nothing(t: TraceBuilder) -> None:
    one(t, X)
    t.sync(SyncKind.SYNC_RANGE, "a")
    one(t, P)


# Rule 3


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


# Rule 4


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


# Rule 5


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


@litmus("page-cache", "5", ("size", 10, 4090), {(4096, 7, 7), (0, -1, -1), (4096, 0, 0), (4000, 0, -1)}, size=4096)
def end_within_a_page_after_truncation(t: TraceBuilder) -> None:
    """The page was cut off, so what zeroes its end brings it back as zeros, and not with what it held."""
    for size in (0, 4096, 4000):
        t.truncate("a", size)


@litmus(
    "page-cache",
    "5",
    ("size", X, Y),
    {(4096, 7, 7), (4096, 1, 0), (4096, 1, 1), (0, -1, -1), (8, 0, -1), (8, 1, -1), (72, 0, 0), (72, 1, 0), (72, 1, 1)},
    size=4096,
)
def two_writes_after_truncation(t: TraceBuilder) -> None:
    """The first one brings the page back as zeros, also where the old size survives; the second one adds to it."""
    t.truncate("a", 0)
    t.write("a", X, b"\1" * 8)
    t.write("a", Y, b"\1" * 8)


# Rule 6


@litmus("page-cache", "6", (X, P), ALL)
def flush_and_fence_order_nothing(t: TraceBuilder) -> None:
    one(t, X)
    t.clflush("a", X)
    t.sfence()
    one(t, P)
