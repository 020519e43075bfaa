"""Verdicts written by hand: names that are removed and created again, and what is reported of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.results import Outcome
from crashcheck.checker.subject import Subject
from support.folders import Folder, Recorded
from support.tracing import CallsBuilder

A, B, C, LONG = b"setting=1\n", b"setting=2\n", b"other=3\n", bytes(range(256)) * 32
FIRST: Folder = {"a": A, "b": LONG, "d": None, "d/x": A, "e": b""}
REST: Folder = {"b": LONG, "d": None, "d/x": A, "e": b""}  # all but a

Step = Callable[[CallsBuilder], object]


def create(path: str, data: bytes, synced: bool = False) -> Step:
    def step(t: CallsBuilder) -> None:
        t.open(path)
        if data:
            t.write(path, 0, data)
        if synced:
            t.fsync(path)

    return step


def remove(path: str) -> Step:
    return lambda t: t.remove(path)


def again(path: str, data: bytes, synced: bool = False) -> Step:
    """As `install`, `cp --remove-destination` and `tar x` do it."""
    return steps(remove(path), create(path, data, synced))


def move(path: str, to: str) -> Step:
    return lambda t: t.move(path, to)


def sync(path: str) -> Step:
    return lambda t: t.fsync(path)


def elsewhere(step: Step) -> Step:
    """In another process."""

    def program(t: CallsBuilder) -> None:
        with t.thread(2, pid=200):
            step(t)

    return program


def steps(*todo: Step) -> Step:
    def program(t: CallsBuilder) -> None:
        for step in todo:
            step(t)

    return program


def symlink(t: CallsBuilder) -> None:
    t.symlink("b", "a")


def folder_again(t: CallsBuilder) -> None:
    steps(remove("d/x"), lambda t: t.rmdir("d"), lambda t: t.mkdir("d"), create("d/x", B))(t)


HALF = again("a", LONG[:4096])
VERDICTS: dict[str, tuple[Step, Folder, bool]] = {
    # name: program, the folder of a state, whether something is lost
    "removed and created again: a is missing": (again("a", B), REST, True),
    "removed and created again: a is empty": (again("a", B), {**REST, "a": b""}, True),
    "removed and created again: done": (again("a", B), {**REST, "a": B}, False),
    "removed and created again: not begun": (again("a", B), FIRST, False),
    "half of the new content": (
        steps(HALF, lambda t: t.append("a", 4096, LONG[4096:])),
        {**REST, "a": LONG[:4096]},
        True,
    ),
    "synced afterwards: too late for a crash before": (again("a", B, synced=True), REST, True),
    "removed by another process, as in rm a; make a": (
        steps(elsewhere(remove("a")), create("a", B)),
        {**REST, "a": b""},
        False,
    ),
    "a folder that is removed and made again, as a build's": (
        folder_again,
        {"a": A, "b": LONG, "d": None, "d/x": b"", "e": b""},
        False,
    ),
    "the folder is synced between the steps": (
        steps(remove("a"), sync(""), create("a", B)),
        {**REST, "a": b""},
        False,
    ),
    "another file is written between the steps, as by a transaction that begins without the last one's undo": (
        steps(remove("a"), create("n", C), create("j", B), move("j", "a")),
        {**REST, "n": C},
        False,
    ),
    "more names are removed between the steps": (
        steps(remove("a"), remove("d/x"), create("a", B)),
        {"a": b"", "b": LONG, "d": None, "e": b""},
        True,
    ),
    "another process writes between the steps": (
        steps(remove("a"), elsewhere(create("n", C)), create("a", B)),
        {**REST, "n": C},
        True,
    ),
    "another file is synced between the steps": (
        steps(create("n", C), remove("a"), sync("n"), create("a", B)),
        {**REST, "a": b"", "n": C},
        True,
    ),
    "an old lock that is taken and given back": (
        steps(again("a", B), remove("a")),
        {**REST, "a": b""},
        False,
    ),
    "an old lock that is taken, and given back by another process": (
        steps(again("a", B), elsewhere(remove("a"))),
        {**REST, "a": b""},
        False,
    ),
    "the old data have another name": (
        steps(lambda t: t.link("a", "a2"), again("a", B)),
        {**REST, "a": b"", "a2": A},
        False,
    ),
    "the old file is renamed before, as by ruby -i.bak": (
        steps(move("a", "a.bak"), create("a", B)),
        {**REST, "a": b"", "a.bak": A},
        False,
    ),
    "the old file is renamed before: no new one yet": (
        steps(move("a", "a.bak"), create("a", B)),
        {**REST, "a.bak": A},
        False,
    ),
    "a synced copy is as good as the file": (
        steps(create("n", A, synced=True), again("a", B)),
        {**REST, "a": b"", "n": A},
        False,
    ),
    "a file that was synced and emptied holds no copy": (
        steps(create("n", C, synced=True), lambda t: t.truncate("n", 0), again("b", LONG[::-1])),
        {"a": A, "b": b"", "d": None, "d/x": A, "e": b"", "n": b""},
        True,
    ),
    "twice: the first new content": (steps(again("a", B), again("a", C)), {**REST, "a": B}, False),
    "twice: no content": (steps(again("a", B), again("a", C)), {**REST, "a": b""}, True),
    "twice, by two processes: no content": (
        steps(again("a", B), elsewhere(again("a", C))),
        {**REST, "a": b""},
        True,
    ),
    "the new file is renamed to the name, and is lost": (
        steps(remove("a"), create("n", B), move("n", "a")),
        {**REST, "n": b""},
        True,
    ),
    "the new file is renamed to the name, and is whole before": (
        steps(remove("a"), create("n", B), move("n", "a")),
        {**REST, "n": B},
        False,
    ),
    "an empty file on purpose": (again("a", b""), {**REST, "a": b""}, False),
    "an empty file on purpose, not yet made": (again("a", b""), REST, False),
    "an empty file held nothing": (again("e", B), FIRST, False),
    "a symbolic link instead": (steps(remove("a"), symlink), REST, False),
    "a journal of the run": (
        steps(create("j", B, synced=True), again("j", C)),
        {**FIRST, "j": b""},
        False,
    ),
    "two files, as by tar x: the second is missing": (
        steps(again("a", B), again("b", LONG[::-1])),
        {"a": B, "d": None, "d/x": A, "e": b""},
        True,
    ),
    "replaced by a rename afterwards": (
        steps(again("a", B), create("n", C, synced=True), move("n", "a")),
        {**REST, "a": C},
        False,
    ),
}


def oracle_of(run: Recorded) -> SnapshotOracle:
    return SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))


@pytest.mark.parametrize("name", VERDICTS)
def test_a_name_that_is_removed_and_created_again_is_judged_as_if_emptied(name: str, tmp_path: Path) -> None:
    program, folder, lost = VERDICTS[name]
    run = Recorded(tmp_path, program, FIRST, "ext4")
    oracle = oracle_of(run)
    verdicts = {oracle.judge_state(state).outcome for state in run.states if run.folder(state) == folder}
    assert verdicts == {Outcome.FAIL if lost else Outcome.PASS}


@pytest.mark.parametrize(("data", "how"), [(None, "missing"), (b"", "empty"), (LONG[:4096], "incomplete")])
def test_the_report_shows_what_is_lost_and_why(data: bytes | None, how: str, tmp_path: Path) -> None:
    run = Recorded(tmp_path, steps(HALF, lambda t: t.append("a", 4096, LONG[4096:])), FIRST, "ext4")
    oracle = oracle_of(run)
    wanted = REST if data is None else {**REST, "a": data}
    outputs = {oracle.judge_state(state).output for state in run.states if run.folder(state) == wanted}
    assert outputs == {f"atomicity: a can be {how} after a crash: it was removed before its new content was durable\n"}
