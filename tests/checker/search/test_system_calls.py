"""Searches over traces of system calls, with the oracle that needs no check: findings, and the call that is missing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from checker.oracles.test_snapshot import (
    NEW,
    OLD,
    dpkg_status,
    gzip,
    gzip_synchronous,
    replaced_without_the_directory,
    sed_in_place,
    sort_in_place,
)
from crashcheck.analyzer.persistence.pieces import DATA, NAME, SIZE
from crashcheck.checker.budget import Budget
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.describe import name_of, section_end, until
from crashcheck.checker.findings.register import Register
from crashcheck.checker.fixes.missing_calls import missing_call
from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.results import FindingKind, Location, Outcome, StopReason, Verdict
from crashcheck.checker.search.crash_states import Search
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts.image_judge import ImageJudge
from crashcheck.command import Command
from crashcheck.runtime.trace_format import Kind as Event
from crashcheck.runtime.trace_format import OutputKind
from support.checked_worlds import SitePlaces
from support.folders import Program, Recorded
from support.tracing import CallsBuilder


def recreated(t: CallsBuilder) -> None:
    t.remove("f")
    t.open("f")
    t.write("f", 0, NEW)
    t.fsync("f")


def recreated_by_a_rename(t: CallsBuilder) -> None:
    t.remove("f")
    t.open("tmp")
    t.write("tmp", 0, NEW)
    t.move("tmp", "f")


def searched(
    tmp: Path, program: Program, model: str, first: Sequence[str] = ("f",)
) -> list[tuple[FindingKind, str, str]]:
    """Kind, message and the fix of each finding, once every state was checked."""
    run = Recorded(tmp, program, dict.fromkeys(first, OLD), model)
    subject = Subject(run.trace, run.graph, run.space, run.content)
    command = CheckCommand.find(Command.of_text("true"), tmp)
    setup = CheckSetup(command=command, folder=tmp, first=tmp / "first", work=tmp)
    with ImageJudge(WorkerPool(run.content, run.space.points, setup), SnapshotOracle(subject)) as executor:
        search = Search(subject, executor, strategy("ranked"), Budget(None, 1000))
        found = search.run()
        assert found.stop_reason is StopReason.EXHAUSTED
        assert not found.uncertain
        bugs = search.register.bugs()
    return [(b.finding.kind, b.finding.message, missing_call(subject, b.drafts[0].cause).words) for b in bugs]


@pytest.mark.parametrize(
    ("program", "model", "expected"),
    [
        (
            gzip,
            "ext4",
            (
                FindingKind.ORDERING,
                "`f.gz` can be empty after a crash while `f` is gone: `f` is removed before `f.gz` is synced",
                "add fsync of f.gz before the removal of f",
            ),
        ),
        (
            gzip,
            "posix",
            (
                FindingKind.ORDERING,
                "`f.gz` can be missing after a crash while `f` is gone: "
                "`f` is removed before the folder of `f.gz` is synced",
                "add fsync of the directory . before the removal of f",
            ),
        ),
        (
            sort_in_place,
            "ext4",
            (
                FindingKind.ATOMICITY,
                "`f` can be empty after a crash: it is emptied before it is written",
                "no sync can help: write a new file, sync it, and rename it over the old one",
            ),
        ),
        *(
            (
                program,
                "ext4",
                (
                    FindingKind.ATOMICITY,
                    "`f` can be missing after a crash: it is removed before it is written again",
                    "write the new content to another file, sync it, and rename it over f",
                ),
            )
            for program in (recreated, recreated_by_a_rename)
        ),
        (
            sed_in_place,
            "ext4",
            (
                FindingKind.ORDERING,
                "`f` can hold zeros instead of some of its data after a crash: "
                "`tmp` is renamed to `f` before its data are synced",
                "add fsync of tmp before the rename of tmp to f",
            ),
        ),
        (
            replaced_without_the_directory,
            "ext4",
            (
                FindingKind.UNPERSISTED,
                "the rename of `tmp` to `f` can be lost in a crash although `done` was written to a pipe",
                "add fsync of the directory . before `done` is written to a pipe",
            ),
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_lost_update_is_one_finding_that_names_the_missing_call(
    program: Program, model: str, expected: tuple[FindingKind, str, str], tmp_path: Path
) -> None:
    assert searched(tmp_path, program, model) == [expected]


@pytest.mark.parametrize("threads", [(2, 3), (2, 2)], ids=["two threads", "one thread"])
def test_what_another_file_gets_in_between_is_no_part_of_how_a_file_is_saved(
    threads: tuple[int, int], tmp_path: Path
) -> None:
    """Of workers that each save a file the next update was that of another one, as it came, and so was the advice."""

    def program(t: CallsBuilder) -> None:
        for act in (lambda name: t.truncate(name, 0), lambda name: t.write(name, 0, NEW)):
            for name, thread in zip(("f", "g"), threads, strict=True):
                with t.thread(thread):
                    act(name)

    found = searched(tmp_path, program, "ext4", ("f", "g"))
    assert {fix for *_, fix in found} == {"no sync can help: write a new file, sync it, and rename it over the old one"}
    then = " before it is written" if threads[0] != threads[1] else ""
    assert found[0][1] == f"`f` can be empty after a crash: it is emptied{then}"


def test_records_that_are_appended_to_a_log_are_one_place(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        for number in range(4):
            t.append("f", len(OLD) + 100 * number, bytes([7]) * 100)
            t.acknowledge(OutputKind.PIPE, b"done")
            t.fsync("f")

    found = searched(tmp_path, program, "ext4")
    assert [(kind, message) for kind, message, _ in found] == [
        (
            FindingKind.UNPERSISTED,
            "what was appended to `f` can be lost in a crash although `done` was written to a pipe",
        ),
        (
            FindingKind.UNPERSISTED,
            "what was written to `f` can be lost in a crash although `done` was written to a pipe",
        ),
    ]


@pytest.mark.parametrize("synced", [False, True])
def test_files_of_random_names_that_replace_one_file_again_and_again_are_one_place(
    synced: bool, tmp_path: Path
) -> None:
    """Each file saved by mkstemp was a finding of its own where no call stack is known."""

    def program(t: CallsBuilder) -> None:
        names = ["f.a8Xq2z", "f.Tt04kk", "f.9dUUw1"] if synced else ["f.a8Xq2z", "f.Tt04kk"]  # of few states
        for number, name in enumerate(names):
            t.open(name)
            t.write(name, 0, bytes([number + 1]) * len(NEW))
            if synced:
                t.fsync(name)
            t.move(name, "f")
            t.acknowledge(OutputKind.PIPE, b"saved")

    found = searched(tmp_path, program, "ext4")
    assert [kind for kind, _, _ in found] == [FindingKind.UNPERSISTED if synced else FindingKind.ORDERING]


@pytest.mark.parametrize(
    ("written", "renamed", "advice"),
    [
        ("new", True, "new is renamed to f only when it is complete"),
        ("new", False, "write new under another name, sync it, and rename it; or let recovery accept it unfinished"),
        ("f", False, "write a new file, sync it, and rename it over the old one"),
        ("f", True, "write a new file, sync it, and rename it over the old one"),
    ],
)
def test_what_to_do_about_a_file_that_is_written_in_parts(
    written: str, renamed: bool, advice: str, tmp_path: Path
) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("new")
        t.write(written, 0, NEW)
        t.fsync(written)
        if renamed:
            t.move(written, "g" if written == "f" else "f")

    assert advice in advised(tmp_path, program, DATA)


@pytest.mark.parametrize("acknowledged", [True, False])
def test_a_new_file_of_which_a_part_was_acknowledged_is_a_log(acknowledged: bool, tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("new")
        t.append("new", 0, NEW)
        if acknowledged:
            t.acknowledge(OutputKind.PIPE, b"saved")
        t.append("new", len(NEW), NEW)

    log = "let recovery of new end at a record that is not complete"
    whole = "write new under another name, sync it, and rename it"
    assert (log if acknowledged else whole) in advised(tmp_path, program, DATA)


def test_a_new_file_that_is_emptied_and_written_again_is_no_log(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("new")
        t.append("new", 0, NEW)
        t.acknowledge(OutputKind.PIPE, b"saved")
        t.truncate("new", 0)
        t.append("new", 0, NEW)

    run = Recorded(tmp_path, program, {}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    emptied = int(np.flatnonzero((run.graph.kind == SIZE) & (run.graph.offset < run.graph.old_size))[-1])
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    cause = Cause(FindingKind.ATOMICITY, run.space.full(0), failed, emptied + 1, emptied, prefix=True)
    assert "write a new file, sync it, and rename it over the old one" in missing_call(subject, cause).words


def test_a_log_that_recovery_does_not_accept_is_not_replaced_by_a_rename(tmp_path: Path) -> None:
    """It fails from the first byte of the log until it is emptied: no other order of its own changes helps."""

    def program(t: CallsBuilder) -> None:
        t.append("log", 0, NEW)
        t.fsync("log")
        t.write("f", 0, NEW)
        t.fsync("f")
        t.truncate("log", 0)

    run = Recorded(tmp_path, program, {"f": OLD, "log": b""}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    logged, *_, changed = np.flatnonzero(run.graph.kind == DATA).tolist()
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    cause = Cause(
        FindingKind.ATOMICITY, run.space.full(0), failed, changed, logged, prefix=True, until=len(run.graph.kind) - 1
    )
    accept = "let recovery accept a crash between the two, or put both into one file"
    assert missing_call(subject, cause).words == f"no sync can help: {accept}"


def to_be_packed(t: CallsBuilder) -> None:
    t.append("f", len(OLD), NEW)
    t.fsync("f")
    t.move("f", "f.old")


def renamed_into_place(t: CallsBuilder) -> None:
    t.open("new")
    t.move("new", "f")
    t.append("f", 0, NEW)
    t.fsync("f")


@pytest.mark.parametrize("program", [to_be_packed, renamed_into_place])
def test_what_to_do_about_an_append_of_which_only_the_size_persists(program: Program, tmp_path: Path) -> None:
    """A database that was packed into a new file long after was called a file "renamed only when it is complete"."""
    run = Recorded(tmp_path, program, {"f": OLD}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    (size,), data = np.flatnonzero(run.graph.kind == SIZE), np.flatnonzero(run.graph.kind == DATA)
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    half = Cause(FindingKind.ATOMICITY, run.space.full(0), failed, int(data[0]), int(size), prefix=False, torn=True)
    assert "let recovery end at a record that is not complete" in missing_call(subject, half).words


def test_what_to_do_about_a_folder_that_must_not_be_empty(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.mkdir("folder")
        t.open("folder/new")

    assert "accept a crash between the two" in advised(tmp_path, program, NAME)


def test_a_file_that_is_removed_before_another_replaces_it_is_to_be_removed_afterwards(tmp_path: Path) -> None:
    """Writing the other file under another name and renaming it does not help: the removal is still first."""

    def program(t: CallsBuilder) -> None:
        t.open("old")
        t.remove("old")
        t.write("f", 0, b"moved")

    advice = advised(tmp_path, program, DATA)
    assert advice == "let the removal of old follow what is written to f, and an fsync of f"


@pytest.mark.parametrize(("named", "kind"), [(True, SIZE), (False, NAME), (False, SIZE)])
def test_of_two_files_the_one_that_another_depends_on_must_change_first(named: bool, kind: int, tmp_path: Path) -> None:
    """An index that counts what its log does not have got the advice to give the log's records checksums."""

    def program(t: CallsBuilder) -> None:
        t.open("index.new")
        t.open("log.new")
        if named:
            t.move("index.new", "index")
        else:
            t.write("f", 0, b"counts 1")
        if kind == SIZE:
            t.append("log.new", 0, b"record 1")
        else:
            t.move("log.new", "log")

    first = "the rename of index.new to index" if named else "8 bytes at offset 0x0 of f"
    then = {
        SIZE: "what is written to log.new, and an fsync of log.new",
        NAME: "the rename of log.new to log, and an fsync of the directory .",
    }[kind]
    accept = "or let recovery accept a crash between the two, or put both into one file"
    assert advised(tmp_path, program, kind) == f"no sync can help: let {first} follow {then}; {accept}"


