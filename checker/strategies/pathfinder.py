"""Representative testing: the crash states of one update behaviour of each group (Pathfinder §3.5)."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

from crashcheck.analyzer.behaviours import behaviours, groups
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.representative import Places, Representative
from crashcheck.checker.states import CrashState, StateSpace


@dataclass(frozen=True, slots=True)
class Pathfinder:
    """Representatives from the smallest to the largest, once for each family of states, the cheap families first:
    one store persisted, one line cut back; pairs; what operations left unpersisted; all sets.

    So a group with very many states holds up no other. `facts` give types and places; without them, behaviours
    are told by call stack alone.
    """

    facts: Facts | None = None
    name: str = "pathfinder"

    def states(self, space: StateSpace) -> Iterator[CrashState]:
        places = Places(space)
        found = [Representative(places, group.representative) for group in groups(behaviours(space.graph, self.facts))]
        families: tuple[Callable[[Representative], Iterator[CrashState]], ...] = (
            _cheap,
            Representative.pairs,
            _left_over,
            Representative.ideals,
        )
        seen: set[bytes] = set()
        for family in families:
            for representative in found:
                for state in family(representative):
                    name = blake2b(array("q", (state.point, state.dropped, *state.pieces)).tobytes(), digest_size=16)
                    if name.digest() not in seen:
                        seen.add(name.digest())
                        yield state


def _cheap(representative: Representative) -> Iterator[CrashState]:
    yield from representative.ends()
    yield from representative.single()
    yield from representative.cut()


def _left_over(representative: Representative) -> Iterator[CrashState]:
    yield from representative.single(representative.later)
    yield from representative.cut(representative.later)
