"""How many crash states touch a bug: those that lose an update of one of its lines (Pathfinder §6.4, table 3).

The paper calls a crash state correlated with a bug if its crash schedule covers the line of the root cause.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crashcheck.checker.states.ideals import Chain, Ideals, Layers
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep

_MOST = 4096  # ideals of one granule that are listed where they are neither a chain nor layers


@dataclass(frozen=True, slots=True)
class Correlated:
    """Of `total` crash states, `correlated` lose an update of a culprit line. `exact`: else both are upper bounds."""

    total: int
    correlated: int
    exact: bool


def of_states(space: StateSpace, states: Iterable[CrashState], culprits: Sequence[int]) -> Correlated:
    """Count listed states; `culprits` are the pieces that lines of the bug stored."""
    wanted = frozenset(culprits)
    whole = space.graph.whole
    total = correlated = 0
    for state in states:
        total += 1
        lost = (piece if piece < len(space.graph) else whole(piece) for piece in space.lost(state))
        correlated += not wanted.isdisjoint(lost)
    return Correlated(total, correlated, True)


def of_all(space: StateSpace, culprits: Sequence[int]) -> Correlated:
    """Count all feasible states, without listing them: all, less those that lose no culprit."""
    wanted = frozenset(culprits)
    total = spared = 0
    exact = True
    for every, without, known in _by_point(space, wanted):
        total += every
        spared += without
        exact &= known
    return Correlated(total, total - spared, exact)


def by_operation(space: StateSpace, states: Iterable[CrashState]) -> list[int]:
    """How many listed states crash in each operation: 0 before the first one's end, then one more each."""
    counts = np.zeros(_operations(space), np.int64)
    for state in states:
        counts[space.points[state.point].acked] += 1
    return [int(count) for count in counts]


def all_by_operation(space: StateSpace) -> list[int]:
    """How many feasible states crash in each operation; each counts where it is first possible."""
    counts = [0] * _operations(space)
    for point, (every, _, _) in enumerate(_by_point(space, frozenset())):
        counts[space.points[point].acked] += every
    return counts


def _operations(space: StateSpace) -> int:
    return 1 + max(space.points[point].acked for point in range(len(space.points)))


def _by_point(space: StateSpace, culprits: frozenset[int]) -> Iterator[tuple[int, int, bool]]:
    """For each crash point the states that are new there: all, those that lose no culprit, and whether that is exact.

    New are those that hold an update issued since the point before, as `count_states` has it.
    """
    sweep = Sweep(space)
    every, spared = _Product(frozenset()), _Product(culprits)
    issued = np.searchsorted(space.graph.event, space.points.event, side="left").tolist()
    ascending = sorted(culprits)
    while sweep.advance():
        for product in (every, spared):
            product.update(sweep, sweep.removed)
        before = every.value, spared.value
        came = sweep.add()
        for product in (every, spared):
            product.update(sweep, came)
        if space.points.acknowledged_more[sweep.point] or sweep.all_new:
            yield every.value, spared.value, every.exact and spared.exact
        elif not sweep.has_new:
            yield 0, 0, True
        else:
            # A culprit issued since the point before is lost in every state that was possible there.
            first = bisect_left(ascending, sweep.since)
            old = 0 if first < len(ascending) and ascending[first] < issued[sweep.point] else before[1]
            yield every.value - before[0], spared.value - old, every.exact and spared.exact


class _Product:
    """The number of sets of pending updates that may have persisted and hold all of `kept`."""

    def __init__(self, kept: frozenset[int]) -> None:
        self.value = 1
        self._kept = kept
        self._factors: dict[int, int] = {}
        self._inexact: set[int] = set()

    @property
    def exact(self) -> bool:
        return not self._inexact

    def update(self, sweep: Sweep, changed: Iterable[int]) -> None:
        for granule in changed:
            old = self._factors.pop(granule, 1)
            self._inexact.discard(granule)
            ideals = sweep.ideals(granule)
            if ideals is None:
                new = 1
            else:
                new, exact = _holding(ideals, self._kept)
                self._factors[granule] = new
                if not exact:
                    self._inexact.add(granule)
            self.value = self.value // old * new


def _holding(ideals: Ideals, kept: frozenset[int]) -> tuple[int, bool]:
    """How many ideals hold all of `kept` that are among their pieces; whether that is exact."""
    many, exact = ideals.count()
    pieces = next(iter(ideals.kept(ideals.size)))
    wanted = kept.intersection(pieces)
    if not wanted:
        return many, exact
    if isinstance(ideals, Chain):
        return ideals.size - max(place for place, piece in enumerate(pieces) if piece in wanted), True
    if isinstance(ideals, Layers):
        return _layers_holding(ideals, wanted), True
    if not exact or many > _MOST:
        return many, False
    listed = (set(each) for size in range(ideals.size + 1) for each in ideals.kept(size))
    return sum(wanted <= each for each in listed), True


def _layers_holding(ideals: Layers, wanted: frozenset[int]) -> int:
    top = max(at for at, layer in enumerate(ideals.layers) if wanted.intersection(layer))
    layer = ideals.layers[top]
    here = 1 << (len(layer) - len(wanted.intersection(layer)))
    return int(here + sum((1 << len(above)) - 1 for above in ideals.layers[top + 1 :]))
