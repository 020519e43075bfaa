"""When a run without findings has no verdict, because a trace of system calls may lack changes of files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind
from crashcheck.stages.not_followed import not_followed
from support.folders import Recorded
from support.tracing import CallsBuilder


def reasons(trace: Trace, folder: Path, final: dict[str, bytes]) -> list[tuple[str, str]]:
    first, last = folder / "none", folder / "last"
    for each in (first, last):
        shutil.rmtree(each, ignore_errors=True)
        each.mkdir()
    for path, content in final.items():
        (last / path).write_bytes(content)
    found = not_followed(trace, replay.check(trace, first, last))
    return [(one.what, one.way_out) for one in found]


def traced(folder: Path, *unmodelled: str) -> Trace:
    def program(t: CallsBuilder) -> None:
        t.open("f")
        t.write("f", 0, b"abc")
        for name in unmodelled:
            t._record(Kind.UNMODELLED, data=name.encode())

    return Recorded(folder, program, {}, "ext4").trace


def test_a_trace_that_holds_every_change_gives_no_reason(tmp_path: Path) -> None:
    assert reasons(traced(tmp_path), tmp_path, {"f": b"abc"}) == []


@pytest.mark.parametrize(
    ("final", "path"), [({"f": b"axc"}, "f"), ({"f": b"abc\0"}, "f"), ({}, "f"), ({"f": b"abc", "g": b""}, "g")]
)
def test_bytes_sizes_and_names_that_the_trace_does_not_account_for_are_reasons(
    final: dict[str, bytes], path: str, tmp_path: Path
) -> None:
    ((what, way),) = reasons(traced(tmp_path), tmp_path, final)
    assert what == f"a change of {path}"
    assert way.startswith("start what writes to the folder by the workload's command")


def test_each_call_is_named_once_with_its_way_out(tmp_path: Path) -> None:
    trace = traced(
        tmp_path,
        *("mount on d", "io_uring", "io_uring", "32-bit io_submit", "a system call that is not known"),
        "a descriptor passed to another process on f",
    )
    found = reasons(trace, tmp_path, {"f": b"abc"})
    assert [what for what, _ in found] == [
        "32-bit io_submit",
        "a descriptor passed to another process on f",
        *("a system call that is not known", "io_uring", "mount on d"),
    ]
    assert [way for _, way in found][1] == "let the workload's command start the process that gets the file"
    assert [way.split(" ")[0] for _, way in found] == ["build", "let", "let", "without", "mount"]
