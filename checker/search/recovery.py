"""Crashing the recovery too: the check's own run on a crash image is recorded and explored in turn."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck.checker.budget import Budget, Meter
from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.executor import Executor
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.findings.register import Snapshot
from crashcheck.checker.oracles import Oracle
from crashcheck.checker.results import Finding, StateCounts, StopReason
from crashcheck.checker.search.crash_states import Progress, Search, SearchResult
from crashcheck.checker.search.timeouts import timeout_for
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Level, digest

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
    """How to explore recoveries; `seconds_each` bounds the search below one state."""

    record: RecordCheck
    setup: CheckSetup
    oracle: Callable[[int], Oracle]  # of crashes in the recovery from a crash at a point of the workload
    strategy: Strategy
    limits: Limits
    jobs: int = 1
    seconds_each: float = 30.0
    progress: Callable[[Progress], None] | None = None

    def explore(self, outer: Subject, executor: Executor, states: Iterable[CrashState], budget: Budget) -> SearchResult:
        """Explore the recovery from each of `states` until the budget ends; those that fail are passed over.

        Every finding has depth 2, kind recovery-failure, and a token with both states. Findings of
        several states with one id are one. A recovery after which the check fails although it was
        not crashed is named in the warnings and not explored.
        """
        meter = Meter(budget)
        merged = _Merged()
        for state in states:
            if meter.out_of_seconds() or meter.out_of_states(merged.executed):
                merged.stop = StopReason.BUDGET_SECONDS if meter.out_of_seconds() else StopReason.BUDGET_STATES
                break
            seconds = self.seconds_each if meter.left_s is None else min(self.seconds_each, meter.left_s)
            left = None if budget.states is None else budget.states - merged.executed
            with tempfile.TemporaryDirectory(prefix="recovery-", dir=self.setup.work) as folder:
                below = self._below(outer, executor, state, Path(folder), Budget(seconds, left))
            if below is None:
                continue
            merged.add(below)
            if below.stop_reason in (StopReason.INTERRUPTED, StopReason.DISK_FULL):
                break
        return merged.value(meter.elapsed_s)

    def _below(
        self, outer: Subject, executor: Executor, state: CrashState, folder: Path, budget: Budget
    ) -> SearchResult | None:
        point = outer.space.points[state.point]
        image = folder / "image"
        executor.write_image(state, image)
        work = folder / "record"
        work.mkdir()
        recovery = self.record(image, int(point.acked), int(point.stdout_bytes), work)
        if recovery is None or not len(recovery.subject.graph) or not executor.run(state, patient=True).passed:
            return None
        with self.executor(recovery, outer, state) as inner:
            level = Level(digest(outer.trace), state)
            search = Search(
                recovery.subject,
                inner,
                self.strategy,
                budget,
                jobs=self.jobs,
                progress=self.progress,
                snapshot=recovery.snapshot,
                depth=2,
                outer=(level,),
            )
            again = inner.run_final()
            inner.set_timeout(timeout_for(again.seconds))
            if not again.passed:
                token = search.token(CrashState(len(recovery.subject.space.points) - 1, True, ()))
                return _not_repeatable(token, again.output)
            return search.run()

    def executor(self, recovery: Recovery, outer: Subject, state: CrashState) -> Executor:
        """Runs the check on states of the recovery from `state`; what the workload had acknowledged then stays so."""
        point = outer.space.points[state.point]
        return Executor(
            recovery.subject.content,
            recovery.subject.space.points,
            replace(self.setup, first=recovery.first),
            self.oracle(state.point),
            limits=self.limits,
            jobs=self.jobs,
            told=(int(point.acked), int(point.stdout_bytes)),
        )


class _Merged:
    """Explorations of several recoveries as one."""

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

    def value(self, seconds: float) -> SearchResult:
        return SearchResult(
            self.stop,
            self._counts,
            tuple(self._findings.values()),
            tuple(self._uncertain.values()),
            tuple(self._warnings),
            self._probes,
            seconds,
            tuple(self._failing),
        )


def _not_repeatable(token: str, output: str) -> SearchResult:
    last = output.strip().splitlines()[-1:] or ["it printed nothing"]
    warning = (
        "the check passes on a crash image and fails when it is run once more on what its recovery left, with nothing "
        f"crashed ({last[0]}); that recovery was not explored. Replay: {token}"
    )
    return SearchResult(
        StopReason.EXHAUSTED, StateCounts(0, True, "", 0, 0, 0, 0, 0, 0), (), (), (warning,), 0, 0.0, ()
    )
