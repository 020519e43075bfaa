"""A log is recognised by what it does: it holds the old bytes of a range before that is stored to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.findings.undo_logs import UndoLogs
from crashcheck.checker.fixes.propose import unlogged_words
from crashcheck.checker.results import Frame
from support.checked_worlds import World, place, words
from support.tracing import TraceBuilder

SITES = {
    1: place(40, "node.left"),
    2: place(41, "node.right"),
    3: replace(place(10, "log.data"), function="log_range"),
    4: replace(place(11, "log.checksum"), function="log_range"),
    5: replace(place(12, "log.count"), function="set_count", stack=(Frame("log_range", "hash.c", 13),)),
}
LEFT, RIGHT, LOG = 512, 1024, 2048
OLD = bytes(range(1, 41))


def transaction(copied: bytes, before: bool = True) -> Callable[[TraceBuilder], None]:
    """The log gets the copied bytes before, or after, `left` is stored (8 of 40 bytes); then `right` is."""

    def script(t: TraceBuilder) -> None:
        t.store("p", LEFT, len(OLD), OLD)
        t.store("p", RIGHT, 8, b"anything")
        t.begin(1)
        for site in (3, 1) if before else (1, 3):
            t.site = site
            if site == 3:
                t.store("p", LOG, len(copied), copied)
            else:
                t.store("p", LEFT + 16, 8, 7)
        t.site = 2
        t.store("p", RIGHT, 8, 7)
        t.end(1)

    return script


@pytest.mark.parametrize(
    ("copied", "before", "known"),
    [
        (OLD, True, True),
        (OLD[8:32], True, True),
        (OLD[16:24], True, True),
        (OLD[16:20], True, False),
        (OLD[16:31] + b"?", True, False),
        (OLD, False, False),
        (bytes(40), True, False),
    ],
    ids=["whole object", "a part of it", "the range", "less", "other bytes", "too late", "zeros"],
)
def test_an_update_is_logged_if_its_old_bytes_were_copied_before(
    copied: bytes, before: bool, known: bool, tmp_path: Path
) -> None:
    world = World(tmp_path / "world", words("true"), transaction(copied, before), sites=SITES)
    sites = world.trace.events["site"].tolist()
    left, right = sites.index(1), sites.index(2)
    logs = UndoLogs(world.subject)
    assert logs.missing(left) is None
    missing = logs.missing(right)
    assert (missing is not None) is known
    if missing is not None:
        assert (missing.logged, missing.copied) == (left, SITES[3])


@pytest.mark.parametrize("objects", [1, 2])
def test_the_bytes_with_which_each_new_object_begins_show_no_log(objects: int, tmp_path: Path) -> None:
    """An empty entry is overwritten after new nodes, which begin with empty entries, were made."""
    largest = 2**63 - 1

    def script(t: TraceBuilder) -> None:
        t.store("p", LEFT, 8, largest)
        t.begin(1)
        t.site = 3
        for number in range(objects):
            t.store("p", LOG + 8 * number, 8, largest)
        for site, offset in ((1, LEFT), (2, RIGHT)):
            t.site = site
            t.store("p", offset, 8, 7)
        t.end(1)

    world = World(tmp_path / "world", words("true"), script, sites=SITES)
    right = world.trace.events["site"].tolist().index(2)
    assert (UndoLogs(world.subject).missing(right) is not None) is (objects == 1)


def words_of(*values: int) -> bytes:
    return b"".join(value.to_bytes(8, "little") for value in values)


NUMBER = words_of(7)


@pytest.mark.parametrize(
    ("word", "old", "known"),
    [
        (LEFT + 16, NUMBER, True),
        (LEFT + 8, OLD[8:16] + NUMBER, True),
        (1 << 63 | LEFT + 16, NUMBER, True),
        (RIGHT, NUMBER, False),
        (LEFT + 24, NUMBER, False),
        (LEFT + 16, bytes(8), False),
    ],
    ids=["the range", "bytes before it, too", "flags in the position", "another's", "one behind it", "zeros"],
)
def test_an_entry_that_holds_the_position_of_its_old_bytes_is_a_log(
    word: int, old: bytes, known: bool, tmp_path: Path
) -> None:
    """libpmemobj logs a small field by one store of 64 bytes: its offset, a checksum, its size, the old bytes."""

    def script(t: TraceBuilder) -> None:
        t.store("p", LEFT, 24, OLD[:16] + (NUMBER if any(old) else bytes(8)))
        t.begin(1)
        t.site = 3
        entry = word.to_bytes(8, "little") + bytes(range(100, 108)) + len(old).to_bytes(8, "little") + old
        t.store("p", LOG, 64, entry.ljust(64, b"\0"))
        for site, offset in ((1, LEFT + 16), (2, RIGHT)):
            t.site = site
            t.store("p", offset, 8, 8)
        t.end(1)

    world = World(tmp_path / "world", words("true"), script, sites=SITES)
    sites = world.trace.events["site"].tolist()
    logs = UndoLogs(world.subject)
    assert logs.missing(sites.index(1)) is None
    assert (logs.missing(sites.index(2)) is not None) is known


def test_what_is_read_grows_with_the_pages_of_an_operation_not_with_the_words_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each zero in a page may be the position of the file's first bytes, which many updates changed before."""

    data = Trace.data

    def reads_of(pages: int) -> int:
        def script(t: TraceBuilder) -> None:
            t.store("p", 0, len(OLD), OLD)
            for number in range(pages):
                t.site = 3
                t.store("p", 4096 * (number + 1), 4096, bytes([number + 1]) + bytes(4095))
                t.site = 1
                t.store("p", 0, 8, number + 1)
            t.site = 2
            t.store("p", 16, 8, 7)

        world = World(tmp_path / f"world-{pages}", words("true"), script, sites=SITES)
        reads: list[int] = []

        def counted(trace: Trace, row: int) -> bytes:
            reads.append(row)
            return data(trace, row)

        with monkeypatch.context() as patched:
            patched.setattr(Trace, "data", counted)
            UndoLogs(world.subject).missing(len(world.trace.events) - 1)
        return len(reads)

    assert reads_of(40) < 3 * reads_of(20)


