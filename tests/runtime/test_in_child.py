"""A function of this process is recorded in a forked child, from its beginning to its end."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.reader import read
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import in_child
from crashcheck.runtime.in_child import operation, record_function
from crashcheck.runtime.trace_format import Kind
from crashcheck.runtime.validate import read_notes

SHOWN = (Kind.WRITE, Kind.NAME_CREATE, Kind.MARK_BEGIN, Kind.MARK_END, Kind.OUTPUT, Kind.EXIT)


def work_in(folder: Path) -> Path:
    (folder / "pool").mkdir()
    return folder


@pytest.mark.parametrize("refused", ["", "Operation not permitted"])
def test_its_calls_its_output_and_its_end_are_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    if refused:
        monkeypatch.setattr(in_child, "_install", lambda entries: refused)
    text = "from the test's own process"

    def function() -> bytes:
        with operation():
            Path("f").write_text(text)
            print("wrote", end="")
            print("and more", file=sys.stderr)
        return b"answer"

    recorded = record_function(function, work_in(tmp_path), 60)
    trace = read(recorded.recording.trace)
    events = [Kind(int(event["kind"])) for event in trace.events]
    assert [kind for kind in events if kind in SHOWN] == [
        *(Kind.MARK_BEGIN, Kind.NAME_CREATE, Kind.WRITE, Kind.OUTPUT, Kind.OUTPUT, Kind.MARK_END, Kind.EXIT),
    ]
    assert [note for note in read_notes(recorded.recording.trace) if note[0] != "outside"] == (
        [("seccomp", refused)] if refused else []
    )
    assert recorded.answer == b"answer"
    assert recorded.recording.end.exit_code == 0
    assert (recorded.recording.stdout.read_text(), recorded.recording.stderr.read_text()) == ("wrote", "and more\n")
    assert (recorded.recording.pool / "f").read_text() == text
    assert list(recorded.recording.first.iterdir()) == []


def test_a_function_that_ends_its_process_or_takes_too_long_has_no_answer(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "2").mkdir()
    ended = record_function(lambda: os._exit(3), work_in(tmp_path / "1"), 60)
    assert (ended.answer, ended.recording.end.exit_code) == (None, 3)
    late = record_function(lambda: time.sleep(600), work_in(tmp_path / "2"), 0.2)  # type: ignore[arg-type,return-value]
    assert (late.answer, late.recording.end.timed_out) == (None, True)


def test_where_ptrace_is_refused_the_error_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def traced_already(recorder: object) -> bool:
        in_child._libc.ptrace(0, 0, 0, 0)  # PTRACE_TRACEME: by the parent, so by nobody else
        return followed(recorder)  # type: ignore[arg-type]

    followed = in_child._is_followed
    monkeypatch.setattr(in_child, "_is_followed", traced_already)
    with pytest.raises(CrashcheckError, match="cannot be traced: Operation not permitted"):
        record_function(lambda: b"", work_in(tmp_path), 60)
