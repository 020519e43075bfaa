"""Two recordings of one run hold the same; any difference in what was done, by which code, in which order, is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.content import content_digest
from support.tracing import TraceBuilder

LONG = bytes(range(40))
Change = Callable[[TraceBuilder], object]


def recorded(folder: Path, *, pid: int = 100, gap: int = 0, long: bytes = LONG, last: Change = lambda t: None) -> bytes:
    t = TraceBuilder(folder / f"trace{len([*folder.iterdir()])}.cct")
    t.pid = pid
    t.file("a", 64)
    t.unit(7, 4, "/program")
    t.stack = t.stack_def(0, 2)
    t.store("a", 0, 4, 1)
    if gap:
        t.gap(gap)
    t.load("a", 0)
    t.store("a", 8, len(long), long)
    t.fsync("a")
    with t.thread(2, pid=pid + 5):
        t.store("a", 16, 24, LONG[:24])
    last(t)
    return content_digest(t.trace())


def test_process_numbers_and_gaps_in_the_order_make_no_difference(tmp_path: Path) -> None:
    assert recorded(tmp_path) == recorded(tmp_path, pid=4711, gap=9)


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t.store("a", 0, 4, 1),
        lambda t: t.load("a", 8),
        lambda t: t.stack_def(1, 3),
        lambda t: t.unit(8, 1, "/library"),
        lambda t: t.file("b"),
    ],
    ids=["a store", "a read", "a stack", "a unit", "a file"],
)
def test_whatever_is_added_makes_a_difference(change: Change, tmp_path: Path) -> None:
    assert recorded(tmp_path, last=change) != recorded(tmp_path)


def test_each_byte_and_each_field_of_an_update_counts(tmp_path: Path) -> None:
    def by(place: int, value: int, stack: int) -> Change:
        def store(t: TraceBuilder) -> None:
            t.stack = stack
            t.store("a", place, 4, value)

        return store

    changes = [by(0, 1, 0), by(4, 1, 0), by(0, 2, 0), by(0, 1, 1)]
    found = {recorded(tmp_path, last=change) for change in changes}
    found |= {recorded(tmp_path, long=bytes(reversed(LONG)), last=by(0, 1, 0))}
    assert len(found) == 5
