"""Representative testing: the crash states of one update behaviour of each group (Pathfinder §3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from crashcheck.analyzer.behaviours import find_behaviours, find_groups
from crashcheck.analyzer.invariants.ranking import RankedGroup
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Left, endless
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.plan import Choice, Chosen, Planned
from crashcheck.checker.strategies.representative import Representative


@dataclass(frozen=True, slots=True)
class Pathfinder:
    """Representatives from the smallest to the largest, once for each family of states, the cheap families first:
    one store persisted, one line cut back; pairs; what operations left unpersisted; all sets.

    So a group with very many states holds up no other. `facts` give types and canonical; without them, behaviours
    are distinguished by call stack alone.
    """

    facts: Facts | None = None
    name: str = "pathfinder"

    def plan(self, space: StateSpace, left: Left = endless) -> PathfinderPlan:
        return PathfinderPlan(self.facts, space)


class PathfinderPlan:
    """One search; groups are made when it is first asked."""

    notes: tuple[str, ...] = ()

    def __init__(self, facts: Facts | None, space: StateSpace) -> None:
        self._facts = facts
        self._space = space
        self.groups: tuple[Planned, ...] = ()

    def choices(self) -> Iterator[Choice]:
        canonical = CanonicalStates(self._space)
        self.groups = tuple(
            Planned(RankedGroup(group, 0.0, ()), Representative(canonical, group.representative))
            for group in find_groups(find_behaviours(self._space.graph, self._facts))
        )
        families: tuple[Callable[[Representative], Iterator[tuple[str, CrashState]]], ...] = (
            Representative.cheap,
            lambda one: _named("pairs", one.pairs()),
            lambda one: _named("carry", _left_over(one)),
            lambda one: _named("all sets", one.ideals()),
        )
        chosen = Chosen()
        for last, family in enumerate(families, 1 - len(families)):
            for planned in self.groups:
                for name, state in family(planned.representative):
                    choice = Choice(state, planned.number, name)
                    if chosen.new(choice, planned):
                        yield choice
                planned.complete = not last


def _named(family: str, states: Iterator[CrashState]) -> Iterator[tuple[str, CrashState]]:
    return ((family, state) for state in states)


def _left_over(representative: Representative) -> Iterator[CrashState]:
    yield from representative.single(representative.later)
    yield from representative.cut(representative.later)
