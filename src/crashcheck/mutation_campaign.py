"""A mutation campaign: record a correct program once, then search each mutant of it for a crash state that fails."""

from __future__ import annotations

import dataclasses
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

from crashcheck import pipeline
from crashcheck.analyzer.persistence import build as build_graph
from crashcheck.checker.budget import Budget, Meter, OutOfTime, within
from crashcheck.checker.findings.call_chains import call_chains
from crashcheck.checker.images.transition import Content
from crashcheck.checker.mutation.common_space import CommonSpace
from crashcheck.checker.mutation.mutant_search import Fate, MutantProgress
from crashcheck.checker.mutation.mutant_states import MutantStates
from crashcheck.checker.mutation.mutants import Mutant, Persist, mutants, persists, without_persists
from crashcheck.checker.mutation.product_exploration import Covering, ProductEnd, drawn
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.oracles.output_equivalence import OutputEquivalence
from crashcheck.checker.results import Location, Outcome, Verdict
from crashcheck.checker.search.crash_states import Search
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.subject import NoProvenance
from crashcheck.checker.verdicts import prepare
from crashcheck.config import Config
from crashcheck.errors import CrashcheckError
from crashcheck.source import SourceTree
from crashcheck.stages.executor_setup import executor_of
from crashcheck.stages.recording import RecordedRun, built, record_check_reads, record_run
from crashcheck.stages.strategy_setup import strategy_of
from crashcheck.stages.uncrashed import check_uncrashed
from crashcheck.wording import remark

_AHEAD = 4  # states submitted for each worker
_FEW_RUN = 2_000  # new states of a mutant that are all run
_AIMED_SHARE = 0.35  # of a mutant's seconds, for the states that the persistence graph points to
_FEW_AT_ONCE = 16  # new states of one moment that are run rather than explored: that costs about as much
_FEW_TO_GO_THROUGH = 1_000  # states of a moment, from which the new ones are picked
_MOMENT_S = 20.0  # for the runs that decide one moment
_BESIDE = 32  # new states that are run after each stretch is explored: one may fail long before all are decided
_SAMPLED = 64  # states of a mutant that nothing but explored runs decided, and that are run as well


@dataclass(frozen=True, slots=True)
class MutantResult:
    """What the search of one mutant found, and what that rests on. A new state is one that only the mutant has."""

    what: str  # "flush", "fence" or "sync"
    change: str  # "deleted" or "moved"
    words: str  # the mutation in a sentence
    location: Location  # of the mutated statement
    ran: int  # how often the workload ran it
    fate: Fate
    exposed: int  # updates that persist later than they did
    states: int  # images that only the mutant leaves and that were checked; of one that was found, until then
    new: int | None  # new states, of which several may leave the same image; None: over MOST_COUNTED, or not counted
    proved: int  # new states of which each has the end of an explored run, and need not have been run itself
    ends: int  # ends of explored runs
    lost: tuple[Location, ...]  # where the updates were made that new states lose
    because: str  # why this is its fate; empty if there is nothing to add
    seconds: float
    outcome: Outcome | None  # how the check failed on the state that was found
    output: str  # what it printed then


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """All mutants, in the order of the source."""

    results: tuple[MutantResult, ...]
    strategy: str
    model: str
    seconds: float
    note: str = ""  # why some moments could not be explored, or why no explored run counts

    def count(self, fate: Fate) -> int:
        return sum(result.fate is fate for result in self.results)


def mutate(
    config: Config,
    *,
    jobs: int = 0,
    wanted: Callable[[Persist], bool] = lambda persist: True,
    moves: bool = True,
    explore: bool = True,
    on_phase: Callable[[str], None] = lambda text: None,
    on_result: Callable[[MutantResult], None] = lambda result: None,
) -> CampaignResult:
    """Record the program and search each of its mutants for at most [budget].

    `wanted`: which flushes, fences and syncs to mutate; `moves`: move them as well as delete them. `explore`: explored
    runs may decide many states at once (docs/mutation.md).

    Raises CrashcheckError: mutate-not-clean if the program fails without a mutation, mutate-nothing, and a run's.
    """
    started = time.monotonic()
    results: list[MutantResult] = []
    with built(config, on_phase) as run_folder:
        run = record_check_reads(config, record_run(config, run_folder.path, on_phase))
        trace = run.subject.trace
        chain_of = call_chains(trace, run.facts, SourceTree(config.folder).relative)
        found = [persist for persist in persists(trace, chain_of) if wanted(persist)]
        if not found:
            raise CrashcheckError(
                "mutate-nothing",
                "the recording holds no flush, fence or sync to mutate, or --only and --at leave none",
                "Build the program with crashcheck-cc -g, so that places in the source are known.",
            )
        on_phase("searching the program as it is")
        with _Campaign(config, run, run_folder.path, jobs or pipeline.cores(), explore) as campaign:
            every = (mutant for mutant in mutants(trace, found) if moves or mutant.change != "moved")
            for number, mutant in enumerate(every, 1):
                location = mutant.persist.location
                on_phase(f"{number}: {location.file}:{location.line} {mutant.words}")
                results.append(campaign.decide(mutant))
                on_result(results[-1])
        note, results = campaign.reviewed(results)
        return CampaignResult(tuple(results), config.strategy.name, config.model.name, time.monotonic() - started, note)


