"""Fingerprints of folders: equal exactly where the folders are."""

from __future__ import annotations

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from checker.oracles.test_snapshot_by_reference import FIRST, Sequence
from crashcheck.checker.images.file_table import Row
from crashcheck.checker.images.fingerprint import Fingerprints
from crashcheck.checker.images.issued_folder import Counts
from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject
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


@pytest.mark.parametrize("seed", range(30))
def test_they_are_those_of_all_paths_whatever_names_a_state_lost(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Recorded(tmp_path, Sequence(random.Random(seed)), FIRST, ("ext4", "posix", "ext4-strict")[seed % 3])
    states = run.states[:: max(1, len(run.states) // 200)]
    near = [(run.content.fingerprint(state), run.content.paths(state)) for state in states]
    monkeypatch.setattr(run.content, "moved", lambda state: None)
    run.content._known_paths = None
    assert near == [(run.content.fingerprint(state), run.content.paths(state)) for state in states]


def test_a_state_costs_the_files_that_it_lost_something_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a hundred files that are written and renamed, some states lose the last one or its name."""
    names = [f"f{number}" for number in range(100)]

    def program(t: CallsBuilder) -> None:
        for name in names:
            t.open(name)
            t.write(name, 0, NEW)
            t.move(name, f"{name} renamed")

    run = Recorded(tmp_path, program, {}, "ext4", most=0)
    last = len(run.space.points) - 1
    pending = run.space.pending(last)
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    oracle.judge_state(run.space.full(last))
    run.content.fingerprint(run.space.full(last))
    asked: list[int] = []
    sum_of, counts_of = run.content._sum, oracle._counts_of

    def counting_paths(paths: Iterable[tuple[str, int]], rows: list[Row]) -> int:
        some = list(paths)
        asked.extend(inode for _, inode in some)
        return sum_of(some, rows)

    def counting_files(state: CrashState, inode: int) -> Counts:
        asked.append(inode)
        return counts_of(state, inode)

    monkeypatch.setattr(run.content, "_sum", counting_paths)
    monkeypatch.setattr(oracle, "_counts_of", counting_files)
    for piece in pending[-3:]:
        state = run.space.drop(last, [piece])
        run.content.fingerprint(state)
        oracle.judge_state(state)
    assert 0 < len(asked) < 30


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
