"""The generic oracle on what everyday programs do: lost bytes, lost acknowledgements, and programs that are clean."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.budget import Counting, OutOfTime
from crashcheck.checker.oracles.snapshot import ATOMICITY, DURABILITY, SnapshotOracle
from crashcheck.checker.results import Outcome
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import OutputKind, SyncKind
from support.folders import Folder, Program, Recorded
from support.tracing import CallsBuilder

OLD, NEW = bytes(range(256)) * 20, bytes(range(255, -1, -1)) * 20
PACKED = bytes(range(100))
ALL = ("ext4", "ext4-strict", "posix")


def done(t: CallsBuilder) -> None:
    t.acknowledge(OutputKind.PIPE, b"done")


def gzip(t: CallsBuilder) -> None:
    t.open("f.gz")
    t.write("f.gz", 0, PACKED)
    t.remove("f")


def gzip_synchronous(t: CallsBuilder) -> None:
    t.open("f.gz")
    t.write("f.gz", 0, PACKED)
    t.fdatasync("")
    t.fsync("f.gz")
    t.remove("f")


def sort_in_place(t: CallsBuilder) -> None:
    t.truncate("f", 0)
    t.write("f", 0, NEW)


def sed_in_place(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, NEW)
    t.move("tmp", "f")


def replaced_safely(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, NEW)
    t.fsync("tmp")
    t.move("tmp", "f")
    t.fsync("")
    done(t)


def replaced_without_the_directory(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, NEW)
    t.fsync("tmp")
    t.move("tmp", "f")
    done(t)


def dpkg_status(t: CallsBuilder) -> None:
    t.open("f-new")
    t.write("f-new", 0, NEW)
    t.fsync("f-new")
    t.link("f", "f-old")
    t.move("f-new", "f")
    t.fsync("")
    done(t)


def rollback_journal(t: CallsBuilder) -> None:
    t.open("f-journal")
    t.write("f-journal", 0, OLD)
    t.fdatasync("f-journal")
    t.fdatasync("")
    t.write("f", 0, NEW)
    t.fdatasync("f")
    t.remove("f-journal")
    done(t)


def rollback_journal_extra(t: CallsBuilder) -> None:
    t.open("f-journal")
    t.write("f-journal", 0, OLD)
    t.fdatasync("f-journal")
    t.fdatasync("")
    t.write("f", 0, NEW)
    t.fdatasync("f")
    t.remove("f-journal")
    t.fdatasync("")
    done(t)


def logged_ahead(t: CallsBuilder) -> None:
    t.open("f-wal")
    t.fsync("")
    t.write("f-wal", 0, NEW)
    t.fdatasync("f-wal")
    done(t)


def appended_with_o_dsync(t: CallsBuilder) -> None:
    for number in range(3):
        t.append("f", len(OLD) + number, b"x")
        t.sync(SyncKind.ODSYNC, "f", len(OLD) + number, 1)
        done(t)


def asked(tmp: Path, program: Program, first: Folder, model: str) -> set[str]:
    """What any crash state violates."""
    run = Recorded(tmp, program, first, model)
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    verdicts = map(oracle.judge_state, run.states)
    return {sign for verdict in verdicts for sign in verdict.signs if sign in (ATOMICITY, DURABILITY)}


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (gzip, ALL),
        (gzip_synchronous, ()),
        (sort_in_place, ALL),
        (sed_in_place, ("ext4", "posix")),
        (replaced_safely, ()),
        (dpkg_status, ()),
        (rollback_journal_extra, ()),
        (logged_ahead, ()),
        (appended_with_o_dsync, ()),
    ],
)
@pytest.mark.parametrize("model", ALL)
def test_programs_without_acknowledgement_lose_data_where_a_real_file_system_does(
    program: Program, found: tuple[str, ...], model: str, tmp_path: Path
) -> None:
    assert asked(tmp_path, program, {"f": OLD}, model) == ({ATOMICITY} if model in found else set())


@pytest.mark.parametrize("model", ALL)
def test_what_is_stored_in_a_folder_that_was_empty_counts(model: str, tmp_path: Path) -> None:
    def pack(t: CallsBuilder) -> None:
        """As git repack does: the folder of packs is there and empty."""
        t.open("packs/p")
        t.write("packs/p", 0, PACKED)
        t.fsync("packs/p")
        t.fsync("packs")
        t.remove("f")
        t.remove("g")

    assert asked(tmp_path, pack, {"f": OLD, "g": NEW, "packs": None}, model) == set()


@pytest.mark.parametrize("model", ALL)
def test_what_was_acknowledged_before_its_directory_was_synced_can_be_lost_in_every_model(
    model: str, tmp_path: Path
) -> None:
    assert asked(tmp_path, replaced_without_the_directory, {"f": OLD}, model) == {DURABILITY}


@pytest.mark.parametrize("model", ALL)
def test_a_removed_file_that_comes_back_is_left_to_a_check_of_the_program(model: str, tmp_path: Path) -> None:
    assert asked(tmp_path, rollback_journal, {"f": OLD}, model) == set()


LOGGED = bytes(range(1, 200))


def log_cut(t: CallsBuilder) -> None:
    """A log whose content is in the database now."""
    t.write("f", 0, NEW)
    t.fsync("f")
    t.truncate("log", 0)
    done(t)


def log_cleared(t: CallsBuilder) -> None:
    t.write("f", 0, NEW)
    t.fsync("f")
    t.write("log", 0, bytes(len(LOGGED)))
    done(t)


def log_removed(t: CallsBuilder) -> None:
    t.write("f", 0, NEW)
    t.fsync("f")
    t.remove("log")
    done(t)


def log_recycled(t: CallsBuilder) -> None:
    t.write("f", 0, NEW)
    t.fsync("f")
    t.move("log", "log2")
    done(t)


def log_recycled_and_used(t: CallsBuilder) -> None:
    t.move("log", "log2")
    t.write("log2", 0, LOGGED[::-1])
    t.fdatasync("log2")
    done(t)


def notes_written(t: CallsBuilder) -> None:
    """A file for people, beside one that is synced."""
    t.open("LOG")
    t.write("LOG", 0, b"opened")
    t.write("f", 0, NEW)
    t.fsync("f")
    t.fsync("")
    done(t)


def synced_in_part(t: CallsBuilder) -> None:
    t.write("log", 0, LOGGED[::-1])
    t.write("f", 0, NEW)
    t.fsync("f")
    t.write("log", 0, LOGGED[1:])
    done(t)
    t.fsync("log")


def second_sync_missing(t: CallsBuilder) -> None:
    t.write("f", 0, NEW)
    t.fsync("f")
    t.write("f", 0, OLD[:100])
    done(t)


def never_synced(t: CallsBuilder) -> None:
    t.write("f", 0, NEW)
    done(t)


@pytest.mark.parametrize("program", [log_cut, log_cleared, log_removed, notes_written])
@pytest.mark.parametrize("model", ALL)
def test_what_was_removed_or_cleared_loses_nothing_when_it_comes_back(
    program: Program, model: str, tmp_path: Path
) -> None:
    assert asked(tmp_path, program, {"f": OLD, "log": LOGGED}, model) == set()


def log_used_again(t: CallsBuilder) -> None:
    """As sqlite3 uses its journal with journal_mode=persist."""
    for number in range(2):
        t.write("log", 0, bytes([number + 1]) * len(OLD))  # what f holds
        t.fdatasync("log")
        t.write("f", 0, bytes([number + 2]) * len(OLD))
        t.fdatasync("f")


def log_cut_and_used_again(t: CallsBuilder) -> None:
    """As sqlite3 uses its log after a checkpoint that truncates it."""
    for number in range(2):
        t.write("log", 0, bytes([number + 1]) * len(OLD))  # what f holds
        t.fdatasync("log")
        t.write("f", 0, bytes([number + 2]) * len(OLD))
        t.fdatasync("f")
        t.truncate("log", 0)


def journal_emptied(t: CallsBuilder) -> None:
    """As sqlite3 does with journal_mode=truncate, here without syncs, and a process that is killed."""
    for number in range(2):
        t.write("log", 0, bytes([number + 1]) * len(OLD))
        t.write("f", 0, bytes([number + 2]) * len(OLD))
        t.truncate("log", 0)


def saved_twice(t: CallsBuilder) -> None:
    """In place, and nothing else is synced: the log's twin that loses data."""
    for number in range(2):
        t.truncate("log", 0)
        t.write("log", 0, bytes([number + 1]) * 5000)
        t.fdatasync("log")


