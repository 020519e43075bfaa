"""How many crash states of the correct structures are executed, and decided by explored runs, within 60 seconds."""

from __future__ import annotations

import os
import resource

from bench import recall
from bench.measure import scratch
from bench.search import calibration
from crashcheck.checker.budget import Budget
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import early_states, strategy_of

SECONDS = 60.0
OPERATIONS = 200
LONG = ("b-tree", 2_000)


def measure(repetitions: int) -> dict[str, object]:
    """Once, whatever `repetitions`: each search may take its whole budget."""
    fixed = [bug for bug in recall.planted() if not bug.number]
    rows = [(bug, OPERATIONS) for bug in fixed] + [(bug, LONG[1]) for bug in fixed if bug.program == LONG[0]]
    figures: dict[str, object] = {f"{bug.program}, {many:,} operations": _searched(bug, many) for bug, many in rows}
    return {**figures, "calibration": calibration()}


def _searched(bug: recall.Bug, operations: int) -> dict[str, object]:
    with scratch(512) as folder, recall.ready(bug, folder, operations) as (config, run, executor):
        budget, before = Budget(SECONDS), _cpu()
        strategy = strategy_of(config, run, early=early_states(budget))
        found = search_of(config, run, executor, strategy, budget, explore=True).run()
        states = found.states
        left = states.feasible - states.executed - states.pruned - states.explored
        return {
            "events": len(run.subject.trace.events),
            "feasible": f"{states.feasible:.3g}",
            "executed_or_equal": states.executed + states.pruned,
            "decided": f"{states.explored:.3g}",
            "explored_runs": states.explored_runs,
            "left": f"{left:.3g}",
            "findings": len(found.findings),
            "end": found.stop_reason.value,
            "seconds": round(found.seconds, 1),
            "cpu_seconds_of_this_process": round(_cpu() - before, 1),
            "load": round(os.getloadavg()[0], 1),
        }


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
