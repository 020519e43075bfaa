"""Stacks of Python programs: file, function and line of each frame are those that the program itself sees."""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType

import numpy as np
import pytest

from crashcheck.analyzer.trace.python_code import PythonCode
from crashcheck.analyzer.trace.reader import CallSite, Trace
from crashcheck.runtime.trace_format import Kind
from support.paths import RUNTIME_PROGRAMS
from support.script_stacks import frames_of, traced

PROGRAM = RUNTIME_PROGRAMS / "python_stacks.py"
DEBIANS = "/usr/bin/python3"
MINORS = range(8, 15)  # of Python 3, that the recorder knows


@cache
def interpreters() -> dict[str, str]:
    """Those of this machine, by version."""
    out = {}
    for minor in MINORS:
        installed = sorted(Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))
        for path in filter(None, [shutil.which(f"python3.{minor}"), *installed]):
            asks = [path, "-c", "import sys; print(sys.executable)"]
            done = subprocess.run(asks, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                out[f"3.{minor}"] = done.stdout.strip()
    return out


def stacks(trace: Trace) -> Iterator[tuple[list[CallSite], bytes]]:
    """Of each write its frames of Python, innermost first, and what was written."""
    for index in np.flatnonzero(trace.events["kind"] == Kind.WRITE).tolist():
        yield frames_of(trace, index), trace.data(index)


@pytest.mark.parametrize("minor", MINORS)
def test_a_write_has_the_stack_that_the_program_sees_itself(minor: int, tmp_path: Path) -> None:
    python = interpreters().get(f"3.{minor}")
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} here")
    trace = traced(tmp_path, python, "-I", str(PROGRAM), "{pool}/f")
    writes = 0
    for frames, data in stacks(trace):
        assert [[site.module, site.name, site.line] for site in frames] == json.loads(data)
        writes += 1
    assert writes == 39


@pytest.mark.skipif(not Path(DEBIANS).exists(), reason="there is no Python of Debian here")
def test_an_interpreter_that_is_stripped_and_static_shows_its_functions_and_one_under_another_name_its_native_frames(
    tmp_path: Path,
) -> None:
    command = (
        "import os\ndef save():\n    os.write(os.open(os.sys.argv[1], os.O_CREAT | os.O_WRONLY), b'x')\n\nsave()\n"
    )
    renamed = shutil.copy(Path(DEBIANS).resolve(), tmp_path / "snake")
    for number, (python, expected) in enumerate(
        ((DEBIANS, [("<-c>", "save", 3), ("<-c>", "<module>", 5)]), (str(renamed), []))
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        trace = traced(folder, python, "-I", "-S", "-c", command, "{pool}/f")
        ((frames, _),) = stacks(trace)
        assert [(site.module, site.name, site.line) for site in frames] == expected
        (index,) = np.flatnonzero(trace.events["kind"] == Kind.WRITE).tolist()
        modules = {trace.call_sites[site].module for site in trace.stack(int(trace.events["stack"][index]))}
        assert (str(renamed) in modules) is not expected


def test_what_the_option_c_gives_is_told_from_what_a_program_executes(tmp_path: Path) -> None:
    write = "import os; os.write(os.open(os.sys.argv[1], os.O_CREAT | os.O_WRONLY), b'x')"
    program = tmp_path / "c.py"
    program.write_text(f'exec("{write}")')
    commands = [("-Ic", write), ("-W", "ignore", "-Xdev", "-c", write), (str(program),), ("-I", str(program))]
    files = []
    for number, command in enumerate(commands):
        (tmp_path / str(number)).mkdir()
        ((frames, _),) = stacks(traced(tmp_path / str(number), sys.executable, *command, "{pool}/f"))
        files.append((frames[0].module, frames[0].line))
    assert files == [("<-c>", 1), ("<-c>", 1), ("<string>", 1), ("<string>", 1)]


def test_a_script_that_is_named_relative_to_the_working_folder_is_found(tmp_path: Path) -> None:
    (tmp_path / "save.py").write_text("import sys\nopen(sys.argv[1], 'w').write('x')\n")
    trace = traced(tmp_path, "/bin/sh", "-c", f"cd {tmp_path} && exec {sys.executable} -I save.py {{pool}}/f")
    ((frames, _),) = stacks(trace)
    assert (frames[0].module, frames[0].line) == (str(tmp_path / "save.py"), 2)


def test_positions_are_those_that_the_interpreter_gives() -> None:
    codes = [argparse.ArgumentParser.parse_known_args.__code__]
    codes += [value.__code__ for value in vars(argparse).values() if isinstance(value, FunctionType)]
    codes += [each for code in codes for each in code.co_consts if isinstance(each, CodeType)]
    asked = 0
    for code in codes:
        known = PythonCode(sys.version_info[:2], "f", code.co_name, code.co_firstlineno, code.co_linetable)
        for unit, (line, _, column, _) in enumerate(code.co_positions()):
            expected = (line or 0, column + 1 if column is not None and line else 0)
            assert known.position(2 * unit) == expected
            asked += 1
    assert asked > 500


@pytest.mark.parametrize("version", [(3, 8), (3, 10), (3, 11)])
def test_a_damaged_table_of_lines_has_no_line_or_another_one_but_no_error(version: tuple[int, int]) -> None:
    chance = random.Random(1)
    for size in range(40):
        code = PythonCode(version, "f", "f", 1, chance.randbytes(size))
        for offset in range(0, 400, 2):
            code.position(offset)
