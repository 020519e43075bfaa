"""From a trace with its loads to ranked groups: groups, time and peak memory against the length of a run."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import programs
from bench.measure import Spread, run, scratch

STRUCTURE = "level-hash"
OPERATIONS = (200, 2_000, 20_000, 200_000)
PHASES = ("read", "graph", "behaviours", "invariants", "rank")


def measure(repetitions: int) -> dict[str, object]:
    figures: dict[str, object] = {}
    for operations in OPERATIONS:
        runs = _runs(STRUCTURE, operations, repetitions)
        seconds = {phase: Spread.of([one["seconds"][phase] for one in runs]).json() for phase in PHASES}
        figures[f"{operations}_operations"] = {
            **{name: runs[0][name] for name in ("events", "loads", "behaviours", "groups", "invariants")},
            "seconds": seconds,
            "seconds_per_million_events": Spread.of([_total(one) * 1e6 / one["events"] for one in runs]).json(),
            "peak_mib": Spread.of([one["peak_mib"] for one in runs]).json(),
            "interpreter_mib": Spread.of([one["interpreter_mib"] for one in runs]).json(),
        }
    return figures


def main() -> int:
    from bench.recall import planted

    structures = [bug.program for bug in planted() if not bug.number]
    parser = argparse.ArgumentParser(prog="python -m bench.ranking", description=f"{__doc__} One row a structure.")
    parser.add_argument("--program", action="append", default=[], choices=structures, help="only this structure")
    parser.add_argument("--operations", action="append", type=int, default=[], metavar="N", help="default: 20000")
    parser.add_argument("--repetitions", type=int, default=3, help="of which the fastest is shown (default: 3)")
    parser.add_argument("--trace", nargs=2, type=Path, metavar=("FOLDER", "TRACE"), help="one recording, as JSON")
    args = parser.parse_args()
    if args.trace:
        print(json.dumps(_rank(*args.trace)))
        return 0
    print(f"{'':16} {'operations':>10} {'events':>9} {'seconds':>8} {'a million':>9} {'MiB':>6} {'groups':>6}")
    for name in args.program or structures:
        for operations in args.operations or [20_000]:
            one = min(_runs(name, operations, args.repetitions), key=_total)
            seconds = f"{_total(one):8.1f} {_total(one) * 1e6 / one['events']:9.1f}"
            print(f"{name:16} {operations:10} {one['events']:9} {seconds} {one['peak_mib']:6.0f} {one['groups']:6}")
    return 0


def _runs(program: str, operations: int, repetitions: int) -> list[dict[str, Any]]:
    """What ranking a run of a structure's build without a bug took, each in a process of its own."""
    from bench.recall import planted, prepared
    from crashcheck.stages.recording import build, record_workload, workload_in

    os.environ["BUG"] = "0"
    fixed = next(bug for bug in planted() if bug.program == program and not bug.number)
    with scratch(1500) as folder:
        config = prepared(fixed, folder, operations)
        work = folder / "work"
        work.mkdir()
        build(config, work)
        recording = record_workload(config, workload_in(config, work), work)
        words = [sys.executable, "-m", "bench.ranking", "--trace", str(config.folder), str(recording.trace)]
        return [json.loads(run(words, cwd=programs.CHECKOUT)) for _ in range(repetitions)]


def _total(one: dict[str, Any]) -> float:
    return float(sum(one["seconds"].values()))


def _rank(folder: Path, path: Path) -> dict[str, object]:
    """In a process of its own, whose peak and processor time are the figures."""
    from bench.memory import peak_mib
    from crashcheck.analyzer.behaviours import find_behaviours, find_groups
    from crashcheck.analyzer.compile.facts import ProgramFacts
    from crashcheck.analyzer.invariants import infer
    from crashcheck.analyzer.invariants.ranking import rank_groups
    from crashcheck.analyzer.persistence import build
    from crashcheck.analyzer.trace.reader import read
    from crashcheck.config import load
    from crashcheck.stages.recording import modules

    interpreter = peak_mib()
    config = load(folder)
    times = [time.process_time()]
    trace = read(path)
    times.append(time.process_time())
    facts = ProgramFacts.load(modules(trace, config.workload.command, config.folder))
    graph = build(trace, "px86")
    times.append(time.process_time())
    found = find_behaviours(graph, facts)
    made = find_groups(found)
    times.append(time.process_time())
    inferred = infer(found, facts)
    times.append(time.process_time())
    rank_groups(found, made, invariants=inferred.invariants, queries=inferred.queries)
    times.append(time.process_time())
    return {
        "events": len(trace.events),
        "loads": len(trace.loads),
        "behaviours": len(found),
        "groups": len(made),
        "invariants": len(inferred.invariants),
        "peak_mib": peak_mib(),
        "interpreter_mib": interpreter,
        "seconds": dict(zip(PHASES, (b - a for a, b in pairwise(times)), strict=True)),
    }


if __name__ == "__main__":
    sys.exit(main())
