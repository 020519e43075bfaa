"""The search over crash states: a strategy's states in its order, each distinct image checked once, failures explained.

One user of the loop (loop.py): a choice is a state and why it is tested, its result a verdict. What is found does not
depend on how many workers there are, because each failing state is dealt with when its turn comes, not when it fails.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass

from crashcheck.checker.budget import Budget, Meter, OutOfTime, Progress, for_seconds
from crashcheck.checker.exploration.points import NOT_TRIED, DecidedPoints, PointExploration
from crashcheck.checker.findings.prefix_proof import RunDigested
from crashcheck.checker.findings.register import DraftFinding, Register
from crashcheck.checker.images.real_files import Snapshot
from crashcheck.checker.kept.keys import image_key
from crashcheck.checker.kept.shards import ALONE, Exchange
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.oracles.verdict_cache import VerdictCache
from crashcheck.checker.results import Discovery, Finding, GroupRow, Outcome, StateCounts, StopReason, Verdict
from crashcheck.checker.search.failures import Failures
from crashcheck.checker.search.group_stats import GroupStats
from crashcheck.checker.search.loop import Loop, Reached
from crashcheck.checker.search.protocol import Awaited, Candidate
from crashcheck.checker.search.signature_share import SignatureShare
from crashcheck.checker.search.timeouts import raise_timeout
from crashcheck.checker.states.counting import Feasible, StateCount
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Choice, Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Level
from crashcheck.interruption import always

_AHEAD = 4  # states submitted ahead for each worker
_PROGRESS_S = 0.1
_EXPLORED = "explored"  # the family of choices that explored runs led to
_FIRST = 64  # choices of the strategy before anything is explored: most bugs are found by then
_BETWEEN = 16  # of its choices between two turns of counting
_COUNT_TURN_S = 0.05  # for counting feasible states, so that a budget of seconds does not end before it
_COUNT_AT_END_S = 1.0
_ELSEWHERE = Verdict(Outcome.PASS, 0, None, "", False, 0.0)  # of an image that another shard executes


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
        executor: Executor,
        strategy: Strategy,
        budget: Budget,
        *,
        jobs: int = 1,
        progress: Callable[[Progress], None] | None = None,
        snapshot: Snapshot | None = None,
        digested: RunDigested | None = None,
        depth: int = 1,
        outer: tuple[Level, ...] = (),
        explore: bool = False,
        exchange: Exchange = ALONE,
    ) -> None:
        """`snapshot`, `digested`: for the proof of what `kill -9` leaves, as PrefixProof has them.

        `depth`, `outer`: of a search over crashes of a recovery, how deep it is, and the crashes before it.

        `explore`: decide whole crash points by explored runs, if the strategy is one that gives all states.
        `exchange`: what it takes from other searches, and leaves to them.
        """
        # constant
        self._subject = subject
        self._executor = executor
        self._meter = Meter(budget)
        decided = DecidedPoints(subject.space)
        self._plan = strategy.plan(subject.space, self._meter.left, decided)
        self._progress = progress
        self._depth = depth
        self._outer = outer
        self._strategy = strategy
        self._exchange = exchange
        shards = 1 if exchange.share is None else exchange.share.of
        self._ahead = 0 if executor.judges else max(_AHEAD * max(1, jobs) * shards, executor.workers.ahead)
        # changing
        self._stats = GroupStats()
        self._passed: set[bytes] = set()  # fingerprints of states that passed
        self._verdicts = VerdictCache(executor, subject.content, self._meter)
        self._failures = Failures(
            subject,
            executor,
            self._verdicts,
            snapshot=snapshot,
            digested=digested,
            left=self._meter.left,
            outer=outer,
        )
        self._reached: Reached[Choice] = Reached()
        self._resumed: set[int] = set()  # places of choices that were not executed: they passed in the search before
        self._last_shown = 0.0  # by the monotonic clock
        self._count = StateCount(subject.space)
        self._tested = SignatureShare(subject.space)
        self._decided = decided
        self._given: set[CrashState] = set()  # chosen for what explored runs showed: the strategy's turn is over
        self._repeated = 0  # choices that were counted before
        self._exploration: PointExploration | None = None
        if explore and self._plan.whole:
            self._exploration = PointExploration(subject, executor, decided, self._count, self._meter.left, exchange)

    def run(self) -> SearchResult:
        """Search until the strategy, the budget, the disk or the user's patience ends.

        Ctrl-C (SIGINT) and SIGTERM end it with what was found so far; so does a full disk.
        """
        loop = Loop(
            self,
            self._meter,
            self._reached,
            ahead=self._ahead,
            put_off=self._wait,
            put_aside=self._failures.explain_last,
            pruned=self._is_same,
            cost=lambda candidate, verdict: candidate.place not in self._resumed,
        )
        complete = False
        try:
            stop = loop.run(self._take)
            complete = not stop.cut_short
        finally:
            if self._exploration is not None:
                self._exploration.close()
            if self._exchange.noted is not None:
                self._exchange.noted.close(complete)
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

    def choices(self) -> Iterator[Choice | None]:
        for number, choice in enumerate(self._all_choices(), 1):
            yield choice
            if not number % _BETWEEN and self._meter.left_s is not None:
                self._counted(_COUNT_TURN_S)

    def _all_choices(self) -> Iterator[Choice | None]:
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
        if self._is_elsewhere(candidate):
            return lambda left_s: _ELSEWHERE
        state, image = candidate.choice.state, self._image(candidate)
        known_run = self._exchange.known.run(image, state.point)
        if known_run is not None:
            ended = self._executor.submit_ended(known_run)
            return lambda left_s: self._taken_over(candidate.place, ended, left_s)
        ticket = self._executor.submit(state)
        return lambda left_s: self._executed(ticket, image, left_s)

    def _taken_over(self, place: int, ticket: int, left_s: float | None) -> Verdict | None:
        """The verdict on a state that another search has executed: a shard, or the one that is resumed."""
        verdict = self._executor.result(ticket, left_s)
        if verdict is not None and verdict.passed and self._exchange.known.since:
            self._resumed.add(place)
        return verdict

    def _executed(self, ticket: int, image: bytes, left_s: float | None) -> Verdict | None:
        """The verdict on a state, whose run is noted for other searches."""
        verdict = self._executor.result(ticket, left_s)
        run = self._executor.judged_run
        if verdict is not None and run is not None and self._exchange.noted is not None:
            self._exchange.noted.add(image, run)
        return verdict

    def _image(self, candidate: Candidate[Choice]) -> bytes:
        """The key of a state's image; empty if none is needed."""
        if not self._exchange.keeps:
            return b""
        return image_key(candidate.fingerprint, self._executor.context(candidate.choice.state.point))

    def _is_elsewhere(self, candidate: Candidate[Choice]) -> bool:
        """Whether another shard executes a state: its stretch is explored, or passed over, as a whole there."""
        if self._exchange.share is None:
            return False
        whole = self._exploration is not None
        point = candidate.choice.state.point
        return self._exchange.is_elsewhere(self._count.stretch_at(point) if whole else candidate.fingerprint)

    def _wait(self, candidate: Candidate[Choice]) -> bool:
        """Whether a state must be tested after all others; so must one that no shard has executed in its time."""
        if self._failures.wait(candidate):
            return True
        known = self._exchange.known
        return not known.complete and not known.since and not known.has(self._image(candidate))

    def describe(self, choice: Choice) -> str:
        return self.token(choice.state)

    # -- results of the choices

    def _take(self, candidate: Candidate[Choice], verdict: Verdict) -> None:
        self._stats.executed(candidate.place, candidate.choice)
        self._tested.test(candidate.choice.state)
        if self._exploration is not None:
            self._exploration.executed(candidate.choice.state)
        if self._exchange.share is not None and not verdict.passed:
            self._left_to_merging(candidate, verdict)
        elif verdict.passed:
            self._passed.add(candidate.fingerprint)
            raise_timeout(self._executor, verdict)
        else:
            self._failed(candidate, verdict)
        self._show()

    def _failed(self, candidate: Candidate[Choice], verdict: Verdict) -> None:
        with self._executor.aside():
            self._show()
            try:
                counts = self._failures.take(candidate, verdict)
            finally:  # the seconds may end after a finding was made
                for draft in self._failures.fresh:
                    self._found(draft)
                self._failures.fresh.clear()
        if counts:
            self._stats.failed(candidate.place, candidate.choice, verdict.outcome)
            if self._exploration is not None:
                self._exploration.failed(candidate.choice.state, self.describe(candidate.choice))

    def _left_to_merging(self, candidate: Candidate[Choice], verdict: Verdict) -> None:
        """A state of this shard fails. Those that are similar to a hang wait."""
        if verdict.outcome is Outcome.TIMEOUT:
            self._failures.known_timeouts.suspect(candidate.choice)

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

    def _found(self, draft: DraftFinding) -> None:
        self._meter.keep_for_fixes()
        if draft.found == (0, 0.0):
            draft.found = self._reached.executed - len(self._resumed), self._meter.elapsed_s
        self._show(now=True)

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
            self._reached.executed - len(self._resumed),
            max(0, self._reached.pruned - self._repeated),
            len(self._resumed) + tried.states + tried.reused,
            self._failures.failing,
            len(self.register.drafts),
            self._executor.is_aside,
        )

    def _counted(self, seconds: float | None) -> Feasible:
        """The number of feasible states, as far as it is known after so many seconds more."""
        with suppress(OutOfTime):
            self._count.advance(always if seconds is None else for_seconds(seconds))
        return self._count.feasible()

    def _warnings(self) -> Iterator[str]:
        yield from self._reached.warnings
        yield from self._failures.warnings
        yield from self._executor.notes
        yield from self._plan.notes
        if self._exchange.noted is not None and self._exchange.noted.why:
            yield f"--resume cannot continue this run: {self._exchange.noted.why}"

    def result(self, stop: StopReason) -> SearchResult:
        """What was found so far, by a search that ended for this reason."""
        if self._progress is not None:
            self._progress(self.standing())
        bugs = self.register.bugs(depth=self._depth, outer=self._outer)
        bugs.sort(key=lambda bug: bool(bug.finding.uncertain))
        findings = [bug.finding for bug in bugs if not bug.finding.uncertain]
        uncertain = [bug.finding for bug in bugs if bug.finding.uncertain]
        left_s = 0.0 if stop is StopReason.INTERRUPTED else self._meter.left_s
        feasible = self._counted(None if left_s is None else left_s + _COUNT_AT_END_S)
        tried = NOT_TRIED if self._exploration is None else self._exploration.tried()
        cut_short = stop in (StopReason.BUDGET_STATES, StopReason.BUDGET_SECONDS)
        signatures, tested = self._tested.counts(self._decided) if cut_short else (0, 0)
        counts = StateCounts(
            feasible=max(feasible.value, self._reached.executed),
            feasible_exact=feasible.exact,
            feasible_note=feasible.note,
            executed=self._reached.executed - len(self._resumed),
            pruned=max(0, self._reached.pruned - self._repeated),
            skipped=len(self._reached.left),
            failing=self._failures.failing,
            flaky=self._failures.flaky,
            uncertain=sum(finding.states for finding in uncertain),
            put_off=self._reached.put_off,
            explored=tried.states,
            explored_runs=tried.ends,
            not_explored=tried.left,
            reused=len(self._resumed) + tried.reused,
            reused_from=self._exchange.known.since if len(self._resumed) + tried.reused else "",
            signatures=signatures,
            signatures_tested=tested,
        )
        return SearchResult(
            stop,
            counts,
            tuple(findings),
            tuple(uncertain),
            tuple(self._warnings()),
            self._verdicts.runs,
            self._meter.elapsed_s,
            tuple(draft.cause.state for draft in self.register.drafts),
            self._stats.rows(self._subject, self._plan.groups),
            tuple(Discovery(bug.finding.id, *min(draft.found for draft in bug.drafts)) for bug in bugs),
        )
