"""First sentences of findings of system calls: plain words, and true of the state that failed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from checker.oracles.test_snapshot import (
    NEW,
    OLD,
    done,
    gzip,
    replaced_without_the_directory,
    sed_in_place,
    sort_in_place,
)
from checker.oracles.test_snapshot_by_reference import FIRST, Sequence
from crashcheck.analyzer.persistence.pieces import DATA, SIZE
from crashcheck.checker.budget import Budget
from crashcheck.checker.execution.check_command import CheckCommand, CheckSetup
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.sentence import message
from crashcheck.checker.oracles.snapshot import SnapshotOracle
from crashcheck.checker.results import FindingKind, Frame, Location, Outcome, Verdict
from crashcheck.checker.search.crash_states import Search
from crashcheck.checker.strategies import strategy
from crashcheck.checker.subject import NoProvenance, Provenance, Subject
from crashcheck.checker.verdicts.image_judge import ImageJudge
from crashcheck.command import Command
from crashcheck.runtime.trace_format import OutputKind
from support.examples_tried import examples
from support.folders import Folder, Program, Recorded
from support.paths import ROOT
from support.tracing import CallsBuilder

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
# Terms that are ordinary words of people who write files.
ORDINARY = {"sync", "run", "place", "operation", "lost", "block", "node", "action", "state", "journal"}


def banned() -> re.Pattern[str]:
    """The terms of the glossary, without what is in parentheses, and words for how a finding is made."""
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)
    terms = {term.strip(" `") for row in rows for term in re.sub(r"\(.*?\)", "", row).split(",")}
    terms = {term for term in terms if term and not term.startswith("-")} - ORDINARY - {"term"}
    assert {"update", "update behaviour", "snapshot", "acknowledgement", "flush", "fence"} <= terms
    more = {"behaviours?", "durable", "pending", "persist", "persisted", "atomicity", "ordering", "check rejects"}
    return re.compile(r"\b(?:" + "|".join([*map(re.escape, sorted(terms)), *sorted(more)]) + r")\b", re.IGNORECASE)


class Lines:
    """A place in the source for each event: the line is its number."""

    def of(self, event: int) -> Location | None:
        return Location("save.py", event, 0, "save", "", ())

    def of_load(self, load: int) -> Location | None:
        return None

    def ordinal(self, event: int) -> int:
        return 0


class Wrapped(Lines):
    """One function of the program makes all its calls; `save`, at the line with the event's number, calls it."""

    def of(self, event: int) -> Location | None:
        return Location("io.py", 3, 0, "put", "", (Frame("retry", "io.py", 9), Frame("save", "save.py", event)))


def causes(
    tmp: Path, program: Program, first: Folder, model: str, lines: Provenance | None = None
) -> Iterator[tuple[Cause, str]]:
    """Each cause with its sentence, once some hundred states were checked."""
    run = Recorded(tmp, program, first, model, most=0)
    subject = Subject(run.trace, run.graph, run.space, run.content, lines or NoProvenance())
    command = CheckCommand.find(Command.of_text("true"), tmp)
    setup = CheckSetup(command=command, folder=tmp, first=tmp / "first", work=tmp)
    with ImageJudge(WorkerPool(run.content, run.space.points, setup), SnapshotOracle(subject)) as executor:
        search = Search(subject, executor, strategy("ranked"), Budget(None, 400))
        search.run()
        for draft in search.register.drafts:
            text = message(subject, draft.cause)
            check_is_true(text, run.folder(draft.cause.state))
            yield draft.cause, text


def check_is_true(text: str, folder: dict[str, bytes | None]) -> None:
    """What a sentence states of files is so in the folder of the state that failed."""
    for path, what in re.findall(
        r"`([^`]+)` can (be missing|be empty|hold nothing but zeros|be gone|be the old one) after a crash", text
    ):
        held = folder.get(path)
        if what in ("be missing", "be gone"):
            assert path not in folder, text
        elif what == "be the old one":
            assert path in folder, text
        elif what == "be empty":
            assert held == b"", text
        else:
            assert held, text
            assert not held.strip(b"\0"), text
    for path in re.findall(r"while `([^`]+)` is gone:", text):
        assert path not in folder, text


def cut_by_another(t: CallsBuilder) -> None:
    t.write("log", 0, b"x" * 50)
    t.fsync("log")
    t.truncate("f", 0)
    t.write("log", 50, b"y" * 50)


def appended(t: CallsBuilder) -> None:
    t.append("f", len(OLD), NEW)
    t.fsync("f")


