"""A log is recognised by what it does: it holds the old bytes of a range before that is stored to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

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


def test_a_statement_that_is_logged_in_one_call_only_is_not_compared_with_itself() -> None:
    """One helper that two functions call, of which one logs: "`x` is not logged; the old bytes of `x` are copied"."""
    one, other = "`node.value[]` at b.c:230", "`node.key[]` at b.c:229"
    assert unlogged_words(one, one, " at b.c:94") == (
        f"{one} is not logged each time: its old bytes are copied at b.c:94 before some of its stores, not all"
    )
    assert unlogged_words(one, other, "").startswith(f"{one} is not logged; the old bytes of {other} are copied before")
