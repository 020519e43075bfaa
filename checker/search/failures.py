"""From a failing crash state to a finding: run again, explained by counterfactual runs, counted once.

Failing states wait while another one is explained, and the search continues meanwhile. First come those that show no
known finding, then those that show one, in the order of the search; of hangs all but the first are last. One is dealt
with so:

1. A state whose site signature a finding has explained often enough is counted with that finding (`KnownCauses`).
2. It is run again. What passes then is flaky, and never a finding, or slow.
3. If "everything persisted" fails there as well, no reordering is needed: the program fails at that moment anyway.
4. If it passes with what the known findings blame persisted as well, it is one more state of one of these.
5. Else it is minimised and classified (findings/classify.py), and is a finding of its own.
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crashcheck.checker.budget import Left, OutOfTime
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.classify import Classifier
from crashcheck.checker.findings.prefix_proof import PrefixProof, SecondRuns
from crashcheck.checker.findings.register import MOST_CASES, DraftFinding, Register
from crashcheck.checker.results import TO_SETTLE, Outcome, Verdict
from crashcheck.checker.search.protocol import Candidate
from crashcheck.checker.search.timeouts import KnownTimeouts, raise_timeout
from crashcheck.checker.states.signature import SiteSignatures, by_call
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies.plan import Choice
from crashcheck.checker.subject import Subject
from crashcheck.checker.token import Level
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.other_files import run_on_files
from crashcheck.checker.verdicts.verdict_cache import OutOfRuns, VerdictCache

RUNS = 400  # that explaining one failing state may cost
_HANG_SHARE = 0.25  # of the seconds left, that explaining the first hang may take
_SHARE = 0.5  # the same of any other failure, unless little is left
_FLAKY_SHOWN = 10
_LINE_SHOWN = 100  # characters
_FAR_LESS = 0.5  # of the updates that another state loses
_FAILED_ONCE = f"the search ended before this state was run again and explained{TO_SETTLE}a larger budget"
_UNEXPLAINED = "the search ended before {:,} states that had failed were run again and explained; {} Replay: {}"
PACE = 1  # results of the search for each run that explains a state which shows no known finding
_PACE_OF_SIMILAR = 8  # the same of others, while none waits that shows none
_FEW = 4  # states that show no known finding: while more wait, the search takes a result in every _FEW runs alone
CONFIRMATIONS = 3  # different operations in which runs must have shown the same finding to be the reason


class JudgedOtherwise(Exception):
    """What a cause rests on is not borne out: from now on the oracle judges otherwise, perhaps this state, too."""


class FailedOnce(NamedTuple):
    """A choice whose execution failed, once."""

    candidate: Candidate[Choice]
    verdict: Verdict
    executed: int  # states by then


class Failures:
    """The failing states of one search, and the register of findings that they make."""

    def __init__(
        self,
        subject: Subject,
        executor: Executor,
        verdicts: VerdictCache,
        *,
        second_runs: SecondRuns,
        left: Left,
        explaining_left: Left,
        outer: tuple[Level, ...],
    ) -> None:
        """`second_runs`, `left`: as PrefixProof has them; `outer`: the crashes before the searched one.

        `explaining_left`: seconds that are left for a run that proves a finding.
        """
        # constant
        self._subject = subject
        self._executor = executor
        self._proof = None
        if second_runs.snapshot is not None:
            run_on, write_image = partial(run_on_files, executor, left=explaining_left), executor.images.write_image
            self._proof = PrefixProof(subject, second_runs.snapshot, write_image, run_on, second_runs.digested, left)
        self._outer = outer
        # changing
        signatures = by_call(subject.space)
        self.register = Register(subject)
        self.known_timeouts = KnownTimeouts(signatures)
        self.fresh: list[DraftFinding] = []  # new, or surer than they were; whoever reads it clears it
        self.failing = 0  # states that failed twice
        self.flaky = 0  # states that failed, and then passed
        self.failed: set[bytes] = set()  # fingerprints of the failing ones
        self._flaky_shown: list[str] = []  # tokens of the first _FLAKY_SHOWN, and how they failed
        self._verdicts = verdicts
        self._classifier = Classifier(subject, verdicts, self.register.causes)
        self._known_causes = KnownCauses(subject, signatures)
        self._in_failing_stretch = np.zeros(len(subject.space.points), dtype=np.bool_)  # of each crash point
        self._new: deque[FailedOnce] = deque()  # wait, and show no known finding as far as is known
        self._similar: deque[FailedOnce] = deque()  # wait, and may be further states of known findings
        self._last: deque[FailedOnce] = deque()  # hangs, which are expensive
        self._under_way: tuple[FailedOnce, ...] = ()  # what is being explained
        self._hangs = False  # whether a state has timed out
        self._unexplained: tuple[str, ...] = ()  # what the report states about those that waited to the end
        self.pace = PACE  # results of the search that are taken for each run that explains
        self._turn = 0  # runs that explained
        self._doubted: set[bytes] = set()  # fingerprints of states that failed before the oracle judged otherwise

    @property
    def warnings(self) -> list[str]:
        """What the report states about flaky states, and those that were not explained."""
        if not self._flaky_shown:
            return [*self._unexplained]
        named = ", ".join(self._flaky_shown)
        more = self.flaky - len(self._flaky_shown)
        return [
            *self._unexplained,
            f"flaky: the check failed and then passed on the same image, {self.flaky} times; such states are "
            f"never findings. Replay: {named}" + (f" and {more} more" if more else ""),
        ]

    def wait(self, candidate: Candidate[Choice]) -> bool:
        """Whether a state must be tested after all others: it is similar to a known hang, or is in a stretch of the
        run in which everything fails. It shows something new less often than the others."""
        choice = candidate.choice
        return bool(self._in_failing_stretch[choice.state.point]) or self.known_timeouts.likely(choice)

    def left_to_others(self, candidate: Candidate[Choice], verdict: Verdict) -> None:
        """A state failed that another search explains. Those that are similar to a hang wait."""
        if verdict.outcome is Outcome.TIMEOUT:
            self.known_timeouts.suspect(candidate.choice)

    def add(self, failure: FailedOnce) -> None:
        """Let a state that failed wait for its turn."""
        candidate, verdict, _ = failure
        if verdict.outcome is Outcome.TIMEOUT:
            last = self._hangs or self.known_timeouts
            self.known_timeouts.suspect(candidate.choice)
            self._hangs = True
            (self._last if last else self._new).append(failure)
        else:
            self._new.append(failure)

    def next(self, *, last: bool) -> FailedOnce | None:
        """The failing state whose turn it is, which then waits no more; hangs but the first only with `last`."""
        while self._new:
            failure = self._new.popleft()
            if not self._shows_known(failure):
                self.pace = PACE
                return failure
            self._similar.append(failure)
        self.pace = _PACE_OF_SIMILAR
        if self._similar:
            return self._similar.popleft()
        return self._last.popleft() if self._last and last else None

    def due(self, runs: int) -> int:
        """How many results the search takes during what costs so many runs that explain."""
        before, self._turn = self._turn, self._turn + runs
        if len(self._new) > _FEW:
            return self._turn // _FEW - before // _FEW
        return runs * (PACE if self._new else self.pace)

    def end(self) -> None:
        """The search has ended: what still waits is counted, and what shows no known finding is an uncertain one."""
        waiting = [*self._under_way, *self._new, *self._similar, *self._last]
        if not waiting:
            return
        new = [failure for failure in (*self._under_way, *self._new, *self._last) if not self._shows_known(failure)]
        token = self.register.token((new or waiting)[0].candidate.choice.state, self._outer)
        shown = (
            f"{len(new):,} of them look like none of the findings." if new else "each looks like one of the findings."
        )
        self._unexplained = (_UNEXPLAINED.format(len(waiting), shown, token),)
        for candidate, verdict, _ in new[:1]:
            draft, added = self.register.add(self._classifier.guess(candidate.choice.state, verdict))
            if added:
                draft.uncertain, draft.failed_once, draft.states = _FAILED_ONCE, True, len(new)
                self.fresh.append(draft)

    def _shows_known(self, failure: FailedOnce) -> bool:
        """Whether a state may be one more of a known finding: no run was made for it."""
        choice, verdict = failure.candidate.choice, failure.verdict
        if self._in_failing_stretch[choice.state.point] or self._known_causes.has(choice, verdict):
            return True
        return bool(self.register.applicable(choice.state))

    def explain(self, failure: FailedOnce) -> bool:
        """Deal with a state that failed; whether it counts as failing, because it failed again."""
        self._under_way = (failure,)
        before, (candidate, verdict, _) = self.failing, failure
        finding = self._known_causes.finding(candidate.choice, verdict)
        if finding is not None and self.register.covers(finding, candidate.choice.state):
            self._counts(candidate)
            finding.states += 1
            self._case(candidate.choice.state, finding)
        else:
            self._confirm(candidate, verdict)
        self._under_way = ()
        return self.failing > before

    def _confirm(self, candidate: Candidate[Choice], verdict: Verdict) -> None:
        """Run a failing state again, and explain it if it fails; both again if the oracle then judges otherwise."""
        before = self.failing
        try:
            self._run_again(candidate, verdict)
        except JudgedOtherwise:
            self.failing = before
            waiting = (failure.candidate.fingerprint for failure in (*self._new, *self._similar, *self._last))
            self._doubted = {candidate.fingerprint, *waiting, *self._verdicts.forget_failed()}
            self.failed -= self._doubted
            self._run_again(candidate, verdict)

    def _run_again(self, candidate: Candidate[Choice], verdict: Verdict) -> None:
        choice, state = candidate.choice, candidate.choice.state
        first_hang = verdict.outcome is Outcome.TIMEOUT and not self.known_timeouts
        share = _HANG_SHARE if first_hang else self._verdicts.fair_share(_SHARE)
        self._verdicts.allow(RUNS, share)
        try:
            again = self._again(choice, verdict)
            self._verdicts.allow(RUNS, share)  # that run had the full time limit, the next have not
            if again.passed:
                self._verdicts.forget(state)
                if candidate.fingerprint not in self._doubted:
                    self._passed_after_all(state, verdict, again)
                return
            if verdict.outcome is Outcome.TIMEOUT:
                verdict = again
                if again.outcome is Outcome.TIMEOUT:
                    self.known_timeouts.learn(choice)
            self._counts(candidate)
            self._verdicts.know(state, verdict)
            draft = self._finding_of(state, verdict)
            self._case(state, draft)
            if draft is not None and draft.cause.complete:
                self._known_causes.explained(choice, verdict, draft)
        except OutOfRuns:
            self._case(state, self._add(self._classifier.guess(state, verdict)))

    def _counts(self, candidate: Candidate[Choice]) -> None:
        self.failing += 1
        self.failed.add(candidate.fingerprint)

    def _passed_after_all(self, state: CrashState, verdict: Verdict, again: Verdict) -> None:
        if verdict.outcome is Outcome.TIMEOUT and self._executor.short is not None:
            raise_timeout(self._executor, again)  # not fickle, but slow
        else:
            self._is_flaky(state, verdict)

    def _case(self, state: CrashState, draft: DraftFinding | None) -> None:
        if draft is not None and len(draft.cases) < MOST_CASES:
            draft.cases.append(state)

    def _again(self, choice: Choice, verdict: Verdict) -> Verdict:
        """A second verdict; with the full time limit if the first was a time-out, unless it is known to hang."""
        return self._verdicts.again(
            choice.state, patient=verdict.outcome is Outcome.TIMEOUT and not self.known_timeouts.known(choice)
        )

    def _is_flaky(self, state: CrashState, failed: Verdict) -> None:
        self.flaky += 1
        self._verdicts.forget(state)
        if len(self._flaky_shown) < _FLAKY_SHOWN:
            self._flaky_shown.append(f"{self.register.token(state, self._outer)} ({_how(failed)})")

    def _finding_of(self, state: CrashState, verdict: Verdict) -> DraftFinding | None:
        """The finding that a failing state belongs to, known or new; None where it was flaky after all."""
        point = state.point
        moment = self._subject.space.moment(point)
        if not self._subject.space.lost(state):
            return self._prefix(moment)
        whole = self._classifier.whole_fails(point)
        if whole is not None and verdict.shows_no_more_than(whole):
            # Fails with nothing lost as well: not because of what it lost.
            return self._prefix(moment)
        known = [
            (draft, mine)
            for draft, mine in self.register.applicable(state)
            if (not draft.cause.prefix or self._fails_before(mine[0])) and not self._shows_better(state, draft)
        ]
        explained, state, verdict = self._explained(state, verdict, known)
        if explained is not None:
            explained.states += 1
            return explained
        return self._add(self._classifier.decide(state, verdict))

    def _shows_better(self, state: CrashState, draft: DraftFinding) -> bool:
        """Whether a draft was not minimised to the end, and a state that loses far less is easier to minimise."""
        lost = self._subject.space.lost
        return draft.cause.cut_short and len(lost(state)) <= _FAR_LESS * len(lost(draft.cause.state))

    def _fails_before(self, piece: int) -> bool:
        """Whether the program fails just before a lost piece, so that nothing after it is needed to fail."""
        return not self._verdicts.verdict(self._subject.prefix(self._subject.event_of(piece))).passed

    def _explained(
        self, state: CrashState, verdict: Verdict, known: list[tuple[DraftFinding, tuple[int, ...]]]
    ) -> tuple[DraftFinding | None, CrashState, Verdict]:
        """The known finding that explains a state; else the state to explain further.

        With all that the known findings blame persisted as well, does it pass? Then the first that is enough
        alone, or else the first, explains it. If it still fails, that smaller state is explained instead.
        """
        if not known:
            return None, state, verdict
        pieces = [piece for _, mine in known for piece in mine]
        smaller = self.register.with_persisted(state, pieces)
        after = self._verdicts.verdict(smaller)
        if not after.passed and self._subject.space.lost(smaller):
            whole = self._classifier.whole_fails(smaller.point)
            if whole is None or not after.shows_no_more_than(whole):
                return None, smaller, after
        if len(known) > 1:
            for draft, mine in known:
                if self._verdicts.verdict(self.register.with_persisted(state, mine)).passed:
                    return draft, state, verdict
        return known[0][0], state, verdict

    def _prefix(self, moment: int) -> DraftFinding | None:
        """ "Everything persisted" fails at a moment: part of a known stretch of the program, or of a new one."""
        known = self.register.by_moment(moment)
        if known is not None:
            known.states += 1
            return known
        return self._add(self._classifier.stretches.cause(moment), moment)

    def _add(self, cause: Cause, moment: int | None = None) -> DraftFinding | None:
        if not self.register.knows(cause):
            if not self._executor.oracle.is_borne_out(cause.state.point):
                raise JudgedOtherwise
            cause = self._classifier.with_kill(cause)
            if self._passes_now(cause):
                self.failing -= 1
                self._is_flaky(cause.state, cause.verdict)
                return None
        draft, new = self.register.add(cause)
        if cause.moment is not None:
            last = cause.moment if moment is None else moment
            draft.stretches.update((cause.moment, last))
            if new and cause.prefix and cause.complete and cause.kept is not None:
                until, end = self._classifier.stretches.end(cause.moment)
                early = until is not None and cause.lost is not None and until < cause.lost  # another thread's ends it
                draft.cause = replace(cause, until=until, lost=until if early else cause.lost)
                last = max(last, end)
            if cause.kept is not None:
                self._stretch(cause.moment, last)
        if new:
            with tempfile.TemporaryDirectory(dir=self._executor.home) as folder:
                self.register.doubt(draft, self._proof, Path(folder))
            self.fresh.append(draft)
            if draft.cause.complete and not (draft.cause.prefix or draft.uncertain):
                self._explain_cut_short(draft)
        return draft

    def _explain_cut_short(self, by: DraftFinding) -> None:
        """Count drafts that were not minimised to the end with a new finding if their states pass without its cause."""
        for draft in [one for one in self.register.drafts if one.cause.cut_short]:
            state = draft.cause.state
            mine = next((pieces for one, pieces in self.register.applicable(state) if one is by), None)
            try:
                if mine and self._verdicts.verdict(self.register.with_persisted(state, mine)).passed:
                    self.register.merge(draft, by)
            except (OutOfRuns, OutOfTime):
                return

    def _stretch(self, moment: int, last: int) -> None:
        """Note that everything fails from one moment to another."""
        points = self._subject.space.points.event
        low, high = np.searchsorted(points, moment, side="left"), np.searchsorted(points, last, side="right")
        self._in_failing_stretch[low:high] = True

    def _passes_now(self, cause: Cause) -> bool:
        """What is shown as a finding has failed twice."""
        try:
            return not self._verdicts.confirm(cause.state, cause.verdict)
        except OutOfTime:
            return False


@dataclass(slots=True)
class _Known:
    """The finding that explains the states with one signature. `counted`: states since then, without runs."""

    finding: DraftFinding
    operations: set[int] = field(default_factory=set)
    counted: int = 0


class KnownCauses:
    """Signatures of failing states that one finding has explained, by counterfactual runs, in several operations.

    The signature of a failing state is the group that it tests, its site signature, whether an operation was under
    way, and how the check ended. Of the states of a known signature the 1st, 2nd, 4th, 8th, … are explained as if it
    were new; if another finding is the reason of one, the signature is never trusted again.
    """

    def __init__(self, subject: Subject, signatures: SiteSignatures) -> None:
        self._points = subject.space.points
        self._signatures = signatures
        self._known: dict[Hashable, _Known | None] = {}  # None: several findings share the signature

    def finding(self, choice: Choice, verdict: Verdict) -> DraftFinding | None:
        """The finding to count a state with; None if it has to be explained by runs."""
        known = self._known.get(self._signature(choice, verdict)) if self._known else None
        if known is None or len(known.operations) < CONFIRMATIONS:
            return None
        known.counted += 1
        return None if known.counted & (known.counted - 1) == 0 else known.finding

    def has(self, choice: Choice, verdict: Verdict) -> bool:
        """Whether a finding was the reason of a state with this signature."""
        return bool(self._known) and self._known.get(self._signature(choice, verdict)) is not None

    def explained(self, choice: Choice, verdict: Verdict, finding: DraftFinding) -> None:
        """Note that runs have shown a finding to be the reason of a failing state."""
        signature = self._signature(choice, verdict)
        known = self._known.setdefault(signature, _Known(finding))
        if known is None:
            return
        if known.finding is not finding:
            self._known[signature] = None
            return
        known.operations.add(int(self._points[choice.state.point].acked))

    def _signature(self, choice: Choice, verdict: Verdict) -> Hashable:
        point = self._points[choice.state.point]
        ended = verdict.outcome, verdict.exit_code, verdict.signal
        return choice.group, self._signatures.of(choice.state), point.begun - point.acked, ended


def _how(failed: Verdict) -> str:
    """How a check failed, in a few words: the first line that it printed, and its end."""
    end = {Outcome.TIMEOUT: "timed out", Outcome.SIGNAL: f"signal {failed.signal}"}.get(failed.outcome)
    line = next((row.strip() for row in failed.output.splitlines() if row.strip()), "")
    return f"{end or f'exit status {failed.exit_code}'}" + (f": {line[:_LINE_SHOWN]}" if line else "")
