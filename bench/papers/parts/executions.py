"""How often a check runs: all feasible states, an exhaustive checker in Jaaru's manner, and our search.

Jaaru (Gorjiara et al., ASPLOS 2021) crashes at each point and lets the reads of the recovery decide what had persisted:
each choice of what a read returns is an execution. Our explored runs do the same, but two that reach the same state
continue as one. The tool itself is not run: its executions are counted as ours without that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from unittest.mock import patch

from bench.explored import LeftToExploredRuns
from bench.measure import scratch
from bench.papers.markdown import scientific, table, terms
from bench.papers.parts import Part
from bench.recall import Bug, planted, ready
from crashcheck.checker.budget import Budget
from crashcheck.checker.exploration import points, runs
from crashcheck.checker.exploration.runs import ExploredLimit
from crashcheck.checker.results import StateCounts
from crashcheck.checker.states.counting import count_states
from crashcheck.checker.strategies import Strategy
from crashcheck.config import override
from crashcheck.runtime.exploration import write_table
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import strategy_of

OPERATIONS = (1, 2, 4, 8)
SECONDS = 20.0  # for each of the three ways
_LIMIT_S = 5.0  # for the executions of one stretch of crash points
_MOST_ENDS = 1 << 15  # of one stretch


@dataclass(frozen=True, slots=True)
class Executions:
    """One run of the program. `feasible`: its crash states.

    `jaaru`: executions; `merged`: the same where those that reach one state continue as one; `refused`: states that
    neither decides. `ours`: runs of the check by the default search, of which `explored` are explored runs; `left`:
    states that it did not decide in time.
    """

    program: str
    operations: int
    feasible: str
    jaaru: int
    merged: int
    refused: str
    ours: int
    explored: int
    left: str


def measure() -> Iterator[Executions]:
    """The correct structures, with the first operations of their files."""
    for bug in planted():
        if not bug.number:
            for operations in OPERATIONS:
                with scratch(512) as folder:
                    yield measured(bug, folder, operations)


def measured(bug: Bug, folder: Path, operations: int) -> Executions:
    """One structure with so many operations."""
    with ready(bug, folder, operations) as (config, run, executor):
        feasible = count_states(run.subject.space).value

        def searched(strategy: Strategy) -> StateCounts:
            """All that is decided, by a search of its own."""
            search = search_of(
                *(config, run, executor, strategy, Budget(SECONDS)),
                folder=folder / "search",
                explore=True,
            )
            states = search.run().states
            executor.settle()
            return states

        ours = searched(strategy_of(override(config, strategy="ranked"), run))
        with (
            patch.object(points, "_FEW", 0),  # every stretch is explored,
            patch.object(points, "_SAMPLES", 0),  # and nothing is run beside that
            patch.object(points, "_LIMITS_S", (_LIMIT_S,)),
            patch.object(points, "ExploredLimit", partial(ExploredLimit, ends=_MOST_ENDS)),
        ):
            merged = searched(LeftToExploredRuns())
            with patch.object(runs, "write_table", partial(write_table, merging=False)):
                jaaru = searched(LeftToExploredRuns())
        return Executions(
            bug.program,
            operations,
            str(feasible),
            jaaru.explored_runs,
            merged.explored_runs,
            str(feasible - jaaru.explored - jaaru.executed),
            ours.executed + ours.explored_runs,
            ours.explored_runs,
            str(feasible - ours.executed - ours.pruned - ours.explored),
        )


def section(rows: Sequence[Executions]) -> Iterator[str]:
    """The table: one row for each structure, the numbers of operations beside one another."""
    many = sorted({one.operations for one in rows})
    shown = []
    for program in sorted({one.program for one in rows}):
        mine = [one for one in rows if one.program == program]
        columns = ([scientific(int(one.feasible)) for one in mine], *_counts(mine))
        shown.append((program, *(" · ".join(cells) for cells in columns)))
    yield from table(("structure", "feasible states", "executions", "continued as one", "default search"), shown)
    yield ""
    fewer = sum(one.jaaru < one.ours for one in rows)
    refused, left = (sorted({int(getattr(one, name)) for one in rows}) for name in ("refused", "left"))
    yield f"The correct structures; in each cell the first {' · '.join(map(str, many))} operations of their files."
    yield ""
    yield from terms(
        executions="of the check, one for each choice of what its reads return after a crash, at each moment that has "
        "states of its own (Jaaru)",
        continued_as_one="the same, if executions that reach the same state of the process count once",
        default_search="states that it ran (equal images once) and its [explored runs](search.md#explored-runs). It "
        "runs the 64 most suspicious states, and stretches of few, one by one: it needs more runs than there are "
        f"executions in {fewer} of these {len(rows)} runs of a program",
    )
    yield ""
    yield (
        f"Not decided were {_range(refused)} states of a run by executions (crashes while the file gets its size), and "
        f"{_range(left)} by the default search within {SECONDS:g} seconds."
    )


def _counts(rows: Sequence[Executions]) -> Iterator[list[str]]:
    for name in ("jaaru", "merged", "ours"):
        yield [f"{getattr(one, name):,}" for one in rows]


def _range(values: Sequence[int]) -> str:
    return str(values[0]) if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"


PART = Part(
    "executions",
    "Runs of the check until all states are decided (Jaaru)",
    Executions,
    "nothing else",
    measure,
    section,
)
