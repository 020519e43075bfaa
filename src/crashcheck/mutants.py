"""`crashcheck mutate` as a job: record a clean program once, then search each of its mutants for a state that fails."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from crashcheck import evidence, oracles, pipeline
from crashcheck.analyzer.persistence import build as build_graph
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.checker.budget import Budget, Meter
from crashcheck.checker.content import Content
from crashcheck.checker.explore import Exploring, uncrashed
from crashcheck.checker.mutation import Exposure, Mutant, Persist, mutants, persists, source_chain
from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
from crashcheck.checker.places import TracePlaces
from crashcheck.checker.result import Location, Outcome
from crashcheck.checker.states import CrashState, StateSpace
from crashcheck.checker.store import Store
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.source import SourceTree

DEFAULT_SECONDS = 10.0  # for each mutant
_AHEAD = 4


class Fate(StrEnum):
    FOUND = "found"  # a crash state failed, twice
    EQUIVALENT = "equivalent"  # it has no crash state that the original does not have, by the persistence graph
    HARMLESS = "harmless"  # every state of the strategy that only the mutant has was checked, and none failed
    SURVIVED = "survived"  # none failed until the budget was spent


@dataclass(frozen=True, slots=True)
class MutantResult:
    """`ran`: how often the place ran in the workload; `exposed`: updates that persist later than they did."""

    what: str
    change: str
    words: str
    location: Location
    ran: int
    fate: Fate
    exposed: int
    states: int  # crash states executed; of one that was found, until then
    seconds: float
    outcome: Outcome | None
    output: str


@dataclass(frozen=True, slots=True)
class Mutation:
    """All mutants, in the order of the source."""

    results: tuple[MutantResult, ...]
    strategy: str
    model: str
    seconds: float

    def count(self, fate: Fate) -> int:
        return sum(result.fate is fate for result in self.results)


def mutate(
    config: Config,
    *,
    jobs: int = 0,
    wanted: Callable[[Persist], bool] = lambda persist: True,
    moves: bool = True,
    aimed: bool = True,
    tell: Callable[[str], None] = lambda text: None,
    on_result: Callable[[MutantResult], None] = lambda result: None,
) -> Mutation:
    """Record `config`'s program and search its mutants, each with [budget].

    `aimed`: first the states that the persistence graph points to (Exposure.states); else the strategy's alone.

    Raises CrashcheckError: mutate-not-clean if the program fails without a mutation, mutate-nothing, and a run's.
    """
    started = time.monotonic()
    results: list[MutantResult] = []
    run_folder = Store(config.folder).new_run()
    try:
        if config.build.command is not None:
            tell("building")
            pipeline.build(config, run_folder.path)
        tell("recording")
        loaded = pipeline.load(config, pipeline.record_workload(config, run_folder.path))
        oracles.must_be_marked(config, loaded.facts)
        loaded = pipeline.with_reads(config, loaded)
        search = _Search(config, loaded, run_folder.path, jobs or pipeline.cores())
        tree = SourceTree(config.folder)
        trace = loaded.subject.trace
        found = [p for p in persists(trace, source_chain(trace, loaded.facts, tree.relative)) if wanted(p)]
        if not found:
            raise CrashcheckError(
                "mutate-nothing",
                "the recording holds no flush, fence or sync to mutate, or none that was asked for",
                "Build the program with crashcheck-cc -g, so that places in the source are known.",
            )
        tell("searching the program as it is")
        search.must_be_clean()
        for mutant in mutants(trace, found):
            if mutant.change == "moved" and not moves:
                continue
            place = mutant.persist.location
            tell(f"{len(results) + 1}: {place.file}:{place.line} {mutant.words}")
            results.append(search.fate(mutant, aimed))
            on_result(results[-1])
        return Mutation(tuple(results), config.strategy.name, config.model.name, time.monotonic() - started)
    finally:
        run_folder.close()


class _Search:
    def __init__(self, config: Config, loaded: pipeline.Loaded, work: Path, jobs: int) -> None:
        self._config = config
        self._loaded = loaded
        self._work = work
        self._jobs = jobs
        self._budget = Budget(config.budget.seconds, config.budget.states)
        self._oracle = oracles.choose(config, loaded.subject, loaded.recording.trace.parent)

    def must_be_clean(self) -> None:
        config, loaded = self._config, self._loaded
        with pipeline.executor_of(config, loaded, self._work, self._jobs, self._oracle) as executor:
            oracles.make_ready(self._oracle, executor, lambda phase: None)
            with_first = config.check.first == "check" and evidence.has_files(loaded.recording.first)
            uncrashed(executor, first=with_first)
            oracles.judge_boundaries(self._oracle, executor, loaded.subject, loaded.completeness)
            plan = pipeline.strategy_of(config, loaded)
            explored = Exploring(loaded.subject, executor, plan, self._budget, jobs=self._jobs).run()
        if explored.findings or explored.uncertain:
            first = (*explored.findings, *explored.uncertain)[0]
            raise CrashcheckError(
                "mutate-not-clean",
                f"the program fails without a mutation: {first.message}",
                "Mend what `crashcheck run` finds first: a mutant could not be told from it.",
            )

    def fate(self, mutant: Mutant, aimed: bool) -> MutantResult:
        started = time.monotonic()
        original = self._loaded.subject.graph
        graph = build_graph(mutant.trace, original.model, original.options)
        exposure = Exposure(original, graph)
        if exposure.equivalent:
            return _result(mutant, Fate.EQUIVALENT, exposure, 0, started)
        return self._run(mutant, graph, exposure, started, aimed)

    def _run(
        self, mutant: Mutant, graph: PersistenceGraph, exposure: Exposure, started: float, aimed: bool
    ) -> MutantResult:
        """The strategy's states that the original does not have, until one fails."""
        loaded = self._mutated(mutant, graph)
        subject = loaded.subject
        oracle = oracles.choose(self._config, subject, loaded.recording.trace.parent)
        if isinstance(oracle, OutputEquivalence) and isinstance(self._oracle, OutputEquivalence):
            oracle.follow(self._oracle)  # nothing uncrashed differs
        meter = Meter(self._budget)
        executed, ahead = 0, _AHEAD * self._jobs
        waiting: deque[tuple[CrashState, int]] = deque()
        with pipeline.executor_of(self._config, loaded, self._work, self._jobs, oracle) as executor:
            oracles.run_by(oracle, executor)
            chosen = self._choices(loaded, exposure if aimed else None)
            states = _only_here(chosen, subject.content, subject.space, exposure)
            fate = Fate.HARMLESS
            while True:
                while fate is Fate.HARMLESS and len(waiting) < ahead:
                    if meter.out_of_seconds() or meter.out_of_states(executed + len(waiting)):
                        fate = Fate.SURVIVED
                        break
                    state = next(states, None)
                    if state is None:
                        break
                    waiting.append((state, executor.submit(state)))
                if not waiting:
                    return _result(mutant, fate, exposure, executed, started)
                state, ticket = waiting.popleft()
                verdict = executor.result(ticket)
                executed += 1
                if verdict is not None and not verdict.passed and not executor.run(state).passed:
                    return _result(mutant, Fate.FOUND, exposure, executed, started, verdict.outcome, verdict.output)

    def _choices(self, loaded: pipeline.Loaded, exposure: Exposure | None) -> Iterator[CrashState]:
        space = loaded.subject.space
        if exposure is not None:
            yield from exposure.states(space)
        for choice in pipeline.strategy_of(self._config, loaded).plan(space).choices():
            yield choice.state

    def _mutated(self, mutant: Mutant, graph: PersistenceGraph) -> pipeline.Loaded:
        loaded = self._loaded
        space = StateSpace(graph)
        subject = dataclasses.replace(
            loaded.subject,
            trace=mutant.trace,
            graph=graph,
            space=space,
            content=Content(space, loaded.recording.first),
            places=TracePlaces(mutant.trace, loaded.facts, self._config.folder),
        )
        return dataclasses.replace(loaded, subject=subject)


def _only_here(
    states: Iterator[CrashState], content: Content, space: StateSpace, exposure: Exposure
) -> Iterator[CrashState]:
    """Each image once, and none that the original may leave as well."""
    seen = set()
    for state in states:
        if not exposure.holds(space, state):
            continue
        fingerprint = content.fingerprint(state)
        if fingerprint not in seen:
            seen.add(fingerprint)
            yield state


def _result(
    mutant: Mutant,
    fate: Fate,
    exposure: Exposure,
    states: int,
    started: float,
    outcome: Outcome | None = None,
    output: str = "",
) -> MutantResult:
    persist = mutant.persist
    return MutantResult(
        persist.what.value,
        mutant.change.value,
        mutant.words,
        persist.location,
        len(persist.rows),
        fate,
        exposure.pieces(),
        states,
        time.monotonic() - started,
        outcome,
        output,
    )
