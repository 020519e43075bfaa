"""The search over crash states: a strategy's states in its order, each distinct image checked once, failures explained.

One user of the loop (loop.py): a choice is a state and why it is tested, its result a verdict. While a run is awaited
that explains a failure, a fixed number of further results is taken. So both run at once, and what is found does not
depend on how many workers there are.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass

from crashcheck.checker.budget import Budget, Meter, OutOfTime, Progress, for_seconds, within
from crashcheck.checker.exploration.points import NOT_TRIED, DecidedPoints, PointExploration
from crashcheck.checker.findings.prefix_proof import NO_SECOND_RUNS, SecondRuns
from crashcheck.checker.findings.register import Register
from crashcheck.checker.results import Discovery, Finding, GroupRow, StateCounts, StopReason, Verdict
from crashcheck.checker.search.failures import PACE, FailedOnce, Failures
from crashcheck.checker.search.group_stats import GroupStats
from crashcheck.checker.search.loop import Loop, Reached
from crashcheck.checker.search.protocol import AWAIT, Candidate, Pause
from crashcheck.checker.search.signature_share import SignatureShare
from crashcheck.checker.search.timeouts import raise_timeout
from crashcheck.checker.states.counting import Feasible, StateCount
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Choice, Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Level
from crashcheck.checker.verdicts.verdict_cache import VerdictCache, nothing
from crashcheck.checker.verdicts.verdict_source import Asked, Awaited, VerdictSource
from crashcheck.interruption import KeepOn

_PROGRESS_S = 0.1
_EXPLORED = "explored"  # the family of choices that explored runs led to
_FIRST = 64  # choices of the strategy before anything is explored: most bugs are found by then
_BETWEEN = 16  # of its choices between two turns of counting
_COUNT_TURN_S = 0.05  # for counting feasible states, so that a budget of seconds does not end before it
_COUNT_AT_END_S = 1.0  # after Ctrl-C
_ROWS_CUT = (
    "the time ended before the states of all groups were counted: {} of the {} groups shown were; of the others the "
    "report has an upper bound, and no picture"
)


@dataclass(frozen=True, slots=True)
class SearchResult:
    """What a search found. `warnings`: states that are flaky, what cut it short."""

    stop_reason: StopReason
    states: StateCounts
    findings: tuple[Finding, ...]
    uncertain: tuple[Finding, ...]
    warnings: tuple[str, ...]
    probes: int  # runs spent on explaining, beyond `states.executed`
    seconds: float
    failing: tuple[CrashState, ...]  # one for each finding, proved or not, in the order of discovery
    groups: tuple[GroupRow, ...] = ()
    discoveries: tuple[Discovery, ...] = ()
    first_state_s: float | None = None  # until the first state had a verdict; None: none had


def nothing_checked(subject: Subject, why: StopReason, keep_on: KeepOn) -> SearchResult:
    """A search that ended before its first crash state. Feasible states are counted until `keep_on` raises."""
    count = StateCount(subject.space)
    with suppress(OutOfTime):
        keep_on()
        count.advance(keep_on)
    feasible = count.feasible()
    return SearchResult(
        stop_reason=why,
        states=StateCounts(feasible.value, feasible.exact, feasible.note, 0, 0, 0, 0, 0, 0),
        findings=(),
        uncertain=(),
        warnings=(),
        probes=0,
        seconds=0.0,
        failing=(),
    )


@dataclass(frozen=True, slots=True, eq=False)
class TriedImages:
    """The check's verdicts on images, by fingerprint: those that passed, and those that failed twice."""

    passed: set[bytes]
    failed: set[bytes]