def memory_shared(t: CallsBuilder) -> None:
    """A mapped file that nothing syncs, beside one that is synced."""
    t.open("tmp")
    t.write("tmp", 0, bytes([2]) * len(OLD))
    t.compared("shared", 0, bytes([7]) * len(OLD))
    t.fdatasync("tmp")
    t.move("tmp", "f")


@pytest.mark.parametrize(
    ("program", "found"),
    [
        (log_used_again, set()),
        (log_cut_and_used_again, set()),
        (memory_shared, set()),
        (saved_twice, {ATOMICITY}),
    ],
)
def test_a_log_may_be_used_again_once_what_it_protects_is_synced(
    program: Program, found: set[str], tmp_path: Path
) -> None:
    first = {"f": bytes([1]) * len(OLD), "log": b"", "shared": bytes(len(OLD))}
    assert asked(tmp_path, program, first | {"log": b"begun"} if found else first, "ext4") == found


@pytest.mark.parametrize(
    ("model", "found"), [("ext4", set()), ("ext4-strict", set()), ("posix", {ATOMICITY, DURABILITY})]
)
def test_a_recycled_file_loses_nothing_where_it_has_one_of_its_two_names(
    model: str, found: set[str], tmp_path: Path
) -> None:
    assert asked(tmp_path, log_recycled, {"f": OLD, "log": LOGGED}, model) == found


