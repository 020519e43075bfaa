"""Verdicts on states near a failing one: the check runs once per state, within bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from crashcheck.checker.budget import Meter, OutOfTime
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.verdicts.executor import Executor

if TYPE_CHECKING:
    from crashcheck.checker.images.transition import Content
    from crashcheck.checker.states.space import CrashState

_REMEMBERED = 20_000  # verdicts; the oldest go first
_TIMEOUT_COSTS = 20  # as many runs as that: looking into a check that hangs must not take hours


_MOST_LIKELY = 3  # runs begun before they are asked for
_MOST_BEGUN = 32  # of these that nobody has asked for yet; the oldest are dropped


def nothing(runs: int) -> None:
    """What is done while a run is awaited, where nobody asks for more."""


class OutOfRuns(Exception):
    """One failing state has used up what it may cost."""


class _Begun(NamedTuple):
    """A run that was begun before it was asked for; `most_s`: the seconds that the budget then left it."""

    ticket: int
    most_s: float | None


class VerdictCache:
    """Verdicts by fingerprint: states that leave the same bytes and the same acknowledgements are one.

    While a run is awaited, `meanwhile` is called, and states that are expected to be asked for next are begun. What was
    expected and not asked for counts nowhere: no verdict and no bound depends on the workers. `allow` bounds the runs
    spent on one failing state, counted so that the bound does not depend on the machine's speed; the meter bounds them
    all.
    """

    def __init__(self, executor: Executor, content: Content, meter: Meter) -> None:
        self._executor = executor
        self._content = content
        self._meter = meter
        self.meanwhile: Callable[[int], None] = nothing  # with how many runs it costs
        self._known: dict[bytes, Verdict] = {}
        self._left = 0
        self._stop_s = 0.0  # when so many seconds of the budget are left
        self._shown_to_hang: set[bytes] = set()  # with all the time that the limits allow
        self._expected: Iterable[CrashState] = ()
        self._begun: dict[bytes, _Begun] = {}
        self._hung = False  # a run for the failing state that `allow` was last called for
        self.runs = 0

    def allow(self, runs: int, share: float = 1.0) -> None:
        """Allow so many runs, and that share of the seconds that are left."""
        self._left = runs
        self._expected, self._hung = (), False
        left_s = self._meter.left_s
        self._stop_s = 0.0 if left_s is None else left_s * (1 - share)

    def fair_share(self, share: float) -> float:
        """What to allow of the seconds that are left: in the last quarter of a budget all."""
        return 1.0 if self._meter.in_last_quarter else share

    def know(self, state: CrashState, verdict: Verdict) -> None:
        self._remember(self._content.fingerprint(state), verdict)

    def passed(self, fingerprint: bytes, verdict: Verdict) -> None:
        """Take note of a state that the search has executed, and that passed."""
        self._remember(fingerprint, replace(verdict, output=""))

    def forget(self, state: CrashState) -> None:
        self._known.pop(self._content.fingerprint(state), None)

    def forget_failed(self) -> set[bytes]:
        """The fingerprints of those that failed, which are not known any more."""
        failed = {key for key, verdict in self._known.items() if not verdict.passed}
        for key in failed:
            del self._known[key]
        return failed

    def known(self, fingerprint: bytes) -> Verdict | None:
        return self._known.get(fingerprint)

    def expect(self, states: Iterable[CrashState]) -> None:
        """These will probably be asked for next, after the one that is asked for now."""
        self._expected = states

    def verdict(self, state: CrashState) -> Verdict:
        """Raises OutOfRuns or OutOfTime where another run is not allowed."""
        self._within_time()  # before anything is done: of a long run even a fingerprint takes a while
        key = self._content.fingerprint(state)
        known = self._known.get(key)
        if known is None:
            self._require_runs()
            known = self._run(state, self._begun.pop(key, None))
            self._remember(key, known)
        return known

    def _remember(self, key: bytes, verdict: Verdict) -> None:
        self._known[key] = verdict
        if len(self._known) > _REMEMBERED:
            del self._known[next(iter(self._known))]

    def again(self, state: CrashState, *, patient: bool = False) -> Verdict:
        """Run although its verdict may be known; `patient`: with all the time that the limits allow."""
        self._require_runs()
        return self._run(state, patient=patient)

    def _require_runs(self) -> None:
        left_s = self._meter.left_s
        if self._left <= 0 or (left_s is not None and left_s < self._stop_s):
            raise OutOfRuns

    def confirm(self, state: CrashState, verdict: Verdict) -> bool:
        """Whether a state fails again, as a time-out with all the time that the limits allow; whatever it costs."""
        patient = verdict.outcome is Outcome.TIMEOUT
        if patient and self._content.fingerprint(state) in self._shown_to_hang:
            return True
        return not self._run(state, patient=patient).passed

    def _within_time(self) -> float | None:
        left = self._meter.explaining_left_s
        if left is not None and left <= 0:
            raise OutOfTime
        return left

    def _run(self, state: CrashState, begun: _Begun | None = None, *, patient: bool = False) -> Verdict:
        """The verdict of a run that was begun, or is begun now."""
        left = self._within_time()
        self._left -= 1
        self.runs += 1
        if begun is None:
            begun = _Begun(self._executor.submit_now(state, patient=patient, most_s=left), left)
        self._begin_expected(left)
        self.meanwhile(1 + _TIMEOUT_COSTS * patient)  # patient: it has timed out once
        verdict, left = self._executor.now(begun.ticket), begun.most_s
        if verdict.outcome is Outcome.TIMEOUT:
            self._hung = True
            if left is not None and verdict.seconds >= left:
                raise OutOfTime  # the budget ended this run, so it shows nothing
            self._left -= _TIMEOUT_COSTS
            if patient:
                self._shown_to_hang.add(self._content.fingerprint(state))
        return verdict

    def _begin_expected(self, left_s: float | None) -> None:
        """Begin what is likely to be asked for next. After a hang nothing: it would hang as well."""
        expected, self._expected = self._expected, ()
        if self._hung or not self._executor.begins_likely:
            return
        for state in islice(expected, _MOST_LIKELY):
            key = self._content.fingerprint(state)
            if key not in self._known and key not in self._begun:
                self._begun[key] = _Begun(self._executor.submit_likely(state, most_s=left_s), left_s)
        while len(self._begun) > _MOST_BEGUN:
            self._executor.drop(self._begun.pop(next(iter(self._begun))).ticket)

    def failing_unlike(self, known: Verdict | None) -> Callable[[CrashState], bool]:
        """Whether a state fails; with a known failure given, whether it shows more than that."""

        def fails(state: CrashState) -> bool:
            verdict = self.verdict(state)
            return not verdict.passed and (known is None or not verdict.shows_no_more_than(known))

        return fails