def created(t: CallsBuilder) -> None:
    t.open("f.new")
    t.write("f.new", 0, NEW)
    t.acknowledge(OutputKind.STDOUT, b"12:30:01 all saved\n")


def created_in_parts(t: CallsBuilder) -> None:
    t.open("f.new")
    t.write("f.new", 0, NEW)
    t.acknowledge(OutputKind.STDOUT, b"half\n")
    t.fsync("f.new")
    t.write("f.new", len(NEW), NEW)
    t.acknowledge(OutputKind.STDOUT, b"all\n")


def published(t: CallsBuilder) -> None:
    t.open("f.part")
    t.write("f.part", 0, NEW)
    t.move("f.part", "f.new")


def replaced_beside_another(t: CallsBuilder) -> None:
    t.open("part")
    t.write("part", 0, b"part" * 1000)
    t.open("tmp")
    t.write("tmp", 0, NEW)
    t.fsync("tmp")
    t.move("tmp", "f")


def rotated(t: CallsBuilder) -> None:
    t.append("f", len(OLD), NEW)
    t.move("f", "f.1")
    t.fsync("")
    done(t)


def removed_after_output(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, NEW)
    t.fsync("tmp")
    t.acknowledge(OutputKind.TERMINAL, b"saved\r\n")
    t.move("tmp", "f")
    done(t)


def rewritten(t: CallsBuilder) -> None:
    t.write("f", 0, NEW[:4096])
    t.write("f", 4096, NEW[4096:])
    t.fsync("f")


def short_rename(t: CallsBuilder) -> None:
    t.open("tmp")
    t.write("tmp", 0, b"short")
    t.move("tmp", "f")


def overwritten_and_longer(t: CallsBuilder) -> None:
    t.write("f", 0, b"n" * (len(OLD) + 4096))


def overwritten_and_cut(t: CallsBuilder) -> None:
    t.write("f", 0, NEW[:100])
    t.truncate("f", 100)


def replaced_and_removed(t: CallsBuilder) -> None:
    t.write("log", 0, NEW)
    t.sync_all()
    t.open("tmp")
    t.write("tmp", 0, NEW)
    t.fsync("tmp")
    t.move("tmp", "f")
    t.remove("log")


def recreated(t: CallsBuilder) -> None:
    t.remove("f")
    t.open("f")
    t.write("f", 0, NEW)
    t.fsync("f")


def removed_and_replaced(t: CallsBuilder) -> None:
    """zip."""
    t.open("tmp")
    t.write("tmp", 0, NEW)
    t.remove("f")
    t.move("tmp", "f")


def replaced_and_cleaned_up(t: CallsBuilder) -> None:
    """Mercurial: a copy of what was replaced is removed, and its name given again."""
    t.link("f", "undo")
    t.open("tmp")
    t.write("tmp", 0, b"short")
    t.move("tmp", "f")
    t.remove("undo")
    t.open("undo")


SHAPES = [
    (sort_in_place, "ext4", "`f` can be empty after a crash: it is emptied before it is written"),
    (
        gzip,
        "ext4",
        "`f.gz` can be empty after a crash while `f` is gone: `f` is removed before `f.gz` is synced",
    ),
    (
        gzip,
        "posix",
        "`f.gz` can be missing after a crash while `f` is gone: `f` is removed before the folder of `f.gz` is synced",
    ),
    (
        sed_in_place,
        "ext4",
        "`f` can hold zeros instead of some of its data after a crash: "
        "`tmp` is renamed to `f` before its data are synced",
    ),
    (
        short_rename,
        "ext4",
        "`f` can hold nothing but zeros after a crash: `tmp` is renamed to `f` before its data are synced",
    ),
    (
        overwritten_and_longer,
        "ext4",
        "`f` can be cut short after a crash: one write to it can end in the middle",
    ),
    (
        overwritten_and_cut,
        "ext4",
        "`f` can lack some of its bytes after a crash: what was written to `f` is not synced before the shortening of "
        "`f`",
    ),
    (
        replaced_and_removed,
        "posix",
        "`f` can be the old one after a crash while `log` is gone: `log` is removed before the folder of `f` is synced",
    ),
    (
        removed_and_replaced,
        "ext4",
        "`f` can hold zeros instead of some of its data after a crash: it is removed before `tmp`, which replaces it, "
        "is synced",
    ),
    (
        replaced_and_cleaned_up,
        "ext4",
        "`f` can hold nothing but zeros after a crash: "
        "what was written to `tmp` is not synced before the removal of `undo`",
    ),
    (recreated, "ext4", "`f` can be missing after a crash: it is removed before it is written again"),
    (
        replaced_without_the_directory,
        "ext4",
        "the rename of `tmp` to `f` can be lost in a crash although `done` was written to a pipe",
    ),
    (
        published,
        "ext4",
        "`f.new` can hold zeros instead of some of its data after a crash: "
        "`f.part` is renamed to `f.new` before its data are synced",
    ),
    (
        replaced_beside_another,
        "ext4",
        "`part` can be empty after a crash while `f` is in place: `tmp` is renamed to `f` before `part` is synced",
    ),
    (
        rotated,
        "ext4",
        "what was appended to `f.1` (as `f`) can be lost in a crash although `done` was written to a pipe",
    ),
    (
        created_in_parts,
        "ext4",
        "what was written to `f.new` can be lost in a crash although `all` was printed",
    ),
    (created, "ext4", "what was written to `f.new` can be lost in a crash although `… all saved` was printed"),
]


