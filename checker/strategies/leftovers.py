"""What operations left unpersisted when they ended, lost at the end of later ones: each origin once, not each time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies.numbers import LINES


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """The carried pieces of one static site, ascending; `first` and `last`: of each, the boundaries that it reaches.

    A *boundary* is a crash point at which something has just been acknowledged; a piece is carried from the second
    one after it was issued on.
    """

    pieces: Ints
    first: Ints
    last: Ints

    def at(self, boundary: int) -> Ints:
        return self.pieces[(self.first <= boundary) & (boundary <= self.last)]


class Leftovers:
    """The states, from those that decide most: see `states`."""

    def __init__(self, canonical: CanonicalStates, found: Behaviours) -> None:
        self._canonical = canonical
        self._space = canonical.space
        self._component = found.graph.component
        points = self._space.points
        self._boundaries = np.flatnonzero(points.acknowledged_more)
        graph = found.graph
        acknowledged = canonical.acknowledgements
        at = np.searchsorted(acknowledged, graph.event, side="right")
        carried = np.flatnonzero(at < len(acknowledged))
        own_end = np.searchsorted(points.event, acknowledged[at[carried]], side="right")
        after = np.searchsorted(self._boundaries, own_end, side="right")
        latest = np.searchsorted(points.event, graph.durable_from[carried], side="left") - 1
        before = np.searchsorted(self._boundaries, latest, side="right") - 1
        some = after <= before
        carried, first, last = carried[some], self._boundaries[after[some]], self._boundaries[before[some]]
        names = found.nodes.of_pieces(found.label)[carried]
        order = np.argsort(names, kind="stable")
        cuts = np.flatnonzero(np.diff(names[order])) + 1
        self._origins = [_Origin(carried[rows], first[rows], last[rows]) for rows in np.split(order, cuts) if len(rows)]

    def states(self) -> Iterator[CrashState]:
        """For each origin at its first boundary, then at its last: all of it lost; the same with all else that is
        carried lost; only what must have persisted. Then its lines one by one, and all of it at boundaries between."""
        for whole in (True, False):
            for pick in (np.min, np.max):
                for origin in self._origins:
                    boundary = int(pick(origin.first if pick is np.min else origin.last))
                    yield from self._whole(origin, boundary) if whole else self._lines(origin, boundary)
        for origin in self._origins:
            low, high = np.searchsorted(self._boundaries, [int(origin.first.min()), int(origin.last.max())])
            step = 1
            while int(low) + step < int(high):
                boundary = int(self._boundaries[int(low) + step])
                yield self._lost(boundary, origin.at(boundary))
                step *= 2

    def _whole(self, origin: _Origin, boundary: int) -> Iterator[CrashState]:
        yield self._lost(boundary, origin.at(boundary))
        yield self._lost(boundary, np.concatenate([other.at(boundary) for other in self._origins]))
        yield self._canonical.first(self._space.empty(boundary))

    def _lines(self, origin: _Origin, boundary: int) -> Iterator[CrashState]:
        pieces = origin.at(boundary)
        _, first = np.unique(self._component[pieces], return_index=True)
        for start in np.sort(first)[:LINES].tolist():
            line = self._component[pieces] == self._component[pieces[start]]
            yield self._lost(boundary, pieces[line])

    def _lost(self, boundary: int, pieces: Ints) -> CrashState:
        return self._canonical.without(boundary, pieces.tolist())
