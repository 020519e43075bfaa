"""Crash states in which only few granules lost something, or only few kept something."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crashcheck.checker.budget import Left, endless
from crashcheck.checker.states.by_deviation import max_deviation, states_of_deviation
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.plan import NOTHING, Decided, Listed


@dataclass(frozen=True, slots=True)
class Bounded:
    """States of deviation at most `deviations`, those that deviate least first. Raises ValueError if negative."""

    deviations: int = 2
    name: str = "bounded"

    def __post_init__(self) -> None:
        if self.deviations < 0:
            raise ValueError(f"deviations is {self.deviations}, expected 0 or more")

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> Listed:
        return Listed(self.states(space))

    def states(self, space: StateSpace) -> Iterator[CrashState]:
        yield from states_of_deviation(space, 0)
        for d in range(1, min(self.deviations, max_deviation(space)) + 1):
            yield from states_of_deviation(space, d)