@pytest.mark.parametrize(("program", "model", "sentence"), SHAPES, ids=lambda value: getattr(value, "__name__", None))
def test_the_sentence_names_the_harm_and_what_was_done_too_early(
    program: Program, model: str, sentence: str, tmp_path: Path
) -> None:
    assert sentence in [text for _, text in causes(tmp_path, program, {"f": OLD, "log": b""}, model)]


@pytest.mark.parametrize("program", [shape[0] for shape in SHAPES[:4]], ids=lambda value: value.__name__)
def test_a_known_line_makes_the_function_the_subject(program: Program, tmp_path: Path) -> None:
    (text, *_) = [text for _, text in causes(tmp_path, program, {"f": OLD, "log": b""}, "ext4", Lines())]
    assert re.search(r"after a crash.*: `save` \(save\.py:\d+\) (empties|removes|renames) ", text)


def test_two_calls_by_one_line_are_told_apart_by_their_callers(tmp_path: Path) -> None:
    run = Recorded(tmp_path, rewritten, {"f": OLD}, "ext4", most=0)
    subject = Subject(run.trace, run.graph, run.space, run.content, Wrapped())
    earlier, later = np.flatnonzero(run.graph.kind == DATA).tolist()
    lines = [f"`save`, save.py:{subject.event_of(piece)}" for piece in (later, earlier)]
    state = subject.prefix(subject.event_of(later))
    cause = Cause(FindingKind.ORDERING, state, Verdict(Outcome.FAIL, 1, None, "", False, 0.0), earlier, later)
    assert message(subject, cause) == (
        f"`f` can lose what was written first ({lines[1]}) in a crash and keep what was written later ({lines[0]})"
    )


@pytest.mark.hypothesis  # ten times as many in `make test-slow`
def test_no_sentence_uses_words_of_the_glossary_or_claims_what_the_failing_state_does_not_show(tmp_path: Path) -> None:
    class Reporting(Sequence):
        """Prints, too."""

        def sync(self) -> None:
            super().sync()
            done(self.t)

    jargon, seen = banned(), set()
    for seed in range(examples(24)):
        model = ("ext4", "posix", "ext4-strict")[seed % 3]
        sequence = Reporting(random.Random(seed))
        for _, text in causes(tmp_path / str(seed), sequence, FIRST, model, Lines() if seed % 2 else None):
            assert not jargon.search(re.sub(r"`[^`]*`", "", text)), text
            seen.add(re.sub(r"`[^`]*`|\(.*?\)|\d+", "", text))
    assert len(seen) > 12


