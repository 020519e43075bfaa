"""Representative testing: the crash states of one update behaviour of each group (Pathfinder §3.5)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from crashcheck.analyzer.behaviours import Behaviours, find_behaviours, find_groups, find_operations
from crashcheck.analyzer.invariants.ranking import RankedGroup
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Left, endless
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.plan import NOTHING, Choice, Chosen, Decided, Planned, named
from crashcheck.checker.strategies.representative import Representative

Family = Callable[[Representative], Iterator[tuple[str, CrashState]]]


@dataclass(frozen=True, slots=True)
class Pathfinder:
    """Representatives from the smallest to the largest, once for each family of states, the cheap families first:
    one store persisted, one line cut back; the same of representatives of whole operations; pairs; what operations
    left unpersisted; all sets.

    So a group with very many states holds up no other. `facts` give types and canonical; without them, behaviours
    are distinguished by call stack alone.
    """

    facts: Facts | None = None
    name: str = "pathfinder"

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> PathfinderPlan:
        return PathfinderPlan(self.facts, space)


class PathfinderPlan:
    """One search; groups are made when it is first asked."""

    whole = False

    def __init__(self, facts: Facts | None, space: StateSpace) -> None:
        self._facts = facts
        self._space = space
        self.groups: tuple[Planned, ...] = ()
        self.notes: tuple[str, ...] = ()

    def choices(self) -> Iterator[Choice]:
        canonical = CanonicalStates(self._space)
        found = find_behaviours(self._space.graph, self._facts)
        self.notes = (found.note,) if found.note else ()
        self.groups = tuple(
            Planned(RankedGroup(group, 0.0, ()), Representative(canonical, group.representative))
            for group in find_groups(found)
        )
        chosen = Chosen()
        yield from self._family(chosen, Representative.cheap)
        for name, state in _of_operations(canonical, found):
            choice = Choice(state, 0, name)
            if chosen.new(choice, None):
                yield choice
        yield from self._family(chosen, lambda one: named("pairs", one.pairs()))
        yield from self._family(chosen, lambda one: named("carry", _left_over(one)))
        yield from self._family(chosen, lambda one: named("all sets", one.ideals()), last=True)

    def _family(self, chosen: Chosen, states: Family, *, last: bool = False) -> Iterator[Choice]:
        """One kind of states of each group's representative; `last`: there are no others."""
        for planned in self.groups:
            for name, state in states(planned.representative):
                choice = Choice(state, planned.number, name)
                if chosen.new(choice, planned):
                    yield choice
            planned.complete = last


def _of_operations(canonical: CanonicalStates, found: Behaviours) -> Iterator[tuple[str, CrashState]]:
    """The cheap states of a representative of each group of whole operations."""
    for group in find_groups(find_operations(found)):
        for name, state in Representative(canonical, group.representative).cheap():
            yield f"operation {name}", state


def _left_over(representative: Representative) -> Iterator[CrashState]:
    yield from representative.single(representative.later)
    yield from representative.cut(representative.later)
