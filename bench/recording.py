"""What recording costs: a store-heavy table and look-ups; native, tracing off, recorded, and recorded with loads."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from bench import programs
from bench.measure import CannotMeasure, Spread, interleaved, ratio, scratch
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.record import Workload, record

INSERTS = 1_000_000
QUERIES = 100_000
WAYS = {"tracing on": False, "tracing on, with loads": True}
TRACE_MEGABYTES = 2500  # a record of 48 bytes for each event and load, the table three times, and some room


def measure(repetitions: int) -> dict[str, object]:
    return {
        "inserts": _measure(repetitions, "table", INSERTS),
        "look_ups": _measure(repetitions, "queries", QUERIES),
    }


def _measure(repetitions: int, name: str, count: int) -> dict[str, object]:
    with scratch(TRACE_MEGABYTES) as folder:
        plain = programs.compile_program(programs.clang(), name, folder / "plain")
        instrumented = programs.compile_program(programs.wrapper(), name, folder / "instrumented")
        seen: dict[str, int] = {}
        ways = {
            f"instrumented, {way}": lambda loads=loads: _record(instrumented, folder, count, seen, loads)
            for way, loads in WAYS.items()
        }
        values = interleaved(
            repetitions,
            {
                "native": lambda: _run(plain, folder, count),
                "instrumented, tracing off": lambda: _run(instrumented, folder, count),
                **ways,
            },
        )
    off = "instrumented, tracing off"
    return {
        "nanoseconds_each": {way: Spread.of(numbers).json() for way, numbers in values.items()},
        "ratio_to_native": {way: ratio(values, way, "native").json() for way in values if way != "native"},
        "ratio_to_tracing_off": {way: ratio(values, way, off).json() for way in ways},
        "count": count,
        **seen,
    }


def _run(program: Path, folder: Path, count: int) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("CRASHCHECK_")}
    table = folder / "table"
    done = subprocess.run([program, table, str(count)], env=environment, capture_output=True, text=True)
    table.unlink(missing_ok=True)
    if done.returncode != 0:
        raise CannotMeasure(f"{program.name} ended with {done.returncode}: {done.stderr[-500:]}")
    return int(done.stdout) / count


def _record(program: Path, folder: Path, count: int, seen: dict[str, int], loads: bool) -> float:
    with scratch(TRACE_MEGABYTES) as work:
        command = [str(program), "{pool}/table", str(count)]
        recording = record(Workload(command, ["table"], cwd=folder, loads=loads), work / "record")
        if "loads" not in seen and loads:
            trace = read(recording.trace)
            seen.update(events=len(trace.events), loads=len(trace.loads), trace_bytes=recording.trace.stat().st_size)
        return int(recording.stdout.read_text(encoding="ascii")) / count