@pytest.mark.parametrize(
    "program", [log_recycled_and_used, synced_in_part, second_sync_missing, never_synced], ids=lambda p: p.__name__
)
@pytest.mark.parametrize("model", ALL)
def test_acknowledged_bytes_that_are_at_their_place_no_more_are_lost(
    program: Program, model: str, tmp_path: Path
) -> None:
    assert DURABILITY in asked(tmp_path, program, {"f": OLD, "log": LOGGED}, model)


def test_a_journal_that_is_emptied_as_it_was_at_first_loses_nothing_by_a_kill(tmp_path: Path) -> None:
    run = Recorded(tmp_path, journal_emptied, {"f": bytes([1]) * len(OLD), "log": b""}, "ext4")
    oracle = SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content))
    between = {"f": bytes([2]) * len(OLD), "log": b""}
    emptied = [state for state in run.states if run.folder(state) == between]
    assert emptied
    assert {oracle.judge_state(state).outcome for state in emptied} == {Outcome.PASS}


@pytest.mark.parametrize(
    ("program", "notes"),
    [
        (
            notes_written,
            ("durability was not judged of files that are never synced, because the program syncs others: LOG",),
        ),
        (replaced_safely, ()),  # the replaced file was not written
    ],
)
def test_files_that_are_never_synced_beside_others_that_are_get_a_note(
    program: Program, notes: tuple[str, ...], tmp_path: Path
) -> None:
    run = Recorded(tmp_path, program, {"f": OLD}, "ext4")
    assert SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content)).notes == notes


@pytest.mark.parametrize("model", ALL)
def test_a_file_that_is_made_in_an_empty_folder_has_nothing_to_lose(model: str, tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("g")
        t.write("g", 0, NEW)

    assert asked(tmp_path, program, {}, model) == set()


@pytest.mark.parametrize(("kind", "found"), [(OutputKind.STDERR, set()), (OutputKind.PIPE, {DURABILITY})])
def test_progress_on_standard_error_acknowledges_nothing(kind: OutputKind, found: set[str], tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.write("f", 0, NEW)
        t.fsync("f")
        t.append("f", len(NEW), b"more")
        t.acknowledge(kind, b"50 %")

    assert asked(tmp_path, program, {"f": OLD}, "ext4") == found


def test_a_file_of_a_terabyte_is_judged_by_the_bytes_that_were_written(tmp_path: Path) -> None:
    end = (1 << 40) - len(PACKED)

    def program(t: CallsBuilder) -> None:
        t.truncate("f", 1 << 40)
        t.write("f", end, PACKED)
        done(t)
        t.truncate("f", len(OLD))

    assert asked(tmp_path, program, {"f": OLD}, "ext4") == {DURABILITY}


def test_going_through_a_run_ends_when_its_time_is_over_and_knows_how_far_it_came(tmp_path: Path) -> None:
    def over() -> None:
        raise OutOfTime

    run = Recorded(tmp_path, gzip_synchronous, {"f": OLD}, "ext4")
    reading = Counting(keep_on=over)
    with pytest.raises(OutOfTime):
        SnapshotOracle(Subject(run.trace, run.graph, run.space, run.content), reading=reading)
    assert reading.text == "4 of 11 events"
