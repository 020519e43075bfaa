"""Stacks of Python programs: file, function and line of each frame are those that the program itself sees."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from crashcheck.analyzer.trace.reader import CallSite, Trace, read
from crashcheck.runtime.record import Workload, record
from crashcheck.runtime.trace_format import Kind
from support.paths import RUNTIME_PROGRAMS

PROGRAM = RUNTIME_PROGRAMS / "python_stacks.py"
MINORS = range(8, 14)  # of Python 3, that the recorder knows


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


def traced(folder: Path, *words: str) -> Trace:
    workload = Workload([*words], ["*"], timeout_s=60.0, recorder="syscalls")
    return read(record(workload, folder / "run").trace)


def stacks(trace: Trace) -> Iterator[tuple[list[CallSite], bytes]]:
    """Of each write its frames of Python, innermost first, and what was written."""
    for index in np.flatnonzero(trace.events["kind"] == Kind.WRITE).tolist():
        event = trace.events[index]
        sites = [trace.call_sites[site] for site in (int(event["site"]), *trace.stack(int(event["stack"])))]
        yield [site for site in sites if site.name], trace.data(index)


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
