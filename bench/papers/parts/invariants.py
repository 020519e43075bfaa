"""Likely invariants, the images that violate them, and what these show, in runs of two lengths (Witcher, table 2).

Witcher tests every image. The long runs have too many: `selected` are counted one by one up to SELECTED, and the first
STATES of them are run; the table marks where either bound ended it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from bench.measure import scratch
from bench.papers.collect import VARIED, Bench, Watching
from bench.papers.markdown import table, terms
from bench.papers.parts import Part
from bench.recall import Bug, planted, ready
from crashcheck.analyzer.behaviours import find_behaviours
from crashcheck.checker.budget import Budget
from crashcheck.checker.results import StopReason
from crashcheck.checker.states.signature import by_call
from crashcheck.checker.strategies.plan import select_states
from crashcheck.config import override
from crashcheck.stages.strategy_setup import InferOnce, strategy_of

OPERATIONS = (200, 2000)
STATES = 500  # of a build that are run, at most
SECONDS = 120.0  # of a build's search, at most: where checks hang, each image may take a second
SELECTED = 10_000  # of a build that are counted, at most


@dataclass(frozen=True, slots=True)
class Violated:
    """One build. `ordering`, `atomicity`: invariants of each kind; `seconds`: to infer them; `images`: that were run.

    `selected`: states that violate one, at most SELECTED; `clusters`: signatures of the mismatches; `ended`: by what.
    """

    program: str
    bug: int
    operations: int
    ordering: int
    atomicity: int
    seconds: float
    selected: int
    images: int
    mismatches: int
    clusters: int
    findings: int
    ended: str


def measure() -> Iterator[Violated]:
    """The builds on which the search is varied, too."""
    for bug in planted():
        if bug.number and bug.number % VARIED == 1:
            for operations in OPERATIONS:
                with scratch(512) as folder:
                    yield measured(bug, folder, operations, STATES)


def measured(bug: Bug, folder: Path, operations: int, states: int) -> Violated:
    """Witcher's search of one build: each image is run once."""
    with ready(bug, folder, operations, Watching) as (config, run, executor):
        assert isinstance(executor, Watching)
        space, inferring = run.subject.space, InferOnce(run)
        started = time.perf_counter()
        evidence = inferring(find_behaviours(space.graph, run.facts), run.facts, keep_on=lambda: None)
        seconds = time.perf_counter() - started
        witcher = strategy_of(override(config, strategy="witcher"), run, inferring=inferring)
        selected = sum(1 for _ in islice(select_states(space, witcher), SELECTED))
        found = Bench(bug, config, run, executor, folder / "work", Budget(SECONDS, states)).to_the_end(witcher)
        atomicity = sum(one.rule.startswith("RA") for one in evidence.invariants)
        failing = [state for state, verdict in executor.seen if not verdict.passed]
        return Violated(
            *(bug.program, bug.number, operations, len(evidence.invariants) - atomicity, atomicity),
            seconds=round(seconds, 2),
            selected=selected,
            images=len(executor.seen),
            mismatches=len(failing),
            clusters=len(set(map(by_call(space).of, failing))),
            findings=len(found.findings),
            ended=found.stop_reason.value,
        )


def section(rows: Sequence[Violated]) -> Iterator[str]:
    """One row for each structure; in each cell the short runs beside the long ones."""
    lengths = sorted({one.operations for one in rows})

    def cell(mine: Sequence[Violated], shown: Callable[[Sequence[Violated]], str]) -> str:
        return " · ".join(shown([one for one in mine if one.operations == length]) for length in lengths)

    def total(name: str) -> Callable[[Sequence[Violated]], str]:
        return lambda runs: f"{sum(getattr(one, name) for one in runs):,}"

    shown = []
    for program in sorted({one.program for one in rows}):
        mine = [one for one in rows if one.program == program]
        columns = (
            *map(total, ("ordering", "atomicity")),
            lambda runs: ("≥ " if any(one.selected == SELECTED for one in runs) else "") + total("selected")(runs),
            *map(total, ("images", "mismatches", "clusters", "findings")),
            lambda runs: f"{sum(one.seconds for one in runs):.1f}",
            lambda runs: str(sum(one.ended != StopReason.EXHAUSTED for one in runs)),
        )
        bugs = len({one.bug for one in mine})
        shown.append((program, str(bugs), *(cell(mine, column) for column in columns)))
    late = [f"{one.program} {one.bug}" for one in rows if one.ended == StopReason.BUDGET_SECONDS]
    header = ("structure", "builds", "ordering", "atomicity", "selected", "images", "mismatches", "clusters")
    yield from table((*header, "findings", "inference s", "not to the end"), shown)
    yield ""
    yield (
        "Strategy `witcher` with output equivalence, on every third bug of a structure; in each cell the sums over its "
        f"builds with {' · '.join(f'{length:,}' for length in lengths)} operations."
    )
    yield ""
    yield from terms(
        ordering_and_atomicity="likely invariants",
        selected=f"crash states that violate one; at most {SELECTED:,} of a build are counted (≥)",
        images=f"that were run, equal ones once, at most {STATES:,} of a build",
        mismatches="images whose output differs",
        clusters="mismatches with one site signature (Witcher clusters by operation and path)",
        findings="what a report shows",
        not_to_the_end="builds that have more images",
    )
    yield ""
    yield f"Ended by {SECONDS:g} seconds instead: {', '.join(late) or 'none'}."


PART = Part(
    "invariants",
    "Likely invariants, images and clusters (Witcher, table 2 and §4.6)",
    Violated,
    "nothing else",
    measure,
    section,
)
