"""`python -m bench.reach`: how much of a long run the first states of the ranked search reach, without each phase.

A bug that only some data shows is in one operation, at one pair of updates. Counted are the different (slice of the
run, site whose update is lost, site whose pending update is kept); the run has 2,000 slices of as many crash points.
Nothing is executed.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from bench.measure import scratch
from bench.papers.collect import ranking_once
from bench.papers.variants import without_one
from bench.recall import planted, prepared
from crashcheck.analyzer.behaviours import find_behaviours
from crashcheck.checker.strategies import Ranked
from crashcheck.checker.strategies.numbers import WEIGHTS
from crashcheck.config import Config, load
from crashcheck.stages.recording import RecordedRun, build, record_check_reads, record_run
from crashcheck.stages.strategy_setup import InferOnce, ranked

SLICES = 2000
MARKS = (400, 1000, 3000)  # states
OPERATIONS = 2000


def main() -> int:
    structures = [bug for bug in planted() if not bug.number]
    parser = argparse.ArgumentParser(prog="python -m bench.reach", description=__doc__)
    parser.add_argument("--program", action="append", default=[], choices=[bug.program for bug in structures])
    parser.add_argument("--config", action="append", type=Path, default=[], metavar="FOLDER", help="of another program")
    args = parser.parse_args()
    os.environ["BUG"] = "0"
    for bug in structures:
        if bug.program in args.program or not (args.program or args.config):
            with scratch(1024) as folder:
                _show(bug.program, prepared(bug, folder, OPERATIONS), folder / "work")
    for path in args.config:
        with scratch(1024) as folder:
            _show(str(path), load(path), folder / "work")
    return 0


def _show(name: str, config: Config, work: Path) -> None:
    work.mkdir()
    if config.build.command:
        build(config, work)
    run = record_check_reads(config, record_run(config, work))
    print(f"{name}: {len(run.subject.trace.events):,} events", flush=True)
    base = ranked(run, inferring=InferOnce(run))
    searches = {"ranked": base, **{each.name: each.strategy for each in without_one(base)}}
    searches["without random, members"] = replace(base, weights={**WEIGHTS, "random": 0, "members": 0})
    with ranking_once():
        for variant, search in searches.items():
            reached = "  ".join(f"{many:7,} after {states:,}" for states, many in _reached(run, search))
            print(f"  {variant:26} {reached}", flush=True)


def _reached(run: RecordedRun, search: Ranked) -> Iterator[tuple[int, int]]:
    """(states, different triples that they reached), at each of MARKS."""
    space = run.subject.space
    found = find_behaviours(space.graph, run.facts)
    site = found.nodes.of_pieces(found.label)
    reached: set[tuple[int, int, int]] = set()
    for number, choice in enumerate(islice(search.plan(space).choices(), MARKS[-1]), 1):
        state = choice.state
        lost = [piece for piece in space.lost(state) if piece < len(site)]  # without parts of pieces
        kept = sorted(set(space.pending(state.point)) - set(lost))
        at = state.point * SLICES // len(space.points)
        of_kept = set(site[kept].tolist())
        reached.update((at, a, b) for a in set(site[lost].tolist()) for b in of_kept)
        if number in MARKS:
            yield number, len(reached)


if __name__ == "__main__":
    raise SystemExit(main())
