"""The search: states from a strategy, checked one after another, failures explained and gathered into findings.

What is found does not depend on how many workers there are: states are submitted and answered in the
strategy's order, and each failing state is dealt with when its turn comes, not when it fails.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from crashcheck.checker.budget import Budget, Meter, OutOfTime
from crashcheck.checker.execution.executor import DiskFull, Executor
from crashcheck.checker.findings.classify import Cause, Classifier
from crashcheck.checker.findings.register import MOST_CASES, DraftFinding, Register, Snapshot
from crashcheck.checker.oracles.verdict_cache import OutOfRuns, VerdictCache
from crashcheck.checker.results import Finding, GroupRow, Outcome, StateCounts, StopReason, Verdict
from crashcheck.checker.search.group_stats import GroupStats
from crashcheck.checker.search.known_causes import KnownCauses
from crashcheck.checker.search.timeouts import LAG, MOST_PUT_OFF, KnownTimeouts, raise_timeout, timeout_for
from crashcheck.checker.states.signature import by_call
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Choice, Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Level
from crashcheck.errors import CrashcheckError
from crashcheck.interruption import interruptible

PROBES = 400  # runs that one failing state may cost
_AHEAD = 4  # states submitted ahead for each worker
_FLAKY_SHOWN = 10
_PROGRESS_S = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """Where a search stands. `left_s`: seconds of the budget left, None without one."""

    executed: int
    pruned: int
    failing: int
    flaky: int
    findings: int
    states_per_s: float
    elapsed_s: float
    left_s: float | None


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


@dataclass(frozen=True, slots=True, eq=False)
class TriedImages:
    """What the check said to images, by fingerprint: those that passed, and those that failed twice."""

    passed: set[bytes]
    failed: set[bytes]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A choice whose verdict is awaited. `place`: in the order of choices; `ticket`: None if the verdict is known."""

    place: int
    choice: Choice
    fingerprint: bytes
    ticket: int | None


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
        depth: int = 1,
        outer: tuple[Level, ...] = (),
    ) -> None:
        self._subject = subject
        self._executor = executor
        self._meter = Meter(budget)
        self._plan = strategy.plan(subject.space, lambda: self._meter.left_s)
        self._tally = GroupStats()
        self._ahead = min(_AHEAD * max(1, jobs), LAG)
        self._progress = progress
        self._snapshot = snapshot
        self._depth = depth
        self._outer = outer
        self._verdicts = VerdictCache(executor, subject.content, self._meter)
        self._classifier = Classifier(subject, self._verdicts)
        self._register = Register(subject)
        signatures = by_call(subject.space)
        self._known_timeouts = KnownTimeouts(signatures)
        self._known_causes = KnownCauses(subject, signatures)
        self._waiting: deque[_Waiting] = deque()
        self._put_off: deque[tuple[int, Choice, bytes]] = deque()
        self._executed = self._pruned = self._skipped = 0
        self._failing = self._flaky = self._uncertain = 0
        self._passed: set[bytes] = set()
        self._failed: set[bytes] = set()
        self._warnings: list[str] = []
        self._flaky_tokens: list[str] = []
        self._last_shown = 0.0

    def run(self) -> SearchResult:
        """Search until the strategy, the budget, the disk or the user's patience ends.

        Ctrl-C (SIGINT) and SIGTERM end it with what was found so far; so does a full disk.
        """
        stop = StopReason.EXHAUSTED
        with interruptible():
            try:
                stop = self._search()
            except KeyboardInterrupt:
                stop = StopReason.INTERRUPTED
            except OutOfTime:
                stop = StopReason.BUDGET_SECONDS
            except DiskFull as error:
                stop = StopReason.DISK_FULL
                self._warnings.append(f"{error.message}. {error.hint}")
        for waiting in self._waiting:
            self._leave(waiting.place, waiting.choice)
        self._waiting.clear()
        for place, choice, _ in self._put_off:
            self._leave(place, choice)
        return self._result(stop)

    @property
    def register(self) -> Register:
        return self._register

    def tried(self) -> TriedImages:
        """What the check said to images, by fingerprint."""
        return TriedImages(self._passed, self._failed)

    def token(self, state: CrashState) -> str:
        """To replay one of this search's states."""
        return self._register.token(state, self._outer)

    def _search(self) -> StopReason:
        content = self._subject.content
        seen: dict[bytes, int] = {}
        submitted = 0
        for place, choice in enumerate(self._plan.choices()):
            if self._meter.out_of_seconds():
                self._leave(place, choice)
                return StopReason.BUDGET_SECONDS
            fingerprint = content.fingerprint(choice.state)
            if fingerprint in seen:
                self._pruned += 1
                if self._plan.groups:
                    self._tally.same(place, choice, seen[fingerprint])
                continue
            if self._meter.out_of_states(submitted):
                self._leave(place, choice)
                self._take_all()
                return StopReason.BUDGET_STATES
            seen[fingerprint] = place
            while self._waiting and self._waiting[0].place <= place - LAG:
                self._take()
            if len(self._put_off) < MOST_PUT_OFF and self._known_timeouts.known_at(place, choice):
                self._put_off.append((place, choice, fingerprint))
                continue
            submitted += 1
            self._submit(place, choice, fingerprint)
        while self._put_off:
            if self._meter.out_of_seconds():
                return StopReason.BUDGET_SECONDS
            if self._meter.out_of_states(submitted):
                self._take_all()
                return StopReason.BUDGET_STATES
            submitted += 1
            self._submit(*self._put_off.popleft())
        self._take_all()
        return StopReason.EXHAUSTED

    def _submit(self, place: int, choice: Choice, fingerprint: bytes) -> None:
        known = self._verdicts.known(fingerprint)
        ticket = self._executor.submit(choice.state) if known is None else None
        self._waiting.append(_Waiting(place, choice, fingerprint, ticket))
        while len(self._waiting) > self._ahead:
            self._take()

    def _take_all(self) -> None:
        while self._waiting:
            self._take()

    def _leave(self, place: int, choice: Choice) -> None:
        """The search has come to a choice, and ends without it."""
        self._skipped += 1
        self._tally.left(place, choice)

    def _take(self) -> None:
        """Deal with the state that has waited longest."""
        waiting = self._waiting[0]
        if waiting.ticket is None:
            verdict = self._verdicts.known(waiting.fingerprint)
            assert verdict is not None
        else:
            answer = self._executor.result(waiting.ticket, self._meter.left_s)
            if answer is None:
                raise OutOfTime
            verdict = answer
        self._waiting.popleft()
        self._executed += 1
        self._tally.executed(waiting.place, waiting.choice)
        if verdict.passed:
            self._passed.add(waiting.fingerprint)
            raise_timeout(self._executor, verdict)
        else:
            failing = self._failing
            with self._executor.aside():
                self._fails(waiting, verdict)
            if self._failing > failing:
                self._tally.failed(waiting.place, waiting.choice, verdict.outcome)
        self._show()

    def _fails(self, waiting: _Waiting, verdict: Verdict) -> None:
        state = waiting.choice.state
        finding = self._known_causes.finding(waiting.choice, verdict)
        if finding is not None:
            self._failing += 1
            self._failed.add(waiting.fingerprint)
            finding.states += 1
            self._case(state, finding)
            return
        self._verdicts.allow(PROBES)
        try:
            again = self._again(waiting.choice, verdict)
            if again.passed:
                self._verdicts.forget(state)
                if verdict.outcome is Outcome.TIMEOUT and self._executor.hasty_s is not None:
                    raise_timeout(self._executor, again)  # not fickle, but slow
                else:
                    self._is_flaky(state)
                return
            if verdict.outcome is Outcome.TIMEOUT:
                verdict = again
                if again.outcome is Outcome.TIMEOUT:
                    self._known_timeouts.learn(waiting.place, waiting.choice)
            self._failing += 1
            self._verdicts.know(state, verdict)
            self._failed.add(waiting.fingerprint)
            draft = self._gather(state, verdict)
            self._case(state, draft)
            if draft is not None and draft.cause.complete:
                self._known_causes.explained(waiting.choice, verdict, draft)
        except OutOfRuns:
            self._case(state, self._add(self._classifier.guess(state, verdict)))

    def _case(self, state: CrashState, draft: DraftFinding | None) -> None:
        if draft is not None and len(draft.cases) < MOST_CASES:
            draft.cases.append(state)

    def _again(self, choice: Choice, verdict: Verdict) -> Verdict:
        """A second verdict; with all the time there is if the first was a time-out, and none like it is known."""
        return self._verdicts.again(
            choice.state, patient=verdict.outcome is Outcome.TIMEOUT and not self._known_timeouts.known(choice)
        )

    def _is_flaky(self, state: CrashState) -> None:
        self._flaky += 1
        self._verdicts.forget(state)
        if len(self._flaky_tokens) < _FLAKY_SHOWN:
            self._flaky_tokens.append(self.token(state))

    def _gather(self, state: CrashState, verdict: Verdict) -> DraftFinding | None:
        """The finding that a failing state belongs to, known or new; None where it was flaky after all."""
        point = state.point
        moment = int(self._subject.space.points[point].event)
        if not self._subject.space.lost(state):
            return self._prefix(moment)
        whole = self._classifier.whole_fails(point)
        if whole is not None and verdict.shows_no_more_than(whole):
            # Fails with nothing lost as well: not because of what it lost.
            return self._prefix(moment)
        known = [
            (draft, mine)
            for draft, mine in self._register.applicable(state)
            if not draft.cause.prefix or self._fails_before(mine[0])
        ]
        explained, state, verdict = self._explained(state, verdict, known)
        if explained is not None:
            explained.states += 1
            return explained
        return self._add(self._classifier.decide(state, verdict))

    def _fails_before(self, piece: int) -> bool:
        """Whether nothing after a lost piece is needed to fail, nor any promise made since: a prefix fails already."""
        return not self._verdicts.verdict(self._subject.prefix(self._subject.event_of(piece))).passed

    def _explained(
        self, state: CrashState, verdict: Verdict, known: list[tuple[DraftFinding, tuple[int, ...]]]
    ) -> tuple[DraftFinding | None, CrashState, Verdict]:
        """The known finding that a state is one more instance of; else the state to look into further.

        With all that the known findings blame persisted as well, does it pass? Then the first that suffices
        alone, or else the first, explains it. If it still fails, that smaller state is looked into instead.
        """
        if not known:
            return None, state, verdict
        pieces = [piece for _, mine in known for piece in mine]
        mended = self._register.with_persisted(state, pieces)
        after = self._verdicts.verdict(mended)
        if not after.passed and self._subject.space.lost(mended):
            whole = self._classifier.whole_fails(mended.point)
            if whole is None or not after.shows_no_more_than(whole):
                return None, mended, after
        if len(known) > 1:
            for draft, mine in known:
                if self._verdicts.verdict(self._register.with_persisted(state, mine)).passed:
                    return draft, state, verdict
        return known[0][0], state, verdict

    def _prefix(self, moment: int) -> DraftFinding | None:
        """ "Everything persisted" fails at a moment: part of a known stretch of the program, or of a new one."""
        known = self._register.by_moment(moment)
        if known is not None:
            known.states += 1
            return known
        return self._add(self._classifier.prefix_cause(moment), moment)

    def _add(self, cause: Cause, moment: int | None = None) -> DraftFinding | None:
        if not self._register.knows(cause) and self._passes_now(cause):
            self._failing -= 1
            self._is_flaky(cause.state)
            return None
        draft, new = self._register.add(cause)
        if cause.moment is not None:
            draft.stretches.update((cause.moment, cause.moment if moment is None else moment))
        if new:
            if cause.prefix and cause.complete and cause.moment is not None and cause.kept is not None:
                draft.cause = replace(cause, until=self._classifier.right_again(cause.moment))
            with tempfile.TemporaryDirectory(dir=self._executor.home) as folder:
                self._register.doubt(draft, self._snapshot, self._executor.write_image, Path(folder))
            self._show(now=True)
        return draft

    def _passes_now(self, cause: Cause) -> bool:
        """What is shown as a finding has failed twice."""
        try:
            return self._verdicts.again(cause.state, patient=cause.verdict.outcome is Outcome.TIMEOUT).passed
        except (OutOfRuns, OutOfTime):
            return False

    # -- telling

    def _show(self, *, now: bool = False) -> None:
        if self._progress is None:
            return
        at = time.monotonic()
        if now or at - self._last_shown >= _PROGRESS_S:
            self._last_shown = at
            self._progress(self.standing())

    def standing(self) -> Progress:
        elapsed = self._meter.elapsed_s
        return Progress(
            self._executed,
            self._pruned,
            self._failing,
            self._flaky,
            len(self._register.drafts),
            self._executed / elapsed if elapsed > 0 else 0.0,
            elapsed,
            self._meter.left_s,
        )

    def _result(self, stop: StopReason) -> SearchResult:
        if self._progress is not None:
            self._progress(self.standing())
        findings, uncertain = self._register.findings(depth=self._depth, outer=self._outer)
        feasible = self._subject.space.count()
        if self._flaky_tokens:
            named = ", ".join(self._flaky_tokens)
            more = self._flaky - len(self._flaky_tokens)
            self._warnings.append(
                f"flaky: the check failed and then passed on the same image, {self._flaky} times; such states are "
                f"never findings. Replay: {named}" + (f" and {more} more" if more else "")
            )
        doubtful = sum(draft.states for draft in self._register.drafts if draft.uncertain)
        self._warnings.extend(self._plan.notes)
        counts = StateCounts(
            feasible=feasible.value,
            feasible_exact=feasible.exact,
            feasible_note=feasible.note,
            executed=self._executed,
            pruned=self._pruned,
            skipped=self._skipped,
            failing=self._failing,
            flaky=self._flaky,
            uncertain=doubtful,
            put_off=len(self._put_off),
        )
        return SearchResult(
            stop,
            counts,
            tuple(findings),
            tuple(uncertain),
            tuple(self._warnings),
            self._verdicts.runs,
            self._meter.elapsed_s,
            tuple(draft.cause.state for draft in self._register.drafts),
            self._tally.rows(self._subject, self._plan.groups),
        )


