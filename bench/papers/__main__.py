"""`python -m bench.papers`: the tables of the papers, measured on the planted bugs of examples/structures.

Writes build/bench/papers.json, a copy of it as docs/evaluation.json, and from it docs/evaluation.md. What was measured
of a bug is kept: after a stop, a run continues there. Then the tables of bench/papers/parts, each of which can be
measured alone as well.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from bench.measure import CannotMeasure
from bench.papers import page, parts
from bench.papers.collect import Measured, measure
from bench.papers.parts.every import PARTS
from bench.programs import CHECKOUT
from bench.recall import planted

OUTPUT = CHECKOUT / "build" / "bench" / "papers.json"
PAGE = CHECKOUT / "docs" / "evaluation.md"
PARTS_FILE = PAGE.with_name("evaluation-parts.json")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.papers", description=__doc__)
    parser.add_argument("--program", action="append", default=[], metavar="NAME", help="only this structure")
    parser.add_argument("--bug", action="append", type=int, default=[], metavar="N", help="only this bug; 0: no bug")
    parser.add_argument("--operations", type=int, default=200, help="of each run (default: 200)")
    parser.add_argument("--states", type=int, default=2000, help="of each search, at most (default: 2000)")
    parser.add_argument("--again", action="store_true", help="measure what is known already once more")
    parser.add_argument("--page", action="store_true", help="only write the page again from docs/evaluation.json")
    parser.add_argument(
        "--part", action="append", default=[], choices=[part.name for part in PARTS], help="only this table"
    )
    args = parser.parse_args()
    fresh = not (args.page or args.part)
    report = _known(args.operations, args.states) if fresh else page.read(PAGE.with_suffix(".json"))
    if fresh:
        _measure_bugs(report, args)
        _keep(report, PAGE.with_suffix(".json"))
    whole = fresh and not (args.program or args.bug)
    try:
        for part in PARTS:
            if whole or part.name in args.part:
                _measure_part(part)
    finally:  # what was measured is on the page even if a part fails
        page.write(report, parts.read(PARTS_FILE), PAGE)
    print(f"Written to {PAGE}.")
    return 0


def _measure_bugs(report: page.Report, args: argparse.Namespace) -> None:
    """Measure the planted bugs that are asked for and not known; what is known is kept after each."""
    known = {(one.program, one.bug): one for one in report.bugs}
    for bug in planted():
        wanted = (not args.program or bug.program in args.program) and (not args.bug or bug.number in args.bug)
        if wanted and (args.again or (bug.program, bug.number) not in known):
            with page.timing(report.machine):
                known[bug.program, bug.number] = measure(bug, args.operations, args.states)
            _show(known[bug.program, bug.number])
            report.bugs = [known[key] for key in sorted(known)]
            _keep(report)


def _measure_part(part: parts.Part[Any]) -> None:
    """Measure one of the tables that are measured alone; without what it needs, what was known of it is kept."""
    machine, rows = page.machine(), []
    try:
        with page.timing(machine):
            for row in part.measure():
                rows.append(row)
                print(row, flush=True)
    except CannotMeasure as missing:
        print(f"{part.name} was not measured: {missing}")
    else:
        parts.keep(PARTS_FILE, part.name, machine, rows)


def _known(operations: int, states: int) -> page.Report:
    """What was measured before of the same commit, with the same operations and states."""
    fresh = page.Report(operations, f"{states:,} executed states", page.machine(), [])
    if OUTPUT.exists():
        with suppress(msgspec.ValidationError):  # of an earlier version
            kept = page.read(OUTPUT)
            same = kept.operations, kept.budget, kept.machine.get("commit")
            if same == (fresh.operations, fresh.budget, fresh.machine["commit"]):
                return kept
    return fresh


def _keep(report: page.Report, path: Path = OUTPUT) -> None:
    """Write the figures, one bug a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(report).replace(b'{"program"', b'\n{"program"') + b"\n")


def _show(measured: Measured) -> None:
    states = "  ".join(f"{name} {first.states or '-'}" for name, first in measured.strategies.items())
    print(f"{measured.program:16} {measured.bug:3} {measured.kind or 'no bug':18} {states}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
