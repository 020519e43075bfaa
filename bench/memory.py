"""Peak memory against trace length: reading a trace, counting its states and making the first thousand of them."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from bench import programs
from bench.measure import Spread, run, scratch
from crashcheck.checker.states.counting import count_states
from crashcheck.checker.strategies.plan import select_states

OPERATIONS = (1_000, 10_000, 100_000)
STATES = 1000


def measure(repetitions: int) -> dict[str, object]:
    from crashcheck.runtime.record import Workload, record

    figures: dict[str, object] = {}
    with scratch(1000) as folder:
        table = programs.compile_program(programs.wrapper(), "table", folder / "table")
        for operations in OPERATIONS:
            command = [str(table), "{pool}/table", str(operations), "marked"]
            work = folder / str(operations)
            record(Workload(command, ["table"], cwd=folder), work)
            words = [sys.executable, "-m", "bench.memory", str(work)]
            runs = [json.loads(run(words, cwd=programs.CHECKOUT)) for _ in range(repetitions)]
            peak = Spread.of([one["peak_mib"] for one in runs])
            seconds = {phase: Spread.of([one["seconds"][phase] for one in runs]).json() for phase in runs[0]["seconds"]}
            figures[f"{operations}_operations"] = {
                "peak_mib": peak.json(),
                "interpreter_mib": Spread.of([one["interpreter_mib"] for one in runs]).json(),
                "events": runs[0]["events"],
                "bytes_per_event_above_interpreter": Spread.of(
                    [(one["peak_mib"] - one["interpreter_mib"]) * 2**20 / one["events"] for one in runs]
                ).json(),
                "feasible_states_digits": runs[0]["digits"],
                "states_made": runs[0]["states"],
                "seconds": seconds,
            }
    return figures


def _analyse(work: Path) -> dict[str, object]:
    """In a process of its own, whose peak is the figure."""
    from itertools import islice, pairwise

    from crashcheck.analyzer.persistence import build
    from crashcheck.analyzer.trace.reader import read
    from crashcheck.checker.images.transition import Content
    from crashcheck.checker.states.space import StateSpace
    from crashcheck.checker.strategies.exhaustive import Exhaustive

    interpreter = peak_mib()
    times = [time.perf_counter()]
    trace = read(work / "trace.cct")
    graph = build(trace, "px86")
    times.append(time.perf_counter())
    space = StateSpace(graph)
    feasible = count_states(space)
    times.append(time.perf_counter())
    content = Content(space, work / "first")
    made = 0
    for state in islice(select_states(space, Exhaustive()), STATES):
        content.patches(state)
        made += 1
    times.append(time.perf_counter())
    return {
        "peak_mib": peak_mib(),
        "interpreter_mib": interpreter,
        "events": len(trace.events),
        "digits": len(str(feasible.value)),
        "states": made,
        "seconds": dict(zip(("graph", "count", "states"), (b - a for a, b in pairwise(times)), strict=True)),
    }


def peak_mib() -> float:
    """Of this process image: ru_maxrss would keep the peak of the process that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


if __name__ == "__main__":
    print(json.dumps(_analyse(Path(sys.argv[1]))))
