"""Time limits of a search: how long a check may take, and which crash states are known to hang."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING

from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.search.protocol import Candidate
from crashcheck.checker.states.signature import SiteSignatures
from crashcheck.checker.strategies.plan import Choice

if TYPE_CHECKING:
    from crashcheck.checker.oracles.executor import Executor
    from crashcheck.checker.states.space import CrashState

LAG = 64  # choices after which a time-out counts as known: the same, however many checks run at once

LEAST_S = 1.0
TIMES = 10


def timeout_for(seconds: float) -> float:
    """The limit for a check that takes so many seconds where nothing crashed."""
    return max(LEAST_S, TIMES * seconds)


def raise_timeout(executor: Executor, verdict: Verdict) -> None:
    """Let the next checks have as long as a check that ended in time shows to be needed."""
    if executor.short_s is not None and timeout_for(verdict.seconds) > executor.short_s:
        executor.set_timeout(timeout_for(verdict.seconds))


class KnownTimeouts:
    """Time-outs that the full limit has confirmed, by the group that a state tests and its site signature."""

    def __init__(self, signatures: SiteSignatures) -> None:
        self._signatures = signatures
        self._learnt: dict[Hashable, int] = {}  # the place of the first choice with that signature

    def learn(self, place: int, choice: Choice) -> None:
        self._learnt.setdefault(self._signature(choice), place)

    def known(self, choice: Choice) -> bool:
        """Whether a state of the same group and signature is known to hang."""
        return bool(self._learnt) and self._signature(choice) in self._learnt

    def known_before(self, candidate: Candidate[Choice]) -> bool:
        """Whether that was known LAG choices before it."""
        learnt_at = self._learnt.get(self._signature(candidate.choice)) if self._learnt else None
        return learnt_at is not None and learnt_at <= candidate.place - LAG

    def _signature(self, choice: Choice) -> Hashable:
        return choice.group, self._signatures.of(choice.state)


class Patience:
    """Verdicts of which no time-out is due to the short limit, for when nothing else is under way."""

    def __init__(self, executor: Executor, known: KnownTimeouts) -> None:
        self._executor = executor
        self._known = known

    def run(self, state: CrashState) -> Verdict:
        """Execute a state, once more with the full limit if the short one was not enough."""
        verdict = self._executor.run(state)
        return self.again(state) if self.cut_short(state, verdict) else verdict

    def cut_short(self, state: CrashState, verdict: Verdict) -> bool:
        """Whether a verdict may be due to the short limit alone; with the signature of a known hang it is not."""
        return (
            verdict.outcome is Outcome.TIMEOUT
            and self._executor.short_s is not None
            and not self._known.known(Choice(state))
        )

    def again(self, state: CrashState) -> Verdict:
        """Execute a state with all the time that the limits allow, and learn from that."""
        verdict = self._executor.run(state, patient=True)
        if verdict.outcome is Outcome.TIMEOUT:
            self._known.learn(0, Choice(state))
        else:
            raise_timeout(self._executor, verdict)
        return verdict
