"""The plan of a strategy for one state space: states, each with the reason to test it, and groups."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Protocol

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.invariants import Inferred
from crashcheck.analyzer.invariants.ranking import RankedGroup
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Left, endless
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.representative import Representative
from crashcheck.interruption import KeepOn


@dataclass(frozen=True, slots=True)
class Choice:
    """A state to test. `group`: the number of the group that it tests, 0 for none; `family`: why it was chosen."""

    state: CrashState
    group: int = 0
    family: str = ""


class Infer(Protocol):
    """Likely invariants of a run; what `keep_on` raises, which is called now and then, ends it."""

    def __call__(self, found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred: ...


@dataclass(slots=True, eq=False)
class Planned:
    """A group under way. `complete`: all states of its representative have been chosen.

    `shared`: those of its states that had been chosen before, for another reason, by their place in the order of
    choices.
    """

    ranked: RankedGroup
    representative: Representative
    complete: bool = False
    shared: array[int] = field(default_factory=lambda: array("q"))

    @property
    def number(self) -> int:
        return self.ranked.group.number


class Decided(Protocol):
    """Crash points whose states need not be run any more. `settled`: no further one will come."""

    @property
    def settled(self) -> bool: ...

    def __contains__(self, point: object, /) -> bool: ...


class _Nothing:
    settled = False

    def __contains__(self, point: object, /) -> bool:
        return False


NOTHING: Decided = _Nothing()


class Plan(Protocol):
    """One search's choices, each state once. `groups` are all there once the first choice has been asked for.

    `whole`: run to its end, it has given every state but those of decided points, of which it may give some.
    """

    @property
    def whole(self) -> bool: ...

    @property
    def groups(self) -> tuple[Planned, ...]: ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be done as the strategy means it, for the report's warnings."""
        ...

    def choices(self) -> Iterator[Choice]: ...


class Strategy(Protocol):
    """A way to select crash states and to order them; what it would cost to continue is paid on demand."""

    @property
    def name(self) -> str: ...

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> Plan:
        """A search; `left` gives what is left of its budget. Preparing it may end it with OutOfTime as well.

        `decided` may grow while the choices are given; once it is settled, only what is not decided follows, in the
        same order.
        """
        ...


def select_states(space: StateSpace, strategy: Strategy) -> Iterator[CrashState]:
    """The states that a strategy selects, each once, in its order."""
    return (choice.state for choice in strategy.plan(space).choices())


@dataclass(frozen=True, slots=True, eq=False)
class Listed:
    """A plan without groups."""

    states: Iterator[CrashState]
    whole: bool = False
    groups: tuple[Planned, ...] = ()
    notes: tuple[str, ...] = ()

    def choices(self) -> Iterator[Choice]:
        return (Choice(state) for state in self.states)


class Chosen:
    """Remembers what has been chosen, and in which place, so that each state appears once."""

    def __init__(self) -> None:
        self._place: dict[bytes, int] = {}
        self._group = array("l")  # of each place

    def __len__(self) -> int:
        return len(self._place)

    def place(self, state: CrashState) -> int | None:
        """The place at which a state was chosen; None if it was not."""
        return self._place.get(_name(state))

    def again(self, choice: Choice, planned: Planned | None) -> bool:
        """Whether a choice's state was chosen before; its group shares it then."""
        return self._shares(_name(choice.state), planned)

    def new(self, choice: Choice, planned: Planned | None) -> bool:
        """Whether a choice is the first of its state; it is remembered then, and else shared by its group."""
        name = _name(choice.state)
        if self._shares(name, planned):
            return False
        self._place[name] = len(self._place)
        self._group.append(choice.group)
        return True

    def _shares(self, name: bytes, planned: Planned | None) -> bool:
        place = self._place.get(name)
        if place is not None and planned is not None and self._group[place] != planned.number:
            planned.shared.append(place)
        return place is not None


def _name(state: CrashState) -> bytes:
    return blake2b(array("q", (state.point, state.dropped, *state.pieces)).tobytes(), digest_size=16).digest()


def named(family: str, states: Iterator[CrashState]) -> Iterator[tuple[str, CrashState]]:
    """States, each with the name of what it is tested for."""
    return ((family, state) for state in states)
