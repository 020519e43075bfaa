"""`crashcheck try` on long runs: CPU seconds, wall seconds and memory by calls, files and sizes, with a budget of 6 s.

CPU and memory are those of the search; the program and its recorder are children of it, whose time counts as well.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench.measure import CannotMeasure, Spread, run

BUDGET = "6s"
_SOURCE = Path(__file__).resolve().parent / "workloads" / "axes.c"
# calls, files, bytes over which the calls of a file are spread, one in how many is synced
ROWS = {
    "calls_1e3": (1_000, 1, 1, 0),
    "calls_1e4": (10_000, 1, 1, 0),
    "calls_1e5": (100_000, 1, 1, 0),
    "calls_1e6": (1_000_000, 1, 1, 0),
    "calls_3e4": (30_000, 1, 1, 0),
    "calls_1e4_synced": (10_000, 1, 1, 10),
    "files_1e3": (1_000, 1_000, 1, 0),
    "files_1e4": (10_000, 10_000, 1, 0),
    "files_1e5": (100_000, 100_000, 1, 0),
    "sparse_2gib": (6, 1, 1 << 31, 0),
    "sparse_1tib": (6, 1, 1 << 40, 0),
}


def measure(repetitions: int, rows: dict[str, tuple[int, int, int, int]] = ROWS) -> dict[str, object]:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise CannotMeasure("no C compiler was found")
    with tempfile.TemporaryDirectory(prefix="crashcheck-bench-") as name:
        folder = Path(name)
        run([compiler, "-O2", _SOURCE, "-o", folder / "axes"])
        _tried(folder, (1, 1, 1, 0))  # compiles the recorder
        return {row: _row(folder, numbers, repetitions) for row, numbers in rows.items()}


def _row(folder: Path, numbers: tuple[int, int, int, int], repetitions: int) -> dict[str, object]:
    tried = [_tried(folder, numbers) for _ in range(repetitions)]
    figures: dict[str, object] = {
        what: Spread.of([float(one[what]) for one in tried]).json()
        for what in ("cpu_seconds", "seconds", "peak_megabytes")
    }
    return figures | {"executed": tried[-1]["executed"], "exit": tried[-1]["exit"]}


def _tried(folder: Path, numbers: tuple[int, int, int, int]) -> dict[str, float]:
    """One run. Wall seconds are those after the recording, of which the budget is the limit."""
    pool, report = folder / "pool", folder / "report.json"
    shutil.rmtree(pool, ignore_errors=True)
    pool.mkdir()
    report.unlink(missing_ok=True)
    words = [sys.executable, "-m", "crashcheck", "try", "--jobs", "1", "--budget", BUDGET, "--format", f"json={report}"]
    words += ["--folder", str(pool), "--", str(folder / "axes"), ".", *map(str, numbers)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    began = time.perf_counter()
    child = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if not report.exists():
        raise CannotMeasure(f"`crashcheck try` ended with {child.returncode} after {seconds:.0f} s")
    result = json.loads(report.read_text(encoding="utf-8"))["run"]
    recording = sum(phase["seconds"] for phase in result["phases"] if phase["name"] == "recording")
    shutil.rmtree(folder / "cache" / "crashcheck" / "try", ignore_errors=True)
    return {
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "seconds": seconds - recording,
        "peak_megabytes": usage.ru_maxrss / 1024,
        "executed": result["states"]["executed"],
        "exit": child.returncode,
    }
