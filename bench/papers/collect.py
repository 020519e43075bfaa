"""One planted bug, recorded once and searched in every way: what the tables of the page are made from."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bench.measure import scratch
from bench.papers import correlated, reorderings
from bench.papers.variants import variants
from bench.recall import STRATEGIES, Bug, marks_of, ready
from bench.remember import Remembering
from crashcheck import pipeline
from crashcheck.analyzer.behaviours import find_behaviours
from crashcheck.analyzer.invariants.rules import LikelyInvariant
from crashcheck.checker.budget import Budget, Progress
from crashcheck.checker.results import Verdict
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.states.counting import count_states
from crashcheck.checker.states.signature import by_call
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Strategy
from crashcheck.checker.strategies.plan import select_states
from crashcheck.config import Config, override
from crashcheck.recording import RecordedRun
from crashcheck.search_setup import InferOnce, early_states, ranked, search_of, strategy_of

# The search is varied on one bug of so many, its weights on one of so many; all bugs would take hours.
_VARIED, _WEIGHED = 3, 9
MOST_STATES = 200_000  # of a representative's that are counted one by one


@dataclass(frozen=True, slots=True)
class First:
    """A search until its first finding. `states`, `seconds`: what that took; None: the search ended without one."""

    states: int | None
    seconds: float


@dataclass(slots=True)
class Measured:
    """All that was measured of one bug; numbers that may be astronomical are texts. `program`, `bug`: which one."""

    program: str
    bug: int
    kind: str
    what: str
    events: int = 0
    feasible: str = ""
    feasible_exact: bool = True
    strategies: dict[str, First] = field(default_factory=dict)
    variants: dict[str, dict[str, First]] = field(default_factory=dict)
    representatives: dict[str, Any] = field(default_factory=dict)
    invariants: dict[str, Any] = field(default_factory=dict)
    operations: dict[str, list[str]] = field(default_factory=dict)


class Watching(Remembering):
    """Keeps the executed states with their verdicts, in the order of the verdicts."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: list[tuple[CrashState, Verdict]] = []
        self._state: dict[int, CrashState] = {}

    def forget(self) -> None:
        """Every image is run again from here on."""
        super().forget()
        self.seen = []

    def submit(self, state: CrashState, *args: Any, **options: Any) -> int:
        ticket = super().submit(state, *args, **options)
        self._state[ticket] = state
        return ticket

    def result(self, ticket: int, timeout_s: float | None = None) -> Verdict | None:
        verdict = super().result(ticket, timeout_s)
        if verdict is not None and ticket in self._state:
            self.seen.append((self._state.pop(ticket), verdict))
        return verdict


class _FoundFirst(Exception):
    """A proved finding, after so many executed states."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One bug's recording, and the workers that judge its states. `seconds`: of each search."""

    bug: Bug
    config: Config
    run: RecordedRun
    executor: Watching
    work: Path
    seconds: float

    def until_first(self, strategy: Strategy) -> First:
        """Search until the first proved finding."""
        started = time.perf_counter()
        found: list[int] = []

        def watch(progress: Progress) -> None:
            if progress.findings:
                found.append(progress.executed)
                raise _FoundFirst

        try:
            self._search(strategy, watch)
        except _FoundFirst:
            pass
        finally:
            self.executor.settle()
        return First(found[0] if found else None, round(time.perf_counter() - started, 2))

    def to_the_end(self, strategy: Strategy) -> SearchResult:
        """Search until the strategy or the seconds end."""
        return self._search(strategy, lambda progress: None)

    def _search(self, strategy: Strategy, watch: Callable[[Progress], None]) -> SearchResult:
        budget, jobs = Budget(self.seconds), pipeline.cores()
        return search_of(
            self.config,
            self.run,
            self.executor,
            strategy,
            budget,
            jobs,
            folder=self.work,
            progress=watch,
            explore=False,
        ).run()

    def named(self, name: str) -> Strategy:
        return strategy_of(override(self.config, strategy=name), self.run, early=early_states(Budget(self.seconds)))

    def culprits(self) -> list[int]:
        """Pieces that lines marked with the bug have stored."""
        graph, provenance = self.run.subject.space.graph, self.run.subject.provenance
        mark = str(self.bug.number)

        def marked(event: int) -> bool:
            place = provenance.of(event)
            return place is not None and mark in marks_of(place.text)

        calls = graph.trace.calls(graph.event)
        _, first, inverse = np.unique(calls, return_index=True, return_inverse=True)
        wanted = np.array([marked(event) for event in graph.event[first].tolist()], dtype=bool)
        return [int(piece) for piece in np.flatnonzero(wanted[inverse])]


