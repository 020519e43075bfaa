"""States on which the check hangs, remembered by what they look like, so that their likes can wait until the end."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crashcheck.analyzer.trace.reader import calls_of
from crashcheck.checker.result import Outcome, Verdict
from crashcheck.checker.strategies.plan import Choice
from crashcheck.checker.subject import Subject

if TYPE_CHECKING:
    from crashcheck.checker.executor import Executor
    from crashcheck.checker.states import CrashState

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


class Looks:
    """A look: the group that a state tests, the static sites that it lost, those that it kept of what was pending."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def of(self, choice: Choice) -> Hashable:
        space = self._subject.space
        return choice.group, self._sites(space.lost(choice.state)), self._sites(space.persisted(choice.state))

    def _sites(self, pieces: Sequence[int]) -> tuple[int, ...]:
        graph = self._subject.graph
        rows = np.array([graph.whole(piece)[0] for piece in pieces], dtype=np.int64)
        events = self._subject.trace.events[graph.event[rows]]
        sites = calls_of(events).astype(np.int64)
        # without a site, the place in the file must do
        sites = np.where(events["site"] > 0, sites, -1 - graph.granule[rows])
        return tuple(np.unique(sites).tolist())


class Hangs:
    """Only hangs that the full time limit has confirmed are learnt."""

    def __init__(self, looks: Looks) -> None:
        self._looks = looks
        self._learnt: dict[Hashable, int] = {}  # the place of the first choice that looks like that

    def learn(self, place: int, choice: Choice) -> None:
        self._learnt.setdefault(self._looks.of(choice), place)

    def known(self, choice: Choice) -> bool:
        """Whether one that looks like it is known to hang."""
        return bool(self._learnt) and self._looks.of(choice) in self._learnt

    def known_at(self, place: int, choice: Choice) -> bool:
        """Whether that was known LAG choices before it."""
        return bool(self._learnt) and self._learnt.get(self._looks.of(choice), place) <= place - LAG


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
