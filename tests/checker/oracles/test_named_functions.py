"""Functions that are operations by name: each outermost call is one, however it ends and however it is compiled."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.compile.instrument.operations import wrap
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import Kind

HERE = Path(__file__).resolve().parent
NAMES = ("store::Table::insert", "make_big", "join", "recursive", "half")


def compiled(
    folder: Path, environment: dict[str, str], flags: list[str], names: tuple[str, ...], source: str = "named"
) -> Path:
    program = folder / source
    command = ["crashcheck-c++", *flags, "-o", str(program), str(HERE / f"{source}.cc")]
    done = subprocess.run(
        command, env={**environment, "CRASHCHECK_OPERATIONS": "\n".join(names)}, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return program


def marks(program: Path, folder: Path, printed: str = "three 1 5 abc 8 1.5\n") -> list[int]:
    """1 for each begin, -1 for each end, in the order of the trace."""
    recording = record(Workload([str(program), "{pool}/p"], ["p"]), folder)
    assert recording.stdout.read_text() == printed
    kinds = read(recording.trace).events["kind"]
    return [
        1 if kind == Kind.MARK_BEGIN else -1
        for kind in kinds[np.isin(kinds, np.array([Kind.MARK_BEGIN, Kind.MARK_END], dtype=np.uint8))].tolist()
    ]


@pytest.mark.parametrize(
    "flags", [["-O0"], ["-O2"], ["-O1", "-g"], ["-O2", "-ffunction-sections", "-fPIC"]], ids=" ".join
)
def test_each_outermost_call_begins_and_ends_once(
    flags: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    """An exception ends its operation; the 24 inner calls of the recursion are none."""
    program = compiled(tmp_path, environment, flags, NAMES)
    assert marks(program, tmp_path / "work") == [1, -1] * 6


@pytest.mark.parametrize("flags", [["-O0"], ["-O2", "-g"]], ids=" ".join)
def test_one_function_begins_an_operation_and_another_ends_it(
    flags: list[str], tmp_path: Path, environment: dict[str, str]
) -> None:
    """The outermost pair counts; a beginning that throws is taken back; an end without a beginning is none."""
    pairs = ("store::Log::begin\tstore::Log::commit", "store::Log::begin\tgive_up")
    program = compiled(tmp_path, environment, flags, pairs, "paired")
    assert marks(program, tmp_path / "work", "three 8\n") == [1, -1] * 3


def test_only_the_named_ones_are_marked(tmp_path: Path, environment: dict[str, str]) -> None:
    program = compiled(tmp_path, environment, ["-O1"], ("make_big",))
    assert marks(program, tmp_path / "work") == [1, -1]


def test_without_names_nothing_is_marked(tmp_path: Path, environment: dict[str, str]) -> None:
    program = compiled(tmp_path, environment, ["-O1"], ())
    assert marks(program, tmp_path / "work") == []


def test_a_module_without_the_names_is_left_as_it_is() -> None:
    text = "define i32 @f(i32 %0) {\n  ret i32 %0\n}\n"
    assert wrap(text, ["g"]) == (text, "")
    assert wrap(text, []) == (text, "")


def test_a_variadic_function_is_left_as_it_is() -> None:
    text = "define i32 @f(i32 %0, ...) {\n  ret i32 %0\n}\n"
    assert wrap(text, ["f"]) == (text, "")
