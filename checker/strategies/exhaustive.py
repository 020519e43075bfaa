"""Every feasible crash state, those that deviate least first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crashcheck.checker.budget import Left, endless
from crashcheck.checker.states.by_deviation import max_deviation, states_of_deviation
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.plan import NOTHING, Decided, Listed


@dataclass(frozen=True, slots=True)
class Exhaustive:
    """All states by deviation: passes over the crash points for each number of granules cut (by_deviation.py)."""

    name: str = "exhaustive"

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> Listed:
        return Listed(self.states(space, decided), whole=True)

    def states(self, space: StateSpace, decided: Decided = NOTHING) -> Iterator[CrashState]:
        """All but those of points that are decided when their turn comes."""
        yield from states_of_deviation(space, 0, decided)
        for d in range(1, max_deviation(space) + 1):
            yield from states_of_deviation(space, d, decided)