def uncrashed(executor: Executor, *, first: bool, shown_pools: tuple[str, str] = ("{pool}", "{pool}")) -> None:
    """The final image, and the first one if asked, must pass before anything is crashed.

    `shown_pools`: folders with the final and the first image, for the command to try. Raises CrashcheckError
    check-rejects-final or check-rejects-first with the check's output: then the check, or the trace, is wrong.
    How long they take says how long those of crash states may take.
    """
    slowest_s = 0.0
    for final, wanted, pool in ((True, True, shown_pools[0]), (False, first, shown_pools[1])):
        if not wanted:
            continue
        verdict = executor.run_final() if final else executor.run_first()
        slowest_s = max(slowest_s, verdict.seconds)
        if verdict.passed:
            continue
        what = "after the workload, with nothing crashed" if final else "before the workload"
        command = executor.shown_plain(pool, final=final)
        advice = "" if final else ' If that is as it should be, set [check] first = "skip".'
        raise CrashcheckError(
            "check-rejects-final" if final else "check-rejects-first",
            f"the check fails on the image {what}: {_ended(verdict)}\n{_quoted(verdict.output)}",
            f"Try it yourself (on a copy, if it writes): {command}{advice}",
        )
    executor.set_timeout(timeout_for(slowest_s))


def _ended(verdict: Verdict) -> str:
    if verdict.signal is not None:
        return f"signal {verdict.signal} ({signal.Signals(verdict.signal).name})"
    if verdict.exit_code is not None:
        return f"exit status {verdict.exit_code}"
    return f"{verdict.outcome.value} after {verdict.seconds:.1f} s"


def _quoted(output: str) -> str:
    lines = output.rstrip().splitlines() or ["(it printed nothing)"]
    return "\n".join(f"  | {line}" for line in lines)