@pytest.mark.parametrize("allocator", [0, 100], ids=["alone", "after much else"])
def test_one_line_that_stores_all_pointers_is_asked_about_each_of_its_callers(allocator: int, tmp_path: Path) -> None:
    """The class `persistent_ptr` stores in one line; the old value of the first pointer is zeros, which show no log."""
    calls = [replace(SITES[1], stack=(Frame("push", "queue.cpp", line),)) for line in (20, 21)]
    sites = {**SITES, 1: calls[0], 6: calls[1], **{100 + n: place(100 + n, "heap.word") for n in range(allocator)}}

    def script(t: TraceBuilder) -> None:
        t.store("p", LEFT, len(OLD), OLD)
        t.begin(1)
        for n in range(allocator):
            t.site = 100 + n
            t.store("p", 4096 + 64 * n, 8, n + 1)
        for site, offset, data in (
            (1, LEFT + 64, NUMBER),
            (3, LOG, (LEFT + 16).to_bytes(8, "little") + NUMBER + OLD[16:32]),
            (6, LEFT + 16, NUMBER * 2),
            (2, RIGHT, NUMBER),
        ):
            t.site = site
            t.store("p", offset, len(data), data)
        t.end(1)

    world = World(tmp_path / "world", words("true"), script, sites=sites)
    rows = world.trace.events["site"].tolist()
    missing = UndoLogs(world.subject).missing(rows.index(2))
    assert missing is not None
    assert missing.logged == rows.index(6)


def test_a_field_of_zeros_whose_entry_names_it_is_not_called_unlogged(tmp_path: Path) -> None:
    def script(t: TraceBuilder) -> None:
        t.store("p", LEFT, len(OLD), OLD)
        t.begin(1)
        for site, offset, data in (
            (3, LOG, OLD),
            (3, LOG + 64, RIGHT.to_bytes(8, "little").ljust(64, b"\0")),
            (1, LEFT + 16, NUMBER),
            (2, RIGHT, NUMBER),
        ):
            t.site = site
            t.store("p", offset, len(data), data)
        t.end(1)

    world = World(tmp_path / "world", words("true"), script, sites=SITES)
    assert UndoLogs(world.subject).missing(world.trace.events["site"].tolist().index(2)) is None


