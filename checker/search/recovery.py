"""The search over recoveries: the check's own run on a crash image is recorded, and crashed in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck.checker.budget import Budget, Meter, Progress
from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.worker_pool import WorkerPool
from crashcheck.checker.findings import describe
from crashcheck.checker.findings.prefix_proof import SecondRuns
from crashcheck.checker.images.real_files import Snapshot
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.results import CRASHED, Finding, StateCounts, StopReason
from crashcheck.checker.search.crash_states import Search, SearchResult
from crashcheck.checker.search.loop import Loop, Stopped
from crashcheck.checker.search.protocol import Candidate
from crashcheck.checker.search.timeouts import timeout_for
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Level, Token, digest
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.verdict_source import Awaited
from crashcheck.runtime import sparse

DURING = "crashing the check's own recovery: "


@dataclass(frozen=True, slots=True, eq=False)
class Recovery:
    """A recorded run of the check on a crash image; `first` is that image."""

    subject: Subject
    first: Path
    snapshot: Snapshot | None = None


# (crash image, operations acknowledged, bytes printed, an empty folder to work in); None: the check failed on it
RecordCheck = Callable[[Path, int, int, Path], Recovery | None]


@dataclass(frozen=True, slots=True, eq=False)
class RecoverySearch:
    """How to search recoveries; `seconds_each` bounds the search below one state."""

    record: RecordCheck
    setup: CheckSetup
    oracle: Callable[[int], Oracle]  # of crashes in the recovery from a crash at a point of the workload
    strategy: Strategy
    limits: Limits
    jobs: int = 1
    seconds_each: float = 30.0
    progress: Callable[[Progress], None] | None = None

    def search(self, outer: Subject, executor: Executor, states: Iterable[CrashState], budget: Budget) -> SearchResult:
        """Search the recovery from each image of `states` until the budget ends; states that fail are passed over.

        Every finding has depth 2, kind recovery-failure, and a token with both states. Findings of several states with
        one id are one. A recovery after which the check fails although it was not crashed is named in the warnings and
        not searched.
        """
        return _Recoveries(self, outer, executor, states, budget).run()

    def executor(self, recovery: Recovery, outer: Subject, state: CrashState) -> Executor:
        """Runs the check on states of the recovery from `state`; what the workload had acknowledged then stays so."""
        point = outer.space.points[state.point]
        workers = WorkerPool(
            recovery.subject.content,
            recovery.subject.space.points,
            replace(self.setup, first=recovery.first),
            limits=self.limits,
            jobs=self.jobs,
            acknowledged=(int(point.acked), int(point.stdout_bytes)),
        )
        return Executor(workers, self.oracle(state.point))


class _Recoveries:
    """The search over recoveries: a choice is a crash state of the workload, its result the search below it."""

    def __init__(
        self, below: RecoverySearch, outer: Subject, executor: Executor, states: Iterable[CrashState], budget: Budget
    ) -> None:
        # constant
        self._below = below
        self._outer = outer
        self._executor = executor
        self._states = states
        self._budget = budget
        # changing
        self._meter = Meter(budget)
        self._merged = _Merged()
        self._unrepeatable: list[str] = []  # a token and what the check printed, of recoveries that it rejects

    def run(self) -> SearchResult:
        """Search all recoveries; the result is that of one search."""
        loop = Loop(self, self._meter, cost=lambda candidate, result: result.states.executed)
        stop = loop.run(self._take)
        if stop is not StopReason.EXHAUSTED:
            self._merged.stop = stop
        result = self._merged.value(self._meter.elapsed_s, (*loop.reached.warnings, *self._rejected()))
        if stop is StopReason.EXHAUSTED:
            return result
        note = f"of {describe.count(loop.reached.executed, 'crash image')} the {CRASHED}"
        # Whether enough was tested for a verdict depends on the search above, which tested everything.
        states = replace(result.states, feasible_exact=False, feasible_note=note, signatures=0, signatures_tested=0)
        return replace(result, states=states)

    def _rejected(self) -> Iterator[str]:
        if self._unrepeatable:
            images = describe.count(len(self._unrepeatable), "crash image")
            yield (
                f"the check passes on {images} and fails when it is run once more on what it left there, with nothing "
                f"crashed: opening the files may destroy something. Such runs were not crashed. The first one prints "
                f"{self._unrepeatable[0]}"
            )

    def choices(self) -> Iterator[CrashState]:
        # What needs half of a misaligned store and a second crash is not worth a search.
        return (state for state in self._states if not self._outer.torn(state))

    def fingerprint(self, choice: CrashState) -> bytes:
        return self._outer.content.fingerprint(choice)

    def execute(self, candidate: Candidate[CrashState]) -> Awaited[SearchResult]:
        return lambda left_s: self._search(candidate.choice)

    def describe(self, choice: CrashState) -> str:
        graph = self._outer.graph
        return f"the recovery from {Token(graph.model, graph.options, (self._level(choice),))}"

    def _level(self, state: CrashState) -> Level:
        return Level(digest(self._outer.trace), state)

    def _take(self, candidate: Candidate[CrashState], result: SearchResult) -> None:
        self._merged.add(result)
        if result.stop_reason.broken_off:
            raise Stopped(result.stop_reason)

    def _search(self, state: CrashState) -> SearchResult:
        """The search over the states of one recovery; an empty result where there is none to search."""
        below, outer = self._below, self._outer
        left_s, states = self._meter.left_s, self._budget.states
        budget = Budget(
            below.seconds_each if left_s is None else min(below.seconds_each, left_s),
            None if states is None else states - self._merged.executed,
        )
        with tempfile.TemporaryDirectory(prefix="recovery-", dir=below.setup.work) as folder:
            sparse.let_enter(Path(folder), below.setup.work)
            recovery = self._recorded(state, Path(folder))
            if recovery is None:
                return _empty()
            with below.executor(recovery, outer, state) as inner:
                search = Search(
                    recovery.subject,
                    inner,
                    below.strategy,
                    budget,
                    progress=below.progress,
                    second_runs=SecondRuns(recovery.snapshot),
                    outer=(self._level(state),),
                )
                again = inner.run_final()
                inner.set_timeout(timeout_for(again.seconds))
                if again.passed:
                    return search.run()
                token = search.token(CrashState(len(recovery.subject.space.points) - 1, True, ()))
                last = again.output.strip().splitlines()[-1:] or ["it printed nothing"]
                self._unrepeatable.append(f"`{last[0]}`. Replay: {token}")
                return _empty()

    def _recorded(self, state: CrashState, folder: Path) -> Recovery | None:
        """The check's run on a state's image; None where the check fails on it, or updates nothing."""
        point = self._outer.space.points[state.point]
        image, work = folder / "image", folder / "record"
        self._executor.images.write_image(state, image)
        work.mkdir()
        recovery = self._below.record(image, int(point.acked), int(point.stdout_bytes), work)
        if recovery is None or not len(recovery.subject.graph):
            return None
        return recovery if self._executor.run(state, patient=True).passed else None


class _Merged:
    """The results of several searches as one."""

    def __init__(self) -> None:
        self.stop = StopReason.EXHAUSTED
        self._findings: dict[str, Finding] = {}
        self._uncertain: dict[str, Finding] = {}
        self._warnings: list[str] = []
        self._counts = StateCounts(0, True, "", 0, 0, 0, 0, 0, 0)
        self._probes = 0
        self._failing: list[CrashState] = []

    @property
    def executed(self) -> int:
        return self._counts.executed

    def add(self, below: SearchResult) -> None:
        for mine, theirs in ((self._findings, below.findings), (self._uncertain, below.uncertain)):
            for finding in theirs:
                known = mine.get(finding.id)
                if known is None:
                    mine[finding.id] = replace(finding, message=DURING + finding.message)
                else:
                    mine[finding.id] = replace(known, states=known.states + finding.states)
        self._counts = self._counts.plus(below.states)
        self._warnings.extend(w for w in below.warnings if w not in self._warnings)
        self._probes += below.probes
        self._failing.extend(below.failing)
        if below.stop_reason is not StopReason.EXHAUSTED:
            self.stop = below.stop_reason

    def value(self, seconds: float, warnings: Iterable[str]) -> SearchResult:
        return SearchResult(
            self.stop,
            self._counts,
            tuple(self._findings.values()),
            tuple(self._uncertain.values()),
            (*self._warnings, *warnings),
            self._probes,
            seconds,
            tuple(self._failing),
        )


def _empty() -> SearchResult:
    return SearchResult(StopReason.EXHAUSTED, StateCounts(0, True, "", 0, 0, 0, 0, 0, 0), (), (), (), 0, 0.0, ())
