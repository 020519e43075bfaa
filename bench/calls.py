"""What recording system calls costs, in CPU seconds of program and recorder: bare calls, beside strace; sqlite3."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.measure import CannotMeasure, Spread, interleaved, ratio, run, scratch
from crashcheck.analyzer.persistence import build as build_graph
from crashcheck.analyzer.persistence.graph import Options
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.strace.convert import strace_command

WRITES, READS, TRANSACTIONS = 100_000, 200_000, 6_000
MEGABYTES = 3000  # strace prints four bytes for each
_SOURCE = Path(__file__).resolve().parent / "workloads" / "calls.c"


def measure(repetitions: int) -> dict[str, object]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotMeasure("no C compiler was found")
    with scratch(MEGABYTES) as folder:
        program = folder / "calls"
        run([compiler, "-O2", _SOURCE, "-o", program])
        figures: dict[str, object] = {
            "writes_of_4096_bytes": _calls(repetitions, folder, [str(program), "{}", "writes", str(WRITES)], WRITES),
            "reads_outside": _calls(repetitions, folder, [str(program), "{}", "reads", str(READS)], READS),
        }
    if shutil.which("sqlite3"):
        with tempfile.TemporaryDirectory(prefix="crashcheck-bench-") as name:  # on a disk: in memory a sync is nothing
            folder = Path(name)
            script = folder / "script.sql"
            lines = ["create table t(a);", *(f"insert into t values({i});" for i in range(TRANSACTIONS))]
            script.write_text("\n".join(lines), encoding="ascii")
            command = ["sqlite3", "{}/db", f".read {script}"]
            figures["sqlite3"] = _calls(repetitions, folder, command, TRANSACTIONS) | _analysis(folder, command)
    return figures


def _calls(repetitions: int, folder: Path, command: Sequence[str], count: int) -> dict[str, object]:
    """Microseconds of CPU for each call, and ratios to the program alone."""
    recorder = str(build_runtime().syscalls)
    ways: dict[str, Callable[[], float]] = {
        "native": lambda: _spent(folder, command, lambda work, words: words),
        "recorded": lambda: _spent(
            folder, command, lambda work, words: [recorder, str(work / "trace"), str(work / "pool"), *words]
        ),
    }
    if shutil.which("strace"):
        ways["strace"] = lambda: _spent(folder, command, lambda work, words: strace_command(work / "out", words))
    values = interleaved(repetitions, ways, warm=False)
    return {
        "microseconds_each": {
            way: Spread.of([1e6 * one / count for one in all_]).json() for way, all_ in values.items()
        },
        "ratio_to_native": {way: ratio(values, way, "native").json() for way in ways if way != "native"},
        "count": count,
    }


def _spent(folder: Path, command: Sequence[str], wrapped: Callable[[Path, list[str]], list[str]]) -> float:
    """CPU seconds of a command in a new folder, and of what records it."""
    work = folder / "work"
    (work / "pool").mkdir(parents=True)
    words = wrapped(work, [word.replace("{}", str(work / "pool")) for word in command])
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, capture_output=True, stdin=subprocess.DEVNULL, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    shutil.rmtree(work)
    if done.returncode != 0:
        raise CannotMeasure(f"`{' '.join(words)}` ended with {done.returncode}: {done.stderr[-500:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _analysis(folder: Path, command: Sequence[str]) -> dict[str, object]:
    """CPU seconds from the trace to the persistence graph under ext4."""
    work = folder / "analysed"
    (work / "pool").mkdir(parents=True)
    words = [word.replace("{}", str(work / "pool")) for word in command]
    run([str(build_runtime().syscalls), work / "trace", work / "pool", *words])
    started = time.process_time()
    trace = read(work / "trace")
    graph = build_graph(trace, "ext4", Options(0, "ext4"))
    return {
        "events": len(trace.events),
        "updates": len(graph),
        "trace_bytes": os.stat(work / "trace").st_size,
        "analysis_seconds": round(time.process_time() - started, 3),
    }
