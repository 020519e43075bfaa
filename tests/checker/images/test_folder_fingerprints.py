"""Fingerprints of folders: equal exactly where the folders are."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.images.fingerprint import Fingerprints
from crashcheck.checker.states.space import CrashState
from support.folders import Recorded
from support.tracing import CallsBuilder

OLD, NEW = b"old, old", b"new, new"


@pytest.mark.parametrize("skipped", [0, (1 << 16) - 1])
def test_they_tell_files_apart_however_many_there_are(skipped: int, tmp_path: Path) -> None:
    """The two files written have ids that agree in their lowest bits."""

    def program(t: CallsBuilder) -> None:
        t.write("f", 0, OLD)
        t._inodes += skipped
        t.open("g")
        t.write("g", 0, OLD)
        t.write("f", 0, NEW)

    run = Recorded(tmp_path, program, {"f": OLD}, "posix")
    found: dict[bytes, set[str]] = {}
    for state in run.states:
        found.setdefault(run.content.fingerprint(state), set()).add(repr(sorted(run.folder(state).items())))
    assert all(len(folders) == 1 for folders in found.values())
    assert len(found) == len({folder for folders in found.values() for folder in folders})


def test_a_crash_point_asks_only_for_the_files_that_changed_since_the_one_before(tmp_path: Path) -> None:
    """A hundred files, written and synced in turn: not a hundred rows at each point, and the rows of a fresh start."""
    files = {f"f{number}": OLD for number in range(100)}

    def program(t: CallsBuilder) -> None:
        for name in files:
            t.write(name, 0, NEW)
            t.fsync(name)

    run = Recorded(tmp_path, program, files, "posix")
    going_on = run.content._prints()
    for full in (True, False):
        for point in range(len(run.space.points)):
            before = going_on.tables_asked
            rows = going_on.base_rows(CrashState(point, full, ()))
            assert going_on.tables_asked - before <= (100 if point == 0 else 2)
            anew = Fingerprints(run.space, run.content.first)
            assert rows == anew.base_rows(CrashState(point, full, ()))
            assert anew.tables_asked == 100