@pytest.mark.parametrize("names", [False, True])
def test_what_comes_too_early_must_follow_the_change_after_which_the_files_are_right(
    names: bool, tmp_path: Path
) -> None:
    """It is not enough to follow the next change, which makes a new file."""

    def program(t: CallsBuilder) -> None:
        if names:
            t.open("part")
            t.move("f", "manifest")
            t.open("part.1")
            t.append("part.1", 0, NEW)
        else:
            t.truncate("f", 0)
            t.open("snapshot.new")
            t.append("snapshot.new", 0, NEW)
            t.move("snapshot.new", "snapshot")

    run = Recorded(tmp_path, program, {"f": OLD}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    early, created, *_, right = range(int(names), len(run.graph.kind))
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    state = run.space.full(0)
    cause = Cause(FindingKind.ATOMICITY, state, failed, created, early, prefix=True, until=right)
    order = {
        True: "let the rename of f to manifest follow what is written to part.1, and an fsync of part.1",
        False: "let the emptying of f follow the rename of snapshot.new to snapshot, and an fsync of the directory .",
    }[names]
    accept = "or let recovery accept a crash between the two, or put both into one file"
    assert missing_call(subject, cause).words == f"no sync can help: {order}; {accept}"
    assert section_end(subject, cause) == created
    assert until(subject, cause) == f"each crash from there until {name_of(subject, right)} leaves such a state"


def test_a_finding_does_not_call_another_one_that_no_sync_prevents_a_missing_sync(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        for name in ("f", "g", "h"):
            t.write(name, 0, b"part")

    run = Recorded(tmp_path, program, {"f": b"0000", "g": b"0000", "h": b"0000"}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    register = Register(subject)
    pieces = np.flatnonzero(run.graph.kind == DATA).tolist()
    for kept, lost in pairwise(pieces):
        event = subject.event_of(lost)
        register.add(Cause(FindingKind.ATOMICITY, subject.prefix(event), failed, lost, kept, prefix=True, moment=event))
    (bug,) = register.bugs()
    assert "other crashes, which no sync prevents, fail too: a crash between what was written" in bug.finding.note
    assert "syncs are missing" not in bug.finding.note


def test_a_sync_before_a_later_update_does_not_fix_a_loss_of_what_was_reported(tmp_path: Path) -> None:
    """Nothing is synced: data before the header is one missing sync, the header before the report another one."""

    def program(t: CallsBuilder) -> None:
        for number in (b"1", b"2"):
            t.site = 1
            t.write("f", 4096, number)
            t.site = 2
            t.write("f", 0, number)
            t.site = 3
            t.acknowledge(OutputKind.PIPE, number)

    run = Recorded(tmp_path, program, {"f": b"0" * 8192}, "ext4")
    places = SitePlaces(run.trace, {line: Location("store.c", line, 1, "put", "", ()) for line in (1, 2, 3)})
    subject = Subject(run.trace, run.graph, run.space, run.content, places)
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    last = len(run.space.points) - 1

    def note(*causes: tuple[FindingKind, int, int | None]) -> str:
        register = Register(subject)
        for kind, lost, kept in causes:
            register.add(Cause(kind, run.space.drop(last, [lost]), failed, lost, kept))
        (bug,) = register.bugs()
        return bug.finding.note

    data, header, data_again, header_again = np.flatnonzero(run.graph.kind == DATA).tolist()
    order = (FindingKind.ORDERING, data, header)
    assert "the same fix also fixes" in note(order, (FindingKind.UNPERSISTED, data_again, None))
    reported = note(order, (FindingKind.UNPERSISTED, data, None), (FindingKind.UNPERSISTED, header_again, None))
    assert "other syncs are missing, too" in reported
    overtaken = note(order, (FindingKind.UNPERSISTED, data, None), (FindingKind.UNPERSISTED, header, None))
    assert "other syncs are missing, too" in overtaken  # the next header follows the report of this one


def advised(tmp: Path, program: Program, kind: int) -> str:
    """The fix where `kill -9` fails the check before the last update of a kind."""
    run = Recorded(tmp, program, {"f": OLD}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    lost, failed = int(np.flatnonzero(run.graph.kind == kind)[-1]), Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    killed = Cause(FindingKind.ATOMICITY, run.space.full(0), failed, lost, lost - 1, prefix=True)
    return missing_call(subject, killed).words


def test_a_write_in_place_by_another_line_may_have_to_follow_the_next_one(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.fsync("f")
        for t.site, offset in ((1, 0), (2, 4096)):
            t.write("f", offset, b"new")
            t.fsync("f")

    run = Recorded(tmp_path, program, {"f": bytes(8192)}, "ext4")
    places = SitePlaces(run.trace, {line: Location("q.c", line, 1, "add", "", ()) for line in (1, 2)})
    subject = Subject(run.trace, run.graph, run.space, run.content, places)
    header, record = np.flatnonzero(run.graph.kind == DATA).tolist()
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    killed = Cause(FindingKind.ATOMICITY, run.space.full(0), failed, record, header, prefix=True)
    assert missing_call(subject, killed).words == (
        "no sync can help: let the write at q.c:1 follow that at q.c:2 and a sync; or write a new file, sync it, and "
        "rename it over the old one"
    )


@pytest.mark.parametrize(
    ("program", "model"),
    [(gzip_synchronous, "posix"), (dpkg_status, "posix"), (sed_in_place, "ext4-strict"), (sed_in_place, "xfs")],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_programs_that_sync_in_order_are_clean(program: Program, model: str, tmp_path: Path) -> None:
    assert searched(tmp_path, program, model) == []


def test_a_crash_between_pages_that_one_comparison_of_a_mapping_found_is_a_reordering_in_both_ways(
    tmp_path: Path,
) -> None:
    def program(t: CallsBuilder) -> None:
        t.fsync("f")
        t.compared("f", 0, b"new")
        t.compared("f", 4096, b"new")
        t.fsync("f")

    lost = "`f` can lose what was stored at {} in a crash and keep what was stored at {}"
    assert sorted((kind, words) for kind, words, _ in searched(tmp_path, program, "ext4")) == [
        (FindingKind.ORDERING, lost.format("0x0", "0x1000")),
        (FindingKind.ORDERING, lost.format("0x1000", "0x0")),
    ]


def test_a_moment_is_known_unless_a_mapping_may_have_been_stored_to_before(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.compared("f", 0, b"one")
        t.append("g", 0, b"log")
        t.compared("f", 0, b"two")
        t.append("g", 3, b"log")
        t.fsync("f")
        t.compared("f", 0, b"new")

    run = Recorded(tmp_path, program, {"f": OLD, "g": b""}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    kinds = run.trace.events["kind"]
    first, second, third = np.flatnonzero(kinds == Event.STORE).tolist()
    log, more = np.flatnonzero(kinds == Event.WRITE).tolist()
    known = [subject.is_known_moment(event) for event in (first, log, second, more, third)]
    assert known == [True, True, False, True, True]


def test_before_a_file_is_mapped_at_first_nothing_is_stored_through_a_mapping(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.truncate("f", 8192)
        t.map("f")
        t.append("g", 0, b"log")
        t.compared("f", 4096, b"new")

    run = Recorded(tmp_path, program, {"f": OLD, "g": b""}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    events = [
        int(np.flatnonzero(run.trace.events["kind"] == kind)[0]) for kind in (Event.TRUNCATE, Event.WRITE, Event.STORE)
    ]
    assert [subject.is_known_moment(event) for event in events] == [True, True, False]


def test_the_first_verdict_does_not_wait_for_further_states(tmp_path: Path) -> None:
    run = Recorded(tmp_path, gzip, {"f": OLD}, "ext4")
    subject = Subject(run.trace, run.graph, run.space, run.content)
    setup = CheckSetup(CheckCommand.find(Command.of_text("true"), tmp_path), tmp_path, tmp_path / "first", tmp_path)
    asked: list[str] = []

    class Noting(ImageJudge):
        def submit(self, state: CrashState) -> int:
            asked.append("submit")
            return super().submit(state)

        def result(self, ticket: int, timeout_s: float | None = None) -> Verdict | None:
            asked.append("result")
            return super().result(ticket, timeout_s)

    with Noting(WorkerPool(run.content, run.space.points, setup), SnapshotOracle(subject)) as executor:
        Search(subject, executor, strategy("exhaustive"), Budget(None, 20)).run()
    assert asked[:2] == ["submit", "result"]