@pytest.mark.parametrize(
    ("site", "offset"),
    [(4, LOG + 4096), (5, LOG + 4096), (2, LOG + 56)],
    ids=["of the function that logs", "of one that it calls", "beside a copy"],
)
def test_a_part_of_the_log_is_not_called_an_update_that_is_not_logged(site: int, offset: int, tmp_path: Path) -> None:
    """A fix of a bug in the recovery asked to log the `checksum` of an undo log."""

    def script(t: TraceBuilder) -> None:
        transaction(OLD)(t)
        t.begin(2)
        t.site = 3
        t.store("p", LOG, len(OLD) - 8, OLD[:16] + (7).to_bytes(8, "little") + OLD[24:32])
        t.site = 4
        t.store("p", offset, 8, 1234567)
        t.site = 1
        t.store("p", LEFT + 16, 8, 8)
        t.end(2)

    world = World(tmp_path / "world", words("true"), script, sites={**SITES, 4: replace(SITES[site], line=11)})
    part = world.trace.events["site"].tolist().index(4)
    assert UndoLogs(world.subject).missing(part) is None


@pytest.mark.parametrize(("variable", "known"), [("node", False), ("node.left", False), ("node.le", True)])
def test_what_moves_to_another_object_of_its_kind_is_not_called_logged(
    variable: str, known: bool, tmp_path: Path
) -> None:
    """A split copies records to a new node, and then stores over the old ones."""
    sites = {**SITES, 3: place(10, variable)}
    world = World(tmp_path / "world", words("true"), transaction(OLD), sites=sites)
    right = world.trace.events["site"].tolist().index(2)
    assert (UndoLogs(world.subject).missing(right) is not None) is known


@pytest.mark.parametrize(
    ("value", "known"), [(RIGHT, False), (RIGHT + 1, False), (99223, True)], ids=["offset", "with a flag", "number"]
)
def test_eight_bytes_that_may_be_a_link_show_no_log(value: int, known: bool, tmp_path: Path) -> None:
    """`block->next = head; head = block` copies the old bytes of `head` as a log would."""

    def script(t: TraceBuilder) -> None:
        t.store("p", LEFT, 8, value)
        t.begin(1)
        for site, offset, stored in ((3, LOG, value), (1, LEFT, LOG), (2, RIGHT, 7)):
            t.site = site
            t.store("p", offset, 8, stored)
        t.end(1)

    world = World(tmp_path / "world", words("true"), script, sites=SITES)
    right = world.trace.events["site"].tolist().index(2)
    assert (UndoLogs(world.subject).missing(right) is not None) is known


UUID = 0x8C38_42D4_E404_3A73


@pytest.mark.parametrize(
    ("old", "copied", "known"),
    [
        (words_of(UUID, RIGHT), words_of(UUID, RIGHT), False),
        (words_of(UUID, RIGHT), words_of(UUID), False),
        (words_of(UUID, UUID + 1), words_of(UUID, UUID + 1), True),
        (words_of(UUID + 1, 0), words_of(UUID + 1), True),
    ],
    ids=["a pointer", "its pool", "two numbers", "a number of its own"],
)
def test_a_pointer_of_two_words_and_the_identifier_in_it_show_no_log(
    old: bytes, copied: bytes, known: bool, tmp_path: Path
) -> None:
    """`node->next = tail; tail = node`; and to allocate a node stores the pool's identifier, as each pointer has it."""

    def script(t: TraceBuilder) -> None:
        t.store("p", LEFT + 256, 16, words_of(UUID, RIGHT))
        t.store("p", LEFT, len(old), old)
        t.begin(1)
        for site, offset, data in ((3, LOG, copied), (1, LEFT, words_of(1, 2)), (2, RIGHT, NUMBER)):
            t.site = site
            t.store("p", offset, len(data), data)
        t.end(1)

    world = World(tmp_path / "world", words("true"), script, sites=SITES)
    right = world.trace.events["site"].tolist().index(2)
    assert (UndoLogs(world.subject).missing(right) is not None) is known


def test_a_statement_that_is_logged_in_one_call_only_is_not_compared_with_itself() -> None:
    """One helper that two functions call, of which one logs: "`x` is not logged; the old bytes of `x` are copied"."""
    one, other = "`node.value[]` at b.c:230", "`node.key[]` at b.c:229"
    assert unlogged_words(one, one, " at b.c:94") == (
        f"{one} is not logged each time: its old bytes are copied at b.c:94 before some of its stores, not all"
    )
    assert unlogged_words(one, other, "").startswith(f"{one} is not logged; the old bytes of {other} are copied before")
