"""A log is recognised by what it does: it holds the old bytes of a range before that is stored to."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.checker.findings.undo_logs import UndoLogs
from support.checked_worlds import World, place, words
from support.tracing import TraceBuilder

SITES = {1: place(40, "node.left"), 2: place(41, "node.right"), 3: place(10, "log.data")}
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
