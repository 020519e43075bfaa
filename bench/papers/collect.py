"""One planted bug, recorded once and searched in every way: what the tables of the page are made from."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from bench.measure import scratch
from bench.papers import correlated, reorderings
from bench.papers.variants import variants
from bench.recall import STRATEGIES, Bug, led_to, marks_of, ready
from bench.remember import Remembering
from crashcheck.checker.budget import Budget, Progress
from crashcheck.checker.results import StopReason, Verdict
from crashcheck.checker.search.crash_states import Search, SearchResult
from crashcheck.checker.states.counting import count_states
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Ranked, Strategy
from crashcheck.checker.strategies import ranked as ranked_search
from crashcheck.checker.strategies.plan import select_states
from crashcheck.checker.strategies.ranked import Ranking, ranking_of
from crashcheck.config import Config, override
from crashcheck.stages.recording import RecordedRun
from crashcheck.stages.search_setup import search_of
from crashcheck.stages.strategy_setup import InferOnce, early_states, ranked, strategy_of

# The search is varied on one bug of so many, its weights on one of so many; all bugs would take hours.
VARIED, _WEIGHED = 3, 9
_MOST_S = 120.0  # of one search: what ends it is the number of its states
MOST_STATES = 50_000  # of a representative's that are counted one by one


@dataclass(frozen=True, slots=True)
class First:
    """A search until its first finding. `states`, `seconds`: what that took; None: the search ended without one.

    `executed`: states by then; `ended`: why, if nothing was found.
    """

    states: int | None
    seconds: float
    executed: int = 0
    ended: str = ""


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
    operations: dict[str, list[str]] = field(default_factory=dict)


class Watching(Remembering):
    """Keeps the executed states with their verdicts, in the order of the verdicts.

    The check's verdict on an image is a fact: after `recall` what any search before has executed is not run again,
    nor what it ran to explain a failing state. After `forget` each image is run, so that seconds are true.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.seen: list[tuple[CrashState, Verdict]] = []
        self._state: dict[int, CrashState] = {}
        self._before: dict[bytes, Verdict] = {}  # verdicts before the last `forget`
        self._explaining: dict[tuple[bytes, bool], Verdict] = {}
        self._recalls = False

    def forget(self) -> None:
        """Every image is run again from here on."""
        self._before.update(self._verdicts)
        super().forget()
        self._recalls, self.seen = False, []

    def recall(self) -> None:
        """What was run once is not run again from here on."""
        self._verdicts = {**self._before, **self._verdicts}
        self._recalls, self.seen = True, []

    def submit(self, state: CrashState, *args: Any, **options: Any) -> int:
        ticket = super().submit(state, *args, **options)
        self._state[ticket] = state
        return ticket

    def result(self, ticket: int, timeout_s: float | None = None) -> Verdict | None:
        verdict = super().result(ticket, timeout_s)
        if verdict is not None and ticket in self._state:
            self.seen.append((self._state.pop(ticket), verdict))
        return verdict

    def run(self, state: CrashState, *, patient: bool = False, most_s: float | None = None) -> Verdict:
        key = self.workers.content.fingerprint(state), patient
        verdict = self._explaining.get(key) if self._recalls else None
        if verdict is None:
            verdict = super().run(state, patient=patient, most_s=most_s)
            if most_s is None:
                self._explaining[key] = verdict
        return verdict


class _FoundFirst(Exception):
    """A proved finding, after so many executed states."""


@dataclass(frozen=True, slots=True)
class Bench:
    """One bug's recording, and the workers that judge its states. `budget`: of each search."""

    bug: Bug
    config: Config
    run: RecordedRun
    executor: Watching
    work: Path
    budget: Budget

    def until_first(self, strategy: Strategy) -> First:
        """Search until the first proved finding."""
        started = time.perf_counter()

        def watch(progress: Progress) -> None:
            if progress.findings and led_to(search):
                raise _FoundFirst

        search = self._search(strategy, watch)
        try:
            result = _run(search)
            found = led_to(search) if result.findings else None
            executed, ended = result.states.executed, result.stop_reason.value
        except _FoundFirst:
            found = executed = led_to(search)
            ended = ""
        finally:
            self.executor.settle()
        return First(found, round(time.perf_counter() - started, 2), executed, ended)

    def to_the_end(self, strategy: Strategy) -> SearchResult:
        """Search until the strategy or the budget ends."""
        return _run(self._search(strategy, lambda progress: None))

    def _search(self, strategy: Strategy, watch: Callable[[Progress], None]) -> Search:
        return search_of(
            self.config,
            self.run,
            self.executor,
            strategy,
            self.budget,
            folder=self.work,
            progress=watch,
            explore=False,
        )

    def named(self, name: str) -> Strategy:
        return strategy_of(override(self.config, strategy=name), self.run, early=early_states(self.budget))

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


def _run(search: Search) -> SearchResult:
    result = search.run()
    if result.stop_reason is StopReason.INTERRUPTED:
        raise KeyboardInterrupt  # not only this search
    return result


def measure(bug: Bug, operations: int, states: int) -> Measured:
    """Everything about one bug; number 0 is the build without one, of which only its states are counted."""
    measured = Measured(bug.program, bug.number, bug.kind, bug.what)
    with scratch(512) as folder, ready(bug, folder, operations, Watching) as (config, run, executor):
        assert isinstance(executor, Watching)
        bench = Bench(bug, config, run, executor, folder / "work", Budget(_MOST_S, states))
        feasible = count_states(run.subject.space)
        measured.events = len(run.subject.trace.events)
        measured.feasible, measured.feasible_exact = str(feasible.value), feasible.exact
        if not bug.number:
            measured.operations = _operations(bench)
            return measured
        measured.representatives = _representatives(bench)
        measured.strategies = by_strategy(bench)
        if bug.number % VARIED == 1:
            measured.variants = varied(bench, weights=bug.number % _WEIGHED == 1)
    return measured


def by_strategy(bench: Bench) -> dict[str, First]:
    """Each strategy until its first finding. Each runs its own states, so that its seconds are its own.

    Except `bounded`, whose states are the first ones of `exhaustive`: it is searched on what that one ran.
    """
    firsts = {}
    for name in sorted(STRATEGIES, key=lambda name: name == "bounded"):
        if name == "bounded":
            bench.executor.recall()
        else:
            bench.executor.forget()
        firsts[name] = bench.until_first(bench.named(name))
    return {name: firsts[name] for name in STRATEGIES}


def varied(bench: Bench, weights: bool) -> dict[str, dict[str, First]]:
    """The ranked search, and with one thing changed at a time; what was run before is not run again, nor ranked."""
    bench.executor.recall()
    base = ranked(bench.run, inferring=InferOnce(bench.run))
    with ranking_once():
        firsts = {"search": {"ranked": bench.until_first(base)}}
        for variant in variants(base, weights):
            firsts.setdefault(variant.of, {})[variant.name] = bench.until_first(variant.strategy)
    return firsts


@contextmanager
def ranking_once() -> Iterator[None]:
    """The groups of one run are ranked once for all searches inside that rank them equally."""
    rankings: dict[Hashable, Ranking] = {}

    def once(options: Ranked, *rest: Any) -> Ranking:
        key = options.infer is None, options.scores
        if key not in rankings:
            rankings[key] = ranking_of(options, *rest)
        return rankings[key]

    with patch.object(ranked_search, "ranking_of", once):
        yield


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
