"""Time limits of a search: how long a check may take, and which crash states are known to hang."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from crashcheck.checker.budget import Left, OutOfTime, endless
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.states.signature import SiteSignatures
from crashcheck.checker.strategies.plan import Choice

if TYPE_CHECKING:
    from crashcheck.checker.states.space import CrashState
    from crashcheck.checker.verdicts.executor import Executor

_LEAST_S, _LEAST_BUSY_S = 1.0, 0.2
_TIMES = 10


def timeout_for(seconds: float) -> TimeLimit:
    """The limit for a check that takes so many seconds where nothing crashed."""
    return TimeLimit(max(_LEAST_S, _TIMES * seconds), max(_LEAST_BUSY_S, _TIMES * seconds))


def raise_timeout(executor: Executor, verdict: Verdict) -> None:
    """Let the next checks have as long as a check that ended in time shows to be needed."""
    needed = timeout_for(verdict.seconds)
    if executor.short is not None and needed > executor.short:
        executor.set_timeout(needed)


class KnownTimeouts:
    """Time-outs by the group that a state tests and its site signature: those that the full limit has confirmed, and
    those that it has not."""

    def __init__(self, signatures: SiteSignatures) -> None:
        self._signatures = signatures
        self._learnt: set[Hashable] = set()
        self._suspected: set[Hashable] = set()

    def __bool__(self) -> bool:
        return bool(self._learnt)

    def learn(self, choice: Choice) -> None:
        self._learnt.add(self._signature(choice))

    def suspect(self, choice: Choice) -> None:
        """Note a time-out that the full limit has not confirmed."""
        self._suspected.add(self._signature(choice))

    def likely(self, choice: Choice) -> bool:
        """Whether a state of the same group and signature has timed out, confirmed or not."""
        if not self._learnt and not self._suspected:
            return False
        signature = self._signature(choice)
        return signature in self._learnt or signature in self._suspected

    def known(self, choice: Choice) -> bool:
        """Whether a state of the same group and signature is known to hang."""
        return bool(self._learnt) and self._signature(choice) in self._learnt

    def _signature(self, choice: Choice) -> Hashable:
        return choice.group, self._signatures.of(choice.state)


class Patience:
    """Verdicts of which no time-out is due to the short limit, for when nothing else is under way.

    No run takes longer than `left` gives: where that is too little for a verdict, OutOfTime is raised.
    """

    def __init__(self, executor: Executor, known: KnownTimeouts, left: Left = endless) -> None:
        self._executor = executor
        self._known = known
        self._left = left

    def run(self, state: CrashState) -> Verdict:
        """Execute a state, once more with the full limit if the short one was not enough."""
        verdict = self._executed(state)
        return self.again(state) if self.cut_short(state, verdict) else verdict

    def cut_short(self, state: CrashState, verdict: Verdict) -> bool:
        """Whether a verdict may be due to the short limit alone; with the signature of a known hang it is not."""
        return (
            verdict.outcome is Outcome.TIMEOUT
            and self._executor.short is not None
            and not self._known.known(Choice(state))
        )

    def again(self, state: CrashState) -> Verdict:
        """Execute a state with all the time that the limits allow, and learn from that."""
        verdict = self._executed(state, patient=True)
        if verdict.outcome is Outcome.TIMEOUT:
            self._known.learn(Choice(state))
        else:
            raise_timeout(self._executor, verdict)
        return verdict

    def _executed(self, state: CrashState, *, patient: bool = False) -> Verdict:
        left_s = self._left()
        if left_s is None:
            return self._executor.run(state, patient=patient)
        if left_s <= 0:
            raise OutOfTime
        verdict = self._executor.run(state, patient=patient, most_s=left_s)
        if verdict.outcome is Outcome.TIMEOUT and self._left() == 0:
            raise OutOfTime
        return verdict
