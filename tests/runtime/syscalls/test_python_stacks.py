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
from crashcheck.runtime.record import Workload, record
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


POOLS = """
import asyncio, functools, os, sys, threading
from concurrent.futures import ThreadPoolExecutor

fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)

async def save():
    await asyncio.get_running_loop().run_in_executor(None, os.write, fd, b"a")

def begin(pool):
    return pool.submit(os.write, fd, b"b")

asyncio.run(save())
with ThreadPoolExecutor(1) as pool:
    for _ in range(2):
        begin(pool).result()

def alone(target, *args):
    thread = threading.Thread(target=target, args=args)
    thread.start()
    thread.join()

alone(os.write, fd, b"c")
alone(functools.partial(os.write, fd), b"d")
alone(lambda: os.write(fd, b"e"))
"""


@pytest.mark.parametrize("minor", MINORS)
def test_work_of_threads_has_the_lines_that_gave_it(minor: int, tmp_path: Path) -> None:
    python = interpreters().get(f"3.{minor}")
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} here")
    program = tmp_path / "pools.py"
    program.write_text(POOLS)
    written = [
        (data, [(site.name, site.line) for site in frames if site.module == str(program)])
        for frames, data in stacks(traced(tmp_path, python, str(program), "{pool}/f"))
    ]
    by_pool = [(b"b", [("begin", 11), ("<module>", 16)])]
    by_thread = [
        (b"c", [("alone", 20), ("<module>", 23)]),
        (b"d", [("alone", 20), ("<module>", 24)]),
        (b"e", [("<lambda>", 25)]),
    ]
    assert written == [(b"a", [("save", 8), ("<module>", 13)]), *by_pool, *by_pool, *by_thread]


NESTED = """
import os, sys
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters

fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
run = getattr(interpreters, "exec", None) or interpreters.run_string

def save(inner):
    run(inner, f"import os\\ndef nested():\\n  os.write({fd}, b'b')\\nnested()")
    os.write(fd, b"a")

os.write(fd, b"a")
inner = interpreters.create()
save(inner)
save(inner)
"""


@pytest.mark.parametrize("minor", MINORS)
def test_what_an_interpreter_runs_within_another_one_has_its_own_lines_or_those_that_run_it(
    minor: int, tmp_path: Path
) -> None:
    python = interpreters().get(f"3.{minor}")
    if python is None:
        pytest.skip(f"there is no Python 3.{minor} here")
    program = tmp_path / "nested.py"
    program.write_text(NESTED)
    written = [
        (data, [(site.name, site.line) for site in frames])
        for frames, data in stacks(traced(tmp_path, python, "-I", str(program), "{pool}/f"))
    ]
    nested = [("nested", 3), ("<module>", 4)]
    expected = [(b"a", [("<module>", 15)])]
    for line in (17, 18):
        outer = [("save", 12), ("<module>", line)]
        expected += [(b"b", nested if minor >= 12 else outer), (b"a", [("save", 13), ("<module>", line)])]
    assert written == expected


@pytest.mark.parametrize(
    ("given", "options"),
    [
        (None, []),
        ("", []),
        ("{tmp}/theirs", []),
        ("{tmp}/theirs:{tmp}/more", ["-W", "ignore"]),
        (None, ["-Wignore", "-I"]),
        ("{tmp}/theirs", ["-ES"]),
        ("{tmp}/theirs", ["-S"]),
    ],
)
def test_what_python_loads_for_that_leaves_the_path_the_environment_and_the_users_own_module(
    given: str | None, options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "sitecustomize.py").write_text("print('theirs')\n")
    shown = "import os, sys; print(os.environ.get('PYTHONPATH'), sys.path, flush=True); open(sys.argv[1], 'w').close()"
    command = [sys.executable, *options, "-c", shown]
    if given is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", given.replace("{tmp}", str(tmp_path)))
    alone = subprocess.run([*command, "f"], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    workload = Workload([*command, "{pool}/f"], ["*"], recorder="syscalls", cwd=tmp_path)
    assert record(workload, tmp_path / "run").stdout.read_text() == alone


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