_Submitted = tuple[CrashState, bytes, int | None]  # with its fingerprint, and a ticket unless its verdict is known


class _Campaign:
    """The search of all mutants with the same workers: images, references and verdicts are those of one state space."""

    def __init__(self, config: Config, run: RecordedRun, work: Path, jobs: int, explore: bool) -> None:
        self._config = config
        self._recorded = run
        self._work = work
        self._jobs = jobs
        self._budget = Budget(config.budget.seconds, config.budget.states)  # of each mutant
        self._may_explore = explore
        # What changes while mutants are searched:
        self._known: dict[bytes, Verdict] = {}  # by the fingerprint of the image
        self._failed_again: set[bytes] = set()  # images that failed a second time
        self._unexplored = ""  # why no moment of any mutant can be explored
        self._contradicted = ""  # how a run contradicted what explored runs showed

    def __enter__(self) -> _Campaign:
        config, run = self._config, self._recorded
        oracle = self._require_clean()
        original = run.subject.graph
        trace = without_persists(run.subject.trace)
        space = StateSpace(build_graph(trace, original.model, original.options))
        content = Content(space, run.recording.first)
        subject = dataclasses.replace(
            run.subject, trace=trace, graph=space.graph, space=space, content=content, provenance=NoProvenance()
        )
        self._common = CommonSpace(space, content)
        self._chain = call_chains(trace, run.facts, SourceTree(config.folder).relative)
        ground = dataclasses.replace(run, subject=subject)
        follower = prepare.choose_oracle(config, subject, run.folder)
        if isinstance(follower, OutputEquivalence) and isinstance(oracle, OutputEquivalence):
            follower.follow(oracle)  # nothing uncrashed differs
        self._executor = executor_of(config, ground, self._work, self._jobs, follower)
        self._executor.__enter__()
        self._covering = Covering(self._common, self._executor)
        try:
            prepare.use_executor(follower, self._executor)
            prepare.check_operation_boundaries(follower, self._executor, subject, run.find_completeness)
        except BaseException:
            self._executor.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._executor.close()

    def _require_clean(self) -> Oracle:
        config, run = self._config, self._recorded
        oracle = prepare.choose_oracle(config, run.subject, run.folder)
        with executor_of(config, run, self._work, self._jobs, oracle) as executor:
            prepare.prepare_oracle(oracle, executor, lambda phase: None)
            prepare.require_reopenable(oracle)
            check_uncrashed(config, run, executor)
            prepare.check_operation_boundaries(oracle, executor, run.subject, run.find_completeness)
            for text in prepare.remarks(oracle, executor, run.subject):
                remark(text)
            plan = strategy_of(config, run)
            explored = Search(run.subject, executor, plan, self._budget).run()
            prepare.require_reopenable(oracle)
        if explored.findings or explored.uncertain:
            first = (*explored.findings, *explored.uncertain)[0]
            raise CrashcheckError(
                "mutate-not-clean",
                f"the program fails without a mutation: {first.message}",
                "First fix what `crashcheck run` finds: it would be found in every mutant.",
            )
        return oracle

    def decide(self, mutant: Mutant) -> MutantResult:
        """Search one mutant for a state that fails."""
        started = time.monotonic()
        original = self._recorded.subject.graph
        graph = build_graph(mutant.trace, original.model, original.options)
        progress = MutantProgress(MutantStates(self._common, original, graph))
        fate, verdict = self._search(progress)
        persist = mutant.persist
        return MutantResult(
            persist.what.value,
            mutant.change.value,
            mutant.words,
            persist.location,
            len(persist.rows),
            fate,
            progress.exposure.pieces(),
            progress.states,
            progress.count.value if fate is not Fate.FOUND and progress.count.whole else None,
            progress.proved,
            progress.ends,
            self._places(progress.exposure),
            progress.because(fate),
            time.monotonic() - started,
            None if verdict is None else verdict.outcome,
            "" if verdict is None else verdict.output,
        )

    def reviewed(self, results: list[MutantResult]) -> tuple[str, list[MutantResult]]:
        """What to report of exploring, and the results without what it had shown, if a run contradicted it."""
        if not self._contradicted:
            return (f"no moment was explored: {self._unexplored}" if self._unexplored else ""), results
        why = f"its crash states were explored, and {self._contradicted}"
        return f"what was explored does not count: {self._contradicted}", [
            dataclasses.replace(each, fate=Fate.SURVIVED, proved=0, because=why)
            if each.fate is Fate.HARMLESS and each.proved
            else each
            for each in results
        ]

    def _search(self, progress: MutantProgress) -> tuple[Fate, Verdict | None]:
        meter = Meter(self._budget)
        progress.exposure.keep_on = within(lambda: meter.left_s)
        try:
            failed, spent = self._run_aimed(progress, meter)
        except OutOfTime:
            return Fate.SURVIVED, None
        if failed is not None:
            return Fate.FOUND, failed
        if spent:
            return Fate.SURVIVED, None
        return (Fate.HARMLESS if progress.states or progress.proved else Fate.EQUIVALENT), None

    def _run_aimed(self, progress: MutantProgress, meter: Meter) -> tuple[Verdict | None, bool]:
        """As `_run`, of the states that only the mutant has: those that it is aimed at first."""
        aimed_at = progress.exposure.aimed()
        explores = self._may_explore and progress.count.value > _FEW_RUN
        failed, spent = self._run(progress, aimed_at, self._share(_AIMED_SHARE) if explores else meter)
        spent = spent and (meter.out_of_seconds() or meter.out_of_states(progress.states))
        all_ = chain(aimed_at, progress.choices())
        if failed is None and not spent and explores:
            failed, spent = self._explore(progress, all_, meter)
        if failed is None and not spent and not progress.decided:
            failed, spent = self._run(progress, all_, meter)
        return failed, spent

    def _share(self, share: float) -> Meter:
        seconds = self._budget.seconds
        return Meter(Budget(None if seconds is None else seconds * share, self._budget.states))

    def _run(
        self, progress: MutantProgress, states: Iterator[CrashState | None], meter: Meter
    ) -> tuple[Verdict | None, bool]:
        """The verdict of the first state that fails, twice; and whether the budget ended first."""
        ahead = _Ahead(progress, states, meter, self._submit, _AHEAD * self._jobs)
        try:
            for state, fingerprint, ticket in ahead:
                verdict = self._verdict(fingerprint, ticket)
                progress.checked(self._common.space.points[state.point])
                if not verdict.passed and self._fails_again(state, fingerprint):
                    return verdict, ahead.spent
            return None, ahead.spent
        finally:
            for _, fingerprint, ticket in ahead.waiting:
                self._verdict(fingerprint, ticket)

    def _submit(self, progress: MutantProgress, state: CrashState) -> _Submitted | None:
        """Have a state checked; None if its image was met before with this mutant."""
        fingerprint = self._common.content.fingerprint(state)
        if not progress.first_of(fingerprint):
            return None
        return state, fingerprint, None if fingerprint in self._known else self._executor.submit(state)

    def _explore(
        self, progress: MutantProgress, all_: Iterator[CrashState | None], meter: Meter
    ) -> tuple[Verdict | None, bool]:
        """As `_run`, of all moments: the new states of some are run, those of others decided by explored runs; between
        these some of `all_` states are run.

        Then `progress.decided`, unless there was one that could not be.
        """
        large, small = _by_size(progress.exposure)
        decided = True
        for first in range(0, len(large), self._jobs):
            progress.unexplored = self._contradicted or self._unexplored or progress.unexplored
            if self._contradicted or self._unexplored:
                return None, False
            if meter.out_of_seconds():
                return None, True
            some = large[first : first + self._jobs]
            limit_s = min(_MOMENT_S, meter.left_s or _MOMENT_S)
            outcomes = self._covering.decide(progress.exposure, [stretch[-1] for stretch in some], limit_s)
            for stretch, outcome in zip(some, outcomes, strict=True):
                decided &= self._count_explored(progress, stretch, outcome)
                failed, spent = self._run(progress, chain(outcome.suspects, islice(all_, _BESIDE)), meter)
                if failed is not None or spent:
                    return failed, spent
        failed, spent = self._run(progress, chain.from_iterable(map(progress.exposure.at, small)), meter)
        if failed is not None or spent:
            return failed, spent
        progress.decided = decided
        failed, _ = self._run(progress, self._sample(progress), Meter(Budget()))  # whatever is left of the budget
        if failed is not None:
            self._contradicted = "a crash state failed that should have passed by that"
        return failed, False

    def _count_explored(self, progress: MutantProgress, stretch: Sequence[int], outcome: ProductEnd) -> bool:
        """Take over what explored runs showed of a stretch of moments; whether that decided it."""
        progress.ends += outcome.ends
        if outcome.passes:
            progress.proved += sum(map(progress.exposure.new_at, stretch))
            progress.explored.extend(stretch)
            return True
        progress.unexplored = outcome.why or "an explored run failed, and no crash state that it represents"
        if outcome.final:
            self._unexplored = outcome.why
        return False

    def _sample(self, progress: MutantProgress) -> Iterator[CrashState]:
        """States that explored runs decided, of each moment in turn."""
        moments = deque(drawn(progress.exposure, clock, _SAMPLED) for clock in progress.explored)
        left = _SAMPLED
        while moments and left:
            state = next(moments[0], None)
            if state is None:
                moments.popleft()
            else:
                moments.rotate(-1)
                left -= 1
                yield state

    def _verdict(self, fingerprint: bytes, ticket: int | None) -> Verdict:
        if ticket is not None and fingerprint not in self._known:
            verdict = self._executor.result(ticket)
            assert verdict is not None
            self._known[fingerprint] = dataclasses.replace(verdict, output="") if verdict.passed else verdict
        return self._known[fingerprint]

    def _fails_again(self, state: CrashState, fingerprint: bytes) -> bool:
        if fingerprint not in self._failed_again and not self._executor.run(state).passed:
            self._failed_again.add(fingerprint)
        return fingerprint in self._failed_again

    def _places(self, exposure: MutantStates) -> tuple[Location, ...]:
        """Where the updates were made that a new state loses."""
        chains = map(self._chain, self._common.graph.event[exposure.exposed].tolist())
        return tuple(dict.fromkeys(chain[0] for chain in chains if chain))


