"""States on which the check hangs, remembered by what they look like, so that their likes can wait until the end."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.states.signature import Looks
from crashcheck.checker.strategies.plan import Choice

if TYPE_CHECKING:
    from crashcheck.checker.execution.executor import Executor
    from crashcheck.checker.states.space import CrashState

LAG = 64  # choices after which a verdict is acted upon: the same ones, however many checks run at once
MOST_PUT_OFF = 20_000  # beyond so many that wait, further ones are run as they come

LEAST_S = 1.0
TIMES = 10


def enough(seconds: float) -> float:
    """The time to give a check that takes so long where nothing went wrong."""
    return max(LEAST_S, TIMES * seconds)


def took(executor: Executor, verdict: Verdict) -> None:
    """A check that was in time: the next ones are given no less than it shows to be needed."""
    if executor.hasty_s is not None and enough(verdict.seconds) > executor.hasty_s:
        executor.give(enough(verdict.seconds))


class Hangs:
    """Only hangs that the full time limit has confirmed are learnt. States are alike that test the same group."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._learnt: dict[Hashable, int] = {}  # the place of the first choice that looks like that

    def learn(self, place: int, choice: Choice) -> None:
        self._learnt.setdefault(self._look(choice), place)

    def known(self, choice: Choice) -> bool:
        """Whether one that looks like it is known to hang."""
        return bool(self._learnt) and self._look(choice) in self._learnt

    def known_at(self, place: int, choice: Choice) -> bool:
        """Whether that was known LAG choices before it."""
        return bool(self._learnt) and self._learnt.get(self._look(choice), place) <= place - LAG

    def _look(self, choice: Choice) -> Hashable:
        return choice.group, self._looks.of(choice.state)


class Patience:
    """Verdicts of which no time-out is due to the hasty limit, where nothing else is under way."""

    def __init__(self, executor: Executor, hangs: Hangs) -> None:
        self._executor = executor
        self._hangs = hangs

    def run(self, state: CrashState) -> Verdict:
        """Execute a state, with all the time there is if the hasty limit does not do."""
        verdict = self._executor.run(state)
        return self.again(state) if self.hasty(state, verdict) else verdict

    def hasty(self, state: CrashState, verdict: Verdict) -> bool:
        """Whether a verdict may be due to the limit alone: of what looks like a known hang it is not."""
        return (
            verdict.outcome is Outcome.TIMEOUT
            and self._executor.hasty_s is not None
            and not self._hangs.known(Choice(state))
        )

    def again(self, state: CrashState) -> Verdict:
        """Execute a state with all the time that the limits allow, and learn from that."""
        verdict = self._executor.run(state, patient=True)
        if verdict.outcome is Outcome.TIMEOUT:
            self._hangs.learn(0, Choice(state))
        else:
            took(self._executor, verdict)
        return verdict
