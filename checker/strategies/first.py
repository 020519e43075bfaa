"""Some states before all that a strategy chooses: those that failed in an earlier run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from crashcheck.checker.budget import Left, endless
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.plan import NOTHING, Choice, Decided, Plan, Planned, Strategy

FAILED_BEFORE = "failed before"  # why these are chosen


@dataclass(frozen=True, slots=True)
class First:
    """`states`, then what `rest` chooses but these. They change the order alone."""

    states: Sequence[CrashState]
    rest: Strategy

    @property
    def name(self) -> str:
        return self.rest.name

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> Plan:
        canonical = CanonicalStates(space)
        return _Plan(tuple(dict.fromkeys(map(canonical.first, self.states))), self.rest.plan(space, left, decided))


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    first: tuple[CrashState, ...]
    rest: Plan

    @property
    def whole(self) -> bool:
        return self.rest.whole

    @property
    def groups(self) -> tuple[Planned, ...]:
        return self.rest.groups

    @property
    def notes(self) -> tuple[str, ...]:
        return self.rest.notes

    def choices(self) -> Iterator[Choice]:
        yield from (Choice(state, 0, FAILED_BEFORE) for state in self.first)
        known = set(self.first)
        yield from (choice for choice in self.rest.choices() if choice.state not in known)
