"""`python -m bench.explored`: the planted bugs of examples/structures, searched by explored runs alone. Each must give
a finding or a reason why states were left, and nothing may be decided that fails by itself. Writes
build/bench/explored.json."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

from bench.measure import scratch
from bench.programs import CHECKOUT
from bench.recall import Bug, planted, ready
from crashcheck.checker.budget import Budget, Left, endless
from crashcheck.checker.exploration import points
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies import Choice
from crashcheck.checker.strategies.plan import NOTHING, Decided, Planned
from crashcheck.config import override
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import strategy_of

OUTPUT = CHECKOUT / "build" / "bench" / "explored.json"


@dataclass(frozen=True, slots=True)
class Row:
    """One build. `ordinary`, `explored`: ids of findings. `decided`: states; `left`: the reasons.

    `contradicted`: failing states of the ordinary search that explored runs alone decided to pass.
    """

    program: str
    bug: int
    ordinary: tuple[str, ...]
    explored: tuple[str, ...]
    decided: int
    runs: int
    left: tuple[str, ...]
    contradicted: tuple[str, ...]
    stop: str
    seconds: float

    @property
    def unexplained(self) -> bool:
        """Whether explored runs missed what an ordinary search finds, and give no reason."""
        return bool(self.ordinary) and not self.explored and not self.left and self.stop == "exhausted"


class LeftToExploredRuns:
    """A strategy that leaves every state to explored runs."""

    name = "nothing"
    whole = True
    groups: tuple[Planned, ...] = ()
    notes: tuple[str, ...] = ()

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> LeftToExploredRuns:
        return self

    def choices(self) -> Iterator[Choice]:
        return iter(())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.explored", description=__doc__)
    parser.add_argument("--program", action="append", default=[], metavar="NAME", help="only this structure")
    parser.add_argument("--bug", action="append", type=int, default=[], metavar="N", help="only this bug; 0: no bug")
    parser.add_argument("--operations", type=int, default=200, help="of each run (default: 200)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each of the two searches (default: 20)")
    parser.add_argument("--states", type=int, default=300, help="of the ordinary search (default: 300)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help=f"default: {OUTPUT}")
    args = parser.parse_args()
    rows = []
    for bug in planted():
        if (not args.program or bug.program in args.program) and (not args.bug or bug.number in args.bug):
            with scratch(512) as folder:
                rows.append(measure(bug, folder, args))
            _show(rows[-1])
            _write(args.output, rows, args)
    wrong = [row for row in rows if row.contradicted or row.unexplained]
    found = sum(bool(row.explored) for row in rows if row.bug)
    print(
        f"{found} of {sum(row.bug > 0 for row in rows)} bugs found by explored runs alone, {len(wrong)} contradictions"
    )
    return 1 if wrong else 0


def measure(bug: Bug, folder: Path, args: argparse.Namespace) -> Row:
    with ready(bug, folder, args.operations) as (config, run, executor):
        config = override(config, strategy="ranked")
        first = Budget(args.seconds, args.states)
        ordinary = search_of(config, run, executor, strategy_of(config, run), first, explore=False).run()
        executor.settle()
        began = time.perf_counter()
        with patch.object(points, "_FEW", 0):
            budget, own = Budget(args.seconds), folder / "explored"
            search = search_of(config, run, executor, LeftToExploredRuns(), budget, folder=own, explore=True)
            explored = search.run()
        executor.settle()
        assert search._exploration is not None
        decided = search._exploration.decided
        return Row(
            bug.program,
            bug.number,
            tuple(sorted(finding.id for finding in ordinary.findings)),
            tuple(sorted(finding.id for finding in explored.findings)),
            explored.states.explored,
            explored.states.explored_runs,
            tuple(f"{each.left} {each.why}" for each in explored.states.not_explored),
            tuple(search.token(state) for state in ordinary.failing if state.point in decided),
            explored.stop_reason.value,
            round(time.perf_counter() - began, 1),
        )


def _show(row: Row) -> None:
    same = len(set(row.ordinary) & set(row.explored))
    print(
        f"{row.program:16} {row.bug:3} ordinary {len(row.ordinary):2}, explored {len(row.explored):2}, in both {same:2}"
        f"; {row.decided:.3g} states decided by {row.runs} runs; {row.stop} after {row.seconds} s",
        flush=True,
    )
    for text in (*row.left, *(f"CONTRADICTED {token}" for token in row.contradicted)):
        print(f"{'':21}{text}")
    if row.unexplained:
        print(f"{'':21}MISSED without a reason")


def _write(output: Path, rows: Sequence[Row], args: argparse.Namespace) -> None:
    report = {
        "schema": 1,
        "operations": args.operations,
        "seconds": args.seconds,
        "builds": [asdict(row) for row in rows],
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
