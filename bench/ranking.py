"""From a trace with its loads to ranked groups: groups, time and peak memory against the length of a run."""

from __future__ import annotations

import json
import os
import sys
import time
from itertools import pairwise
from pathlib import Path

from bench import programs
from bench.measure import Spread, run, scratch

STRUCTURE = "level-hash"
OPERATIONS = (200, 2_000, 20_000, 200_000)
PHASES = ("read", "graph", "behaviours", "invariants", "rank")


def measure(repetitions: int) -> dict[str, object]:
    from bench.recall import _prepared, planted
    from crashcheck import pipeline

    os.environ["BUG"] = "0"
    fixed = next(bug for bug in planted() if bug.program == STRUCTURE and not bug.number)
    figures: dict[str, object] = {}
    for operations in OPERATIONS:
        with scratch(1500) as folder:
            config = _prepared(fixed, folder, operations)
            work = folder / "work"
            work.mkdir()
            pipeline.build(config, work)
            recording = pipeline.record_workload(config, work)
            words = [sys.executable, "-m", "bench.ranking", str(config.folder), str(recording.trace)]
            runs = [json.loads(run(words, cwd=programs.CHECKOUT)) for _ in range(repetitions)]
        seconds = {phase: Spread.of([one["seconds"][phase] for one in runs]).json() for phase in PHASES}
        totals = [sum(one["seconds"].values()) for one in runs]
        figures[f"{operations}_operations"] = {
            **{name: runs[0][name] for name in ("events", "loads", "behaviours", "groups", "invariants")},
            "seconds": seconds,
            "seconds_per_million_events": Spread.of(
                [total * 1e6 / one["events"] for total, one in zip(totals, runs, strict=True)]
            ).json(),
            "peak_mib": Spread.of([one["peak_mib"] for one in runs]).json(),
            "interpreter_mib": Spread.of([one["interpreter_mib"] for one in runs]).json(),
        }
    return figures


def _rank(folder: Path, path: Path) -> dict[str, object]:
    """In a process of its own, whose peak and processor time are the figures."""
    from bench.memory import peak_mib
    from crashcheck import evidence
    from crashcheck.analyzer.behaviours import behaviours, groups
    from crashcheck.analyzer.invariants import infer
    from crashcheck.analyzer.invariants.predecessors import deviance
    from crashcheck.analyzer.invariants.ranking import ranked
    from crashcheck.analyzer.ir.facts import ProgramFacts
    from crashcheck.analyzer.persistence import build
    from crashcheck.analyzer.trace.reader import read
    from crashcheck.config import load

    interpreter = peak_mib()
    config = load(folder)
    times = [time.process_time()]
    trace = read(path)
    times.append(time.process_time())
    facts = ProgramFacts.load(evidence.modules(trace, config.workload.command, config.folder))
    graph = build(trace, "px86")
    times.append(time.process_time())
    found = behaviours(graph, facts)
    made = groups(found)
    times.append(time.process_time())
    inferred = infer(found, facts)
    times.append(time.process_time())
    ranked(found, made, invariants=inferred.invariants, queries=inferred.queries, deviance=deviance(found))
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
    print(json.dumps(_rank(Path(sys.argv[1]), Path(sys.argv[2]))))