def _by_size(exposure: MutantStates) -> tuple[list[tuple[int, ...]], list[int]]:
    """Stretches of moments that are worth exploring, and the moments whose few new states are run instead."""
    large: list[tuple[int, ...]] = []
    small: list[int] = []
    for stretch in exposure.stretches():
        new, most = sum(map(exposure.new_at, stretch)), max(map(exposure.all_at, stretch))
        if new > _FEW_AT_ONCE or most > _FEW_TO_GO_THROUGH:
            large.append(stretch)
        else:
            small.extend(stretch)
    return large, small


class _Ahead:
    """States of a mutant, submitted before their verdicts are needed, so that no worker is idle."""

    def __init__(
        self,
        progress: MutantProgress,
        states: Iterator[CrashState | None],
        meter: Meter,
        submit: Callable[[MutantProgress, CrashState], _Submitted | None],
        most: int,
    ) -> None:
        self._progress = progress
        self._states = states
        self._meter = meter
        self._submit = submit
        self._most = most  # waiting at a time
        # What changes:
        self.waiting: deque[_Submitted] = deque()
        self.spent = False  # the budget ended before the states did
        self._over = False  # no more are submitted

    def __iter__(self) -> Iterator[_Submitted]:
        while True:
            self._fill()
            if not self.waiting:
                return
            yield self.waiting.popleft()

    def _fill(self) -> None:
        try:
            while not self._over and len(self.waiting) < self._most:
                if self._meter.out_of_seconds() or self._meter.out_of_states(self._progress.states + len(self.waiting)):
                    raise OutOfTime
                state = next(self._states)
                submitted = self._submit(self._progress, state) if state is not None else None
                if submitted is not None:
                    self.waiting.append(submitted)
        except StopIteration:
            self._over = True
        except OutOfTime:
            self._over = self.spent = True