class Search:
    """One search; `run` once."""

    def __init__(
        self,
        subject: Subject,
        source: VerdictSource,
        strategy: Strategy,
        budget: Budget,
        *,
        progress: Callable[[Progress], None] | None = None,
        second_runs: SecondRuns = NO_SECOND_RUNS,
        outer: tuple[Level, ...] = (),
        explore: bool = False,
    ) -> None:
        """`second_runs`: for the proof of what `kill -9` leaves.

        `outer`: of a search over crashes of a recovery, the crashes before it.

        `explore`: decide whole crash points by explored runs, if the strategy is one that gives all states.
        """
        # constant
        self._subject = subject
        self._source = source
        self._executor = source.executor
        self._meter = Meter(budget)
        decided = DecidedPoints(subject.space)
        self._plan = strategy.plan(subject.space, self._meter.left, decided)
        self._progress = progress
        self._outer = outer
        self._strategy = strategy
        # changing
        self._stats = GroupStats()
        self._passed: set[bytes] = set()  # fingerprints of states that passed
        self._verdicts = VerdictCache(self._executor, subject.content, self._meter)
        self._failures = Failures(
            subject,
            self._executor,
            self._verdicts,
            second_runs=second_runs,
            left=self._meter.left,
            explaining_left=self._meter.explaining_left,
            outer=outer,
        )
        self._reached: Reached[Choice] = Reached()
        self._last_shown = 0.0  # by the monotonic clock
        self._first_state_s: float | None = None
        self._count = StateCount(subject.space)
        self._tested = SignatureShare(subject.space)
        self._decided = decided
        self._given: set[CrashState] = set()  # chosen for what explored runs showed: the strategy's turn is over
        self._repeated = 0  # choices that were counted before
        self._exploration: PointExploration | None = None
        if explore and self._plan.whole:
            self._exploration = PointExploration(subject, source, decided, self._count, self._meter.left)

    def run(self) -> SearchResult:
        """Search until the strategy, the budget, the disk or the user's patience ends.

        Ctrl-C (SIGINT) and SIGTERM end it with what was found so far; so do a full disk and a lost worker.
        """
        loop = Loop(
            self,
            self._meter,
            self._reached,
            ahead=self._source.ahead,
            put_off=self._wait,
            between=self._explain,
            pruned=self._is_same,
            cost=lambda candidate, verdict: candidate.fingerprint not in self._source.reused,
        )
        self._verdicts.meanwhile = lambda runs: loop.go_on(self._failures.due(runs))
        self._executor.oracle.assume_reopenable()
        complete = False
        try:
            stop = loop.run(self._take)
            complete = not stop.cut_short
        finally:
            self._verdicts.meanwhile = nothing
            self._verdicts.expect(())
            if self._exploration is not None:
                self._exploration.close()
            self._source.end(complete=complete)
        self._failures.end()
        self._found(self._reached.executed - len(self._source.reused))
        for place, choice in self._reached.left:
            self._stats.left(place, choice)
        return self.result(stop)

    @property
    def register(self) -> Register:
        """The findings so far."""
        return self._failures.register

    def tried(self) -> TriedImages:
        """The verdicts on images so far, by fingerprint."""
        return TriedImages(self._passed, self._failures.failed)

    def token(self, state: CrashState) -> str:
        """The token that replays one of this search's states."""
        return self.register.token(state, self._outer)

    # -- what the loop asks for (protocol.Searchable)

    def choices(self) -> Iterator[Choice | Pause | None]:
        for number, choice in enumerate(self._all_choices(), 1):
            yield choice
            if not number % _BETWEEN and self._meter.left_s is not None:
                self._counted(for_seconds(_COUNT_TURN_S))

    def _all_choices(self) -> Iterator[Choice | Pause | None]:
        if self._exploration is None:
            yield from self._plan.choices()
            return
        exploration, due = self._exploration, _FIRST
        for number, choice in enumerate(self._plan.choices()):
            known = choice.state.point in exploration.decided or choice.state in self._given
            yield None if known else choice
            if number >= due and not exploration.decided.settled:
                yield from self._explored()
                due = number + exploration.pause
        while not exploration.decided.settled:
            yield None
            yield from self._explored()
        yield AWAIT
        if exploration.contradiction:  # what was left out must be run after all
            self._repeated = self._reached.executed + self._reached.pruned
            yield from self._strategy.plan(self._subject.space, self._meter.left).choices()

    def _explored(self) -> Iterator[Choice]:
        """Decide some more points, and give the states that must be run because of that."""
        assert self._exploration is not None
        for state in self._exploration.batch():
            if state not in self._given:  # several explored runs may lead to one state
                self._given.add(state)
                yield Choice(state, 0, _EXPLORED)

    def fingerprint(self, choice: Choice) -> bytes:
        return self._subject.content.fingerprint(choice.state)

    def execute(self, candidate: Candidate[Choice]) -> Awaited[Verdict]:
        fingerprint = candidate.fingerprint
        known = self._verdicts.known(fingerprint)
        if known is not None:
            return lambda left_s: self._verdicts.known(fingerprint) or known
        return self._source.ask(self._asked(candidate))

    def _asked(self, candidate: Candidate[Choice]) -> Asked:
        """What a source is asked. A stretch is explored, or passed over, as a whole in one shard."""
        state, fingerprint = candidate.choice.state, candidate.fingerprint
        return Asked(
            state, fingerprint, fingerprint if self._exploration is None else self._count.stretch_at(state.point)
        )

    def _wait(self, candidate: Candidate[Choice]) -> bool:
        """Whether a state must be tested after all others."""
        return self._failures.wait(candidate) or self._source.is_last(self._asked(candidate))

    def describe(self, choice: Choice) -> str:
        return self.token(choice.state)

    # -- results of the choices

    def _take(self, candidate: Candidate[Choice], verdict: Verdict) -> None:
        if self._first_state_s is None:
            self._first_state_s = self._meter.elapsed_s
        self._stats.executed(candidate.place, candidate.choice)
        self._tested.test(candidate.choice.state)
        if self._exploration is not None:
            self._exploration.executed(candidate.choice.state)
        if verdict.passed:
            self._passed.add(candidate.fingerprint)
            self._verdicts.passed(candidate.fingerprint, verdict)
            raise_timeout(self._executor, verdict)
        elif self._source.leaves_failures:
            self._failures.left_to_others(candidate, verdict)
        else:
            self._failures.add(FailedOnce(candidate, verdict, self._reached.executed - len(self._source.reused)))
        self._show()

    def _explain(self, ended: bool) -> bool:
        """Deal with a failing state, if one waits, while the loop continues; `ended`: it has no more results."""
        if self._meter.out_of_seconds() and self.register.drafts:
            return False
        failure = self._failures.next(last=ended or self._meter.in_last_quarter)
        if failure is None:
            return False
        # What shows a known finding is diagnosed in passing: no worker waits for it.
        with self._executor.aside() if self._failures.pace == PACE else nullcontext():
            self._show()
            try:
                counts = self._failures.explain(failure)
            finally:  # the seconds may end after a finding was made
                self._found(failure.executed)
        if counts:
            candidate = failure.candidate
            self._stats.failed(candidate.place, candidate.choice, failure.verdict.outcome)
            if self._exploration is not None:
                self._exploration.failed(candidate.choice.state, self.describe(candidate.choice))
        return True

    def _is_same(self, candidate: Candidate[Choice], as_place: int) -> None:
        self._tested.test(candidate.choice.state)
        if candidate.choice.family == _EXPLORED:  # the strategy gives it as well
            self._given.discard(candidate.choice.state)
            self._repeated += 1
            return
        if self._exploration is not None:
            self._exploration.executed(candidate.choice.state)
        if self._plan.groups or candidate.choice.family:
            self._stats.same(candidate.place, candidate.choice, as_place)

    def _found(self, executed: int) -> None:
        """Take note of findings that are new; `executed`: states when the state had failed that shows them."""
        for draft in self._failures.fresh:
            self._meter.found(self._reached.executed - len(self._source.reused))
            if draft.found == (0, 0.0):
                draft.found = executed, self._meter.elapsed_s
            self._show(now=True)
        self._failures.fresh.clear()

    # -- reporting

    def _show(self, *, now: bool = False) -> None:
        if self._progress is None:
            return
        at = time.monotonic()
        if now or at - self._last_shown >= _PROGRESS_S:
            self._last_shown = at
            self._progress(self.standing())

    def standing(self) -> Progress:
        tried = NOT_TRIED if self._exploration is None else self._exploration.tried()
        return Progress(
            self._meter.elapsed_s,
            self._reached.executed - len(self._source.reused),
            max(0, self._reached.pruned - self._repeated),
            len(self._source.reused) + tried.states + tried.reused,
            self._failures.failing,
            len(self.register.drafts),
            self._executor.is_aside,
        )

    def _counted(self, keep_on: KeepOn) -> Feasible:
        """The number of feasible states, as far as it is known when `keep_on` raises OutOfTime."""
        with suppress(OutOfTime):
            keep_on()
            self._count.advance(keep_on)
        return self._count.feasible()

    def _before_the_report(self, stop: StopReason) -> KeepOn:
        """Raises OutOfTime when what a result holds besides the findings must be cut short."""
        return for_seconds(_COUNT_AT_END_S) if stop is StopReason.INTERRUPTED else within(self._meter.reporting_left)

    def _warnings(self) -> Iterator[str]:
        yield from self._reached.warnings
        yield from self._failures.warnings
        yield from self._plan.notes
        yield from self._source.notes

    def result(self, stop: StopReason) -> SearchResult:
        """What was found so far, by a search that ended for this reason."""
        if self._progress is not None:
            self._progress(self.standing())
        bugs = self.register.bugs(depth=1 + len(self._outer), outer=self._outer)
        bugs.sort(key=lambda bug: bool(bug.finding.uncertain))
        findings = [bug.finding for bug in bugs if not bug.finding.uncertain]
        uncertain = [bug.finding for bug in bugs if bug.finding.uncertain]
        keep_on = self._before_the_report(stop)
        cut_short = stop in (StopReason.BUDGET_STATES, StopReason.BUDGET_SECONDS)
        signatures, tested = self._tested.counts(self._decided, keep_on) if cut_short else (0, 0)
        feasible = self._counted(keep_on)
        tried = NOT_TRIED if self._exploration is None else self._exploration.tried()
        groups, in_full = self._stats.rows(self._subject, self._plan.groups, keep_on)
        cut = () if in_full == len(groups) else (_ROWS_CUT.format(in_full, len(groups)),)
        counts = StateCounts(
            feasible=max(feasible.value, self._reached.executed),
            feasible_exact=feasible.exact,
            feasible_note=feasible.note,
            executed=self._reached.executed - len(self._source.reused),
            pruned=max(0, self._reached.pruned - self._repeated),
            skipped=len(self._reached.left),
            failing=self._failures.failing,
            flaky=self._failures.flaky,
            uncertain=sum(finding.states for finding in uncertain),
            put_off=self._reached.put_off,
            explored=tried.states,
            explored_runs=tried.ends,
            not_explored=tried.left,
            reused=len(self._source.reused) + tried.reused,
            reused_from=self._source.since if len(self._source.reused) + tried.reused else "",
            signatures=signatures,
            signatures_tested=tested,
        )
        return SearchResult(
            stop,
            counts,
            tuple(findings),
            tuple(uncertain),
            (*self._warnings(), *cut),
            self._verdicts.runs,
            self._meter.elapsed_s,
            tuple(draft.cause.state for draft in self.register.drafts),
            groups,
            tuple(Discovery(bug.finding.id, *min(draft.found for draft in bug.drafts)) for bug in bugs),
            self._first_state_s,
        )
