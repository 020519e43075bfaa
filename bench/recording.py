"""What recording costs: the store-heavy table built by clang, by the wrapper with tracing off, and recorded."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench import programs
from bench.measure import CannotMeasure, Spread, interleaved, ratio, scratch
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.record import record

INSERTS = 1_000_000
TRACE_MEGABYTES = 1500  # a record of 48 bytes for each of seven events an insert, the table three times, and some room


def measure(repetitions: int) -> dict[str, object]:
    with scratch(TRACE_MEGABYTES) as folder:
        plain = programs.compile_program(programs.clang(), "table", folder / "plain")
        instrumented = programs.compile_program(programs.wrapper(), "table", folder / "instrumented")
        seen: dict[str, int] = {}
        values = interleaved(
            repetitions,
            {
                "native": lambda: _run(plain, folder),
                "instrumented, tracing off": lambda: _run(instrumented, folder),
                "instrumented, tracing on": lambda: _record(instrumented, folder, seen),
            },
        )
    return {
        "nanoseconds_per_insert": {name: Spread.of(numbers).json() for name, numbers in values.items()},
        "ratio_to_native": {name: ratio(values, name, "native").json() for name in values if name != "native"},
        "inserts": INSERTS,
        **seen,
    }


def _run(program: Path, folder: Path) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRASHCHECK_")}
    table = folder / "table"
    done = subprocess.run([program, table, str(INSERTS)], env=environment, capture_output=True, text=True)
    table.unlink(missing_ok=True)
    if done.returncode != 0:
        raise CannotMeasure(f"{program.name} ended with {done.returncode}: {done.stderr[-500:]}")
    return int(done.stdout) / INSERTS


def _record(program: Path, folder: Path, seen: dict[str, int]) -> float:
    with scratch(TRACE_MEGABYTES) as work:
        recording = record([str(program), "{pool}/table", str(INSERTS)], ["table"], work / "record", cwd=folder)
        if not seen:
            seen["events"] = len(read(recording.trace).events)
            seen["trace_bytes"] = recording.trace.stat().st_size
        return int(recording.stdout.read_text(encoding="ascii")) / INSERTS
