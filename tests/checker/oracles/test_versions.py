"""Verdicts written by hand: what a command does, what a crash may leave on ext4, and whether data are lost by it."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.results import Outcome
from crashcheck.checker.subject import Subject
from support.folders import Folder, Recorded
from support.tracing import CallsBuilder

A, B, C, SERVICES = b"setting=1\n", b"setting=2\n", b"other=3\n", bytes(range(256)) * 4
PAGES, NEW_PAGES, LAST_PAGES = (random.Random(seed).randbytes(8192) for seed in range(3))


def copy(t: CallsBuilder, to: str, data: bytes, synced: bool = False) -> None:
    t.open(to)
    t.write(to, 0, data)
    if synced:
        t.fsync(to)


def rewrite(t: CallsBuilder, path: str, data: bytes) -> None:
    t.truncate(path, 0)
    t.write(path, 0, data)


def replace(t: CallsBuilder, path: str, data: bytes, synced: bool = False) -> None:
    copy(t, "tmp", data, synced)
    t.move("tmp", path)


def steps(*todo: Callable[[CallsBuilder], object]) -> Callable[[CallsBuilder], object]:
    def program(t: CallsBuilder) -> None:
        for step in todo:
            step(t)

    return program


def work_on_scratch(t: CallsBuilder) -> None:
    """As a transaction of Subversion: a file is replaced, and removed in the end."""
    replace(t, "current", C, synced=True)
    copy(t, "s", A)
    replace(t, "s", B)
    copy(t, "n", SERVICES, synced=True)
    t.remove("s")


def move_through_scratch(t: CallsBuilder) -> None:
    """The only copy of what was removed is replaced before there is another one."""
    copy(t, "s", SERVICES, synced=True)
    t.remove("b")
    replace(t, "s", SERVICES)
    copy(t, "n", SERVICES, synced=True)
    t.remove("s")


def remove_beside_scratch(t: CallsBuilder) -> None:
    """One byte is in the removed file by chance."""
    copy(t, "s", SERVICES[1:2])
    t.remove("b")
    copy(t, "n", C, synced=True)
    t.remove("s")


def keep_a_journal(t: CallsBuilder) -> None:
    """As SQLite with synchronous=off."""
    copy(t, "j", PAGES)
    t.write("c", 0, NEW_PAGES[:4096])
    t.write("c", 4096, NEW_PAGES[4096:])
    t.remove("j")


def empty_a_journal(t: CallsBuilder) -> None:
    """As SQLite with journal_mode=truncate, too: two transactions."""
    t.open("j")
    for before, after in ((PAGES, NEW_PAGES), (NEW_PAGES, LAST_PAGES)):
        t.write("j", 0, before)
        t.write("c", 0, after)
        t.truncate("j", 0)


def log_the_change(t: CallsBuilder) -> None:
    """As Taskwarrior: the log of an earlier run happens to hold what was there."""
    t.append("log", len(PAGES), A)
    t.write("c", 0, NEW_PAGES[:4096])
    t.write("c", 4096, NEW_PAGES[4096:])


FIRST = {"a": A, "b": SERVICES}
PADDED = A + bytes(8192 - len(A))  # as tar ends its files, and as logs are made whose space is reserved


def fill(t: CallsBuilder) -> None:
    t.open("n")
    t.write("n", 0, PADDED)
    t.fsync("n")
    t.write("n", len(A), B + SERVICES * 6)


VERDICTS: dict[str, tuple[Callable[[CallsBuilder], object], Folder, bool]] = {
    # name: program, a state, whether something is lost
    "rewritten, then empty: no version of a is": (steps(lambda t: rewrite(t, "a", B)), {"a": b"", "b": SERVICES}, True),
    "rewritten, not begun": (steps(lambda t: rewrite(t, "a", B)), FIRST, False),
    "rewritten, done": (steps(lambda t: rewrite(t, "a", B)), {"a": B, "b": SERVICES}, False),
    "another file's bytes do not replace them": (
        steps(lambda t: copy(t, "n", SERVICES), lambda t: t.fsync("n"), lambda t: rewrite(t, "a", B)),
        {"a": b"", "b": SERVICES, "n": SERVICES},
        True,
    ),
    "a lock file that the run removes, beside a file that is replaced": (
        steps(
            lambda t: copy(t, "lock", b"100\n"),
            lambda t: replace(t, "a", B, synced=True),
            lambda t: t.remove("lock"),
        ),
        {"a": B, "b": SERVICES, "lock": b""},
        False,
    ),
    "a synced file that happens to hold the same few bytes is no log": (
        steps(lambda t: copy(t, "n", SERVICES + A), lambda t: t.fsync("n"), lambda t: rewrite(t, "a", B)),
        {"a": b"", "b": SERVICES, "n": SERVICES + A},
        True,
    ),
    "a synced copy is as good as the file": (
        steps(lambda t: copy(t, "n", A), lambda t: t.fsync("n"), lambda t: rewrite(t, "a", B)),
        {"a": b"", "b": SERVICES, "n": A},
        False,
    ),
    "an unsynced copy of what was there is as good as the file": (
        steps(lambda t: copy(t, "n", A), lambda t: rewrite(t, "a", B)),
        {"a": b"", "b": SERVICES, "n": A},
        False,
    ),
    "an unsynced copy can be lost with the file": (
        steps(lambda t: copy(t, "n", A), lambda t: rewrite(t, "a", B)),
        {"a": b"", "b": SERVICES, "n": b""},
        True,
    ),
    "a copy that is written only afterwards is none": (
        steps(lambda t: rewrite(t, "a", B), lambda t: copy(t, "n", A)),
        {"a": b"", "b": SERVICES, "n": A},
        True,
    ),
    "another file with the same new content is no copy of what was there": (
        steps(lambda t: copy(t, "n", B), lambda t: rewrite(t, "a", B)),
        {"a": b"", "b": SERVICES, "n": B},
        True,
    ),
    "a file without data is replaced": (
        steps(lambda t: t.open("n"), lambda t: replace(t, "n", B)),
        {**FIRST, "n": bytes(len(B))},
        False,
    ),
    "two files that nothing joins: the later alone": (
        steps(lambda t: copy(t, "n", SERVICES), lambda t: copy(t, "m", B)),
        {**FIRST, "n": b"", "m": B},
        False,
    ),
    "a new file without its data": (steps(lambda t: copy(t, "n", B)), {**FIRST, "n": b""}, False),
    "a new file is renamed to a new name before its data": (
        steps(lambda t: copy(t, "n.part", B), lambda t: t.move("n.part", "n")),
        {**FIRST, "n": b""},
        True,
    ),
    "a new file is renamed to a new name, and that is lost": (
        steps(lambda t: copy(t, "n.part", B), lambda t: t.move("n.part", "n")),
        {**FIRST, "n.part": b""},
        False,
    ),
    "a new log is rotated before its data": (
        steps(lambda t: copy(t, "log", B), lambda t: t.move("log", "log.1"), lambda t: t.open("log")),
        {**FIRST, "log": b"", "log.1": b""},
        False,
    ),
    "copied and removed, the copy empty": (
        steps(lambda t: copy(t, "c", A), lambda t: t.remove("a")),
        {"b": SERVICES, "c": b""},
        True,
    ),
    "copied and removed, the original is still there": (
        steps(lambda t: copy(t, "c", A), lambda t: t.remove("a")),
        {**FIRST, "c": b""},
        False,
    ),
    "copied and removed, done": (
        steps(lambda t: copy(t, "c", A), lambda t: t.remove("a")),
        {"b": SERVICES, "c": A},
        False,
    ),
    "removed on purpose": (steps(lambda t: t.remove("b")), {"a": A}, False),
    "removed, and a later file is empty": (
        steps(lambda t: t.remove("b"), lambda t: copy(t, "n", SERVICES)),
        {"a": A, "n": b""},
        False,
    ),
    "overwritten and removed on purpose": (
        steps(lambda t: t.write("a", 0, bytes([255]) * 10), lambda t: t.remove("a")),
        {"a": bytes([255]) * 10, "b": SERVICES},
        False,
    ),
    "replaced by a file without data": (
        steps(lambda t: replace(t, "a", B)),
        {"a": bytes(len(B)), "b": SERVICES},
        True,
    ),
    "moved over another": (steps(lambda t: t.move("a", "b")), {"b": A}, False),
    "moved": (steps(lambda t: t.move("a", "c")), {"b": SERVICES, "c": A}, False),
    "appended, the end lost": (steps(lambda t: t.append("a", len(A), B)), FIRST, False),
    "synced, then rewritten: an older version is none": (
        steps(lambda t: copy(t, "n", A, synced=True), lambda t: rewrite(t, "n", B)),
        {**FIRST, "n": b""},
        True,
    ),
    "replaced twice, the last without a sync, and done": (
        steps(lambda t: replace(t, "a", B, synced=True), lambda t: replace(t, "a", A)),
        {"a": A, "b": SERVICES},
        False,
    ),
    "appended to, then moved over another, the end lost": (
        steps(lambda t: t.append("a", len(A), B), lambda t: t.move("a", "b")),
        {"b": A + bytes(len(B))},
        True,
    ),
    "zeros are filled, and only the second page persists": (
        fill,
        {**FIRST, "n": PADDED[:4096] + (A + B + SERVICES * 6)[4096:] + bytes(8192 - len(A + B + SERVICES * 6))},
        False,
    ),
    "cut to less on purpose": (steps(lambda t: t.truncate("b", 100)), {"a": A, "b": SERVICES[:100]}, False),
    "cut to nothing on purpose": (steps(lambda t: t.truncate("b", 0)), {"a": A, "b": b""}, False),
}


@pytest.mark.parametrize("name", VERDICTS)
def test_each_file_is_judged_by_its_versions_and_removals_join_files(name: str, tmp_path: Path) -> None:
    program, folder, lost = VERDICTS[name]
    run = Recorded(tmp_path, program, FIRST, "ext4")
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    last = len(run.space.points) - 1
    states = [state for state in run.states if state.point == last and run.folder(state) == folder]
    verdicts = {oracle.judge_state(state).outcome for state in states}
    assert verdicts == {Outcome.FAIL if lost else Outcome.PASS}


def test_a_version_that_comes_later_is_no_excuse(tmp_path: Path) -> None:
    """The file is cut on purpose at the end; a crash before that must not empty it."""
    program = steps(lambda t: rewrite(t, "a", B), lambda t: copy(t, "n", C, synced=True), lambda t: t.truncate("a", 0))
    run = Recorded(tmp_path, program, FIRST, "ext4")
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    verdicts = [
        (state.point == len(run.space.points) - 1, oracle.judge_state(state).outcome)
        for state in run.states
        if run.folder(state)["a"] == b""
    ]
    assert set(verdicts) == {(False, Outcome.FAIL), (True, Outcome.PASS)}


def test_a_copy_that_the_run_removes_later_counts_while_it_is_the_only_one(tmp_path: Path) -> None:
    program = steps(
        lambda t: copy(t, "c", A),
        lambda t: t.remove("a"),
        lambda t: copy(t, "n", B, synced=True),
        lambda t: t.remove("c"),
    )
    run = Recorded(tmp_path, program, FIRST, "ext4")
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    verdicts = [
        oracle.judge_state(state).outcome
        for state in run.states
        if state.point < len(run.space.points) - 1 and "a" not in run.folder(state) and run.folder(state)["c"] == b""
    ]
    assert set(verdicts) == {Outcome.FAIL}


HALF = NEW_PAGES[:4096] + PAGES[4096:]


@pytest.mark.parametrize(
    ("program", "first", "folder", "lost"),
    [
        (keep_a_journal, {"c": PAGES}, {"c": HALF, "j": PAGES}, False),
        (keep_a_journal, {"c": PAGES}, {"c": HALF}, True),
        (keep_a_journal, {"c": PAGES}, {"c": HALF, "j": bytes(4096) + PAGES[4096:]}, True),
        (empty_a_journal, {"c": PAGES}, {"c": NEW_PAGES, "j": b""}, False),
        (empty_a_journal, {"c": PAGES}, {"c": HALF, "j": PAGES}, False),
        (empty_a_journal, {"c": PAGES}, {"c": HALF, "j": b""}, True),
        (log_the_change, {"c": PAGES, "log": PAGES}, {"c": HALF, "log": PAGES + A}, True),
    ],
)
def test_a_journal_holds_what_was_overwritten_if_it_was_written_before(
    program: Callable[[CallsBuilder], object], first: Folder, folder: Folder, lost: bool, tmp_path: Path
) -> None:
    run = Recorded(tmp_path, program, first, "ext4")
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    verdicts = {oracle.judge_state(state).outcome for state in run.states if run.folder(state) == folder}
    assert verdicts == {Outcome.FAIL if lost else Outcome.PASS}


@pytest.mark.parametrize(
    ("program", "lost"), [(work_on_scratch, False), (move_through_scratch, True), (remove_beside_scratch, False)]
)
def test_what_is_at_work_counts_where_it_is_the_only_place_of_data(
    program: Callable[[CallsBuilder], object], lost: bool, tmp_path: Path
) -> None:
    run = Recorded(tmp_path, program, {**FIRST, "current": A}, "ext4")
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    assert any(oracle.judge_state(state).outcome is Outcome.FAIL for state in run.states) == lost