def measure(bug: Bug, operations: int, seconds: float) -> Measured:
    """Everything about one bug; number 0 is the build without one, of which only its states are counted."""
    measured = Measured(bug.program, bug.number, bug.kind, bug.what)
    with scratch(512) as folder, ready(bug, folder, operations, Watching) as (config, run, executor):
        assert isinstance(executor, Watching)
        bench = Bench(bug, config, run, executor, folder / "work", seconds)
        feasible = count_states(run.subject.space)
        measured.events = len(run.subject.trace.events)
        measured.feasible, measured.feasible_exact = str(feasible.value), feasible.exact
        if not bug.number:
            measured.operations = _operations(bench)
            return measured
        measured.representatives = _representatives(bench)
        for name in STRATEGIES:
            executor.forget()  # so that each pays for its own states
            measured.strategies[name] = bench.until_first(bench.named(name))
        measured.invariants = _invariants(bench)
        if bug.number % _VARIED == 1:
            base = ranked(run, inferring=InferOnce(run))
            measured.variants = {"search": {"ranked": bench.until_first(base)}}
            for variant in variants(base, weights=bug.number % _WEIGHED == 1):
                measured.variants.setdefault(variant.of, {})[variant.name] = bench.until_first(variant.strategy)
    return measured


def _representatives(bench: Bench) -> dict[str, Any]:
    """The states of the representatives, and how many of them, and of all, lose an update of the bug's lines."""
    space, culprits = bench.run.subject.space, bench.culprits()
    states = list(islice(select_states(space, bench.named("pathfinder")), MOST_STATES))
    chosen = correlated.of_states(space, states, culprits)
    everything = correlated.of_all(space, culprits)
    return {
        "states": chosen.total,
        "all": chosen.total < MOST_STATES,
        "correlated": chosen.correlated,
        "exhaustive": str(everything.total),
        "exhaustive_correlated": str(everything.correlated),
        "exhaustive_exact": everything.exact,
    }


def _invariants(bench: Bench) -> dict[str, Any]:
    """Witcher's own search to its end: invariants, images, mismatches, clusters, findings (its table 2)."""
    executor, run = bench.executor, bench.run
    executor.forget()
    inferring = InferOnce(run)
    started = time.perf_counter()
    evidence = inferring(find_behaviours(run.subject.space.graph, run.facts), run.facts, keep_on=lambda: None)
    inferred_s = time.perf_counter() - started
    found = bench.to_the_end(strategy_of(override(bench.config, strategy="witcher"), run, inferring=inferring))
    signatures = by_call(run.subject.space)
    failing = [state for state, verdict in executor.seen if not verdict.passed]
    clusters = {signatures.of(state) for state in failing}
    return {
        "ordering": sum(not _atomic(one) for one in evidence.invariants),
        "atomicity": sum(map(_atomic, evidence.invariants)),
        "inference_seconds": round(inferred_s, 2),
        "images": len(executor.seen),
        "mismatches": len(failing),
        "clusters": len(clusters),
        "findings": len(found.findings),
        "seconds": round(found.seconds, 2),
        "ended": found.stop_reason.value,
    }


def _atomic(invariant: LikelyInvariant) -> bool:
    return invariant.rule.startswith("RA")


def _operations(bench: Bench) -> dict[str, list[str]]:
    """The test space by operation: all feasible states (Yat), pmreorder's orders, the representatives' states."""
    space = bench.run.subject.space
    feasible = correlated.all_by_operation(space)
    states = islice(select_states(space, bench.named("pathfinder")), MOST_STATES)
    violating = islice(select_states(space, bench.named("witcher")), MOST_STATES)
    return {
        "yat": [str(count) for count in feasible],
        "pmreorder": [str(count) for count in reorderings.by_operation(space.graph.trace, len(feasible))],
        "pathfinder": [str(count) for count in correlated.by_operation(space, states)],
        "witcher": [str(count) for count in correlated.by_operation(space, violating)],
    }