def test_a_check_of_the_users_own_is_named_where_files_alone_show_no_harm(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.write("a", 0, b"1")
        t.write("b", 0, b"1")

    run = Recorded(tmp_path, program, {"a": b"0", "b": b"0"}, "ext4", most=0)
    subject = Subject(run.trace, run.graph, run.space, run.content)
    first, second = range(2)
    event = subject.event_of(second)
    for outcome, harm in ((Outcome.FAIL, "leaves files that fail the check"), (Outcome.SIGNAL, "kills the check")):
        verdict = Verdict(outcome, 1, None, "", False, 0.0)
        cause = Cause(FindingKind.ATOMICITY, subject.prefix(event), verdict, second, first, prefix=True, moment=event)
        between = "a crash between what was written to `a` and what was written to `b`"
        assert message(subject, cause) == f"{between} {harm}"


class Helpers(Lines):
    """One function makes files, another writes them."""

    def of(self, event: int) -> Location | None:
        return Location("io.c", event, 0, self.names[event], "", ())

    def __init__(self, *names: str) -> None:
        self.names = dict(enumerate(names))


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (NoProvenance(), "it is created before it is written"),
        (Helpers("save", "save"), "`save` (io.c:0) creates it before it writes it"),
        (Helpers("create", "put"), "`create` (io.c:0) creates it before `put` (io.c:1) writes it"),
    ],
)
def test_a_file_that_has_a_name_and_no_content_yet_can_be_empty(lines: Provenance, words: str, tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("f")
        t.write("f", 0, b"1")

    run = Recorded(tmp_path, program, {}, "ext4", most=0)
    subject = Subject(run.trace, run.graph, run.space, run.content, lines)
    created, written = 0, len(run.graph) - 1
    event = subject.event_of(written)
    if isinstance(lines, Helpers):
        lines.names = {subject.event_of(created): lines.names[0], event: lines.names[1]}
        words = words.replace("io.c:0", f"io.c:{subject.event_of(created)}").replace("io.c:1", f"io.c:{event}")
    verdict = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    cause = Cause(FindingKind.ATOMICITY, subject.prefix(event), verdict, written, created, prefix=True, moment=event)
    assert message(subject, cause) == f"`f` can be empty after a crash: {words}"


def test_a_file_that_has_its_size_and_no_content_yet_can_hold_nothing_but_zeros(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.open("f")
        t.truncate("f", 1 << 20)
        t.write("f", 0, b"1")

    run = Recorded(tmp_path, program, {}, "ext4", most=0)
    subject = Subject(run.trace, run.graph, run.space, run.content, NoProvenance())
    _, extended, written = range(len(run.graph))
    event = subject.event_of(written)
    verdict = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    cause = Cause(FindingKind.ATOMICITY, subject.prefix(event), verdict, written, extended, prefix=True, moment=event)
    zeros = "`f` can hold nothing but zeros after a crash: it is extended before it is written"
    assert message(subject, cause) == zeros


@pytest.mark.parametrize(("written", "lost"), [(b"1", "what was written to `f`"), (b"", "the emptying of `f`")])
def test_of_a_file_that_is_emptied_and_written_then_what_was_written_is_lost(
    written: bytes, lost: str, tmp_path: Path
) -> None:
    def program(t: CallsBuilder) -> None:
        t.truncate("f", 0)
        if written:
            t.write("f", 0, written)
        t.acknowledge(OutputKind.STDOUT, b"saved\n")

    run = Recorded(tmp_path, program, {"f": OLD}, "ext4", most=0)
    subject = Subject(run.trace, run.graph, run.space, run.content, NoProvenance())
    last = len(run.space.points) - 1
    verdict = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    cause = Cause(FindingKind.UNPERSISTED, run.space.drop(last, (0,)), verdict, 0, None)
    assert message(subject, cause) == f"{lost} can be lost in a crash although `saved` was printed"


def test_what_one_function_removes_and_another_writes_again_names_both(tmp_path: Path) -> None:
    """ansible-vault encrypt."""
    run = Recorded(tmp_path, recreated, {"f": OLD}, "ext4", most=0)
    lines = Helpers()
    subject = Subject(run.trace, run.graph, run.space, run.content, lines)
    removed, created = (subject.event_of(piece) for piece in range(2))
    lines.names = {removed: "shred", created: "put"}
    verdict = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    cause = Cause(FindingKind.ATOMICITY, subject.prefix(created), verdict, 1, 0, prefix=True, moment=created)
    assert message(subject, cause) == (
        f"`f` can be missing after a crash: `shred` (io.c:{removed}) removes it "
        f"before `put` (io.c:{created}) writes it again"
    )


def test_of_two_changes_of_one_file_the_sentence_names_the_file_first(tmp_path: Path) -> None:
    def program(t: CallsBuilder) -> None:
        t.append("f", 1, b"1")
        t.write("f", 0, b"1")

    run = Recorded(tmp_path, program, {"f": b"0"}, "ext4", most=0)
    subject = Subject(run.trace, run.graph, run.space, run.content)
    (appended,) = np.flatnonzero(run.graph.kind == SIZE).tolist()
    later = int(np.flatnonzero((run.graph.kind == DATA) & (run.graph.offset == 0))[0])
    verdict = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    state = subject.prefix(subject.event_of(later))
    cause = Cause(FindingKind.ORDERING, state, verdict, appended, later)
    assert message(subject, cause).startswith(
        "`f` can lose what was appended first in a crash and keep what was written later"
    )
