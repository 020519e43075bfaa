"""The one clock and the one state space in which a run and all its mutants are compared (mutant_states.py).

1. The clock counts updates, marks and outputs, which the run and its mutants have in the same order.
2. The space is that of the run without any flush, fence or sync: it has every state of every mutant.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import IN_ORDER, Ints
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.images.transition import Content
from crashcheck.checker.states.granules import Choices
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep
from crashcheck.checker.subject import UPDATES
from crashcheck.runtime.trace_format import Kind

MARKS = (Kind.MARK_BEGIN, Kind.MARK_END)
_SHOWN = (Kind.MARK_END, Kind.OUTPUT)
CHOICES_KEPT = 10_000  # in a cache, which is emptied then


class CommonSpace:
    """The crash states of the run without flushes, fences and syncs, by the common clock. Only its cache changes."""

    def __init__(self, space: StateSpace, content: Content) -> None:
        self.space = space  # of the run without flushes, fences and syncs
        self.content = content  # of that space
        self.graph = graph = space.graph
        trace = graph.trace
        self._ticks = _ticks(trace)
        self.end = len(self._ticks)
        # for each piece the clock from which on it has been issued
        self.issued: Ints = np.searchsorted(self._ticks, graph.event, side="left") + 1
        kinds = trace.events["kind"][self._ticks]
        self._shows: NDArray[np.bool_] = np.concatenate([[True], among(kinds, _SHOWN)])
        # for each moment the last one at which something had just been acknowledged or printed
        self._last_shown = np.maximum.accumulate(np.where(self._shows, np.arange(self.end + 1), 0))
        clock = np.searchsorted(self._ticks, space.points.event, side="left")
        self._point = np.searchsorted(clock, np.arange(self.end + 1), side="left")
        self._clock = clock
        self.mixed = np.unique(graph.component[graph.mode != IN_ORDER])  # not just one event after the other
        # for each piece whether it changes any image
        self.counts = ~content.silent() | np.isin(graph.component, self.mixed)
        order = np.argsort(graph.component, kind="stable")
        bounds = np.flatnonzero(np.diff(graph.component[order])) + 1
        self._members = {int(graph.component[rows[0]]): rows for rows in np.split(order, bounds) if len(rows)}
        self._sweep = Sweep(space)

        self._choices: dict[Ids, Choices] = {}  # known so far, by pieces

    def durable(self, graph: PersistenceGraph) -> Ints:
        """For each piece the clock from which on it is durable in a mutant or in the run itself; past the end: never.

        A clock of n is the earliest such moment, just after the n-th update, mark or output.
        """
        if len(graph) != len(self.graph):
            raise ValueError("not a mutant of this graph")
        ticks = _ticks(graph.trace)
        return np.where(
            graph.durable_from > len(graph.trace.events),
            self.end + 1,
            np.minimum(np.searchsorted(ticks, graph.durable_from - 1, side="left") + 1, self.end + 1),
        )

    def clock(self, graph: PersistenceGraph, events: NDArray[np.int64] | int) -> Ints:
        """How much had happened before events of the run or of a mutant of it."""
        return np.asarray(np.searchsorted(_ticks(graph.trace), events, side="left"))

    def point(self, clock: int) -> int:
        """The crash point of the states that begin at a moment."""
        return int(self._point[clock])

    def shown(self, clock: int) -> bool:
        """Whether something has just been acknowledged or printed."""
        return bool(self._shows[clock])

    def last_shown(self, clock: int) -> int:
        """The last clock up to this one at which something had."""
        return int(self._last_shown[clock])

    def newest(self, clock: int) -> Ids:
        """Pieces of the update that has just happened, if they count."""
        low, high = np.searchsorted(self.issued, [clock, clock + 1]).tolist()
        return tuple(piece for piece in range(low, high) if self.counts[piece])

    def choices(self, pieces: Ids) -> Choices:
        """What may be lost of some pieces of one granule, ascending."""
        known = self._choices.get(pieces)
        if known is None:
            if len(self._choices) >= CHOICES_KEPT:
                self._choices.clear()
            (ideals,) = self._sweep.ideals_of(pieces)
            known = self._choices[pieces] = Choices(ideals, self.content.difference)
        return known

    def state(self, clock: int, lost: Iterable[int]) -> CrashState:
        """The state in which all that had happened by `clock` persisted but `lost`, pieces that count, and parts."""
        point = self.point(clock)
        until = int(self._clock[point])
        out = set(lost)
        firsts: dict[int, int] = {}
        for piece in out:
            whole = self.graph.whole(piece)
            component = int(self.graph.component[whole])
            firsts[component] = min(firsts.get(component, whole), whole)
        for component, first in firsts.items():
            if component in self.mixed:
                continue
            members = self._members[component]
            later = members[np.searchsorted(members, first, side="right") :]
            later = later[(self.graph.event[later] > self.graph.event[first]) & (self.issued[later] <= until)]
            out.update(later.tolist())
        low, high = np.searchsorted(self.issued, [clock + 1, until + 1]).tolist()
        return CrashState(point, True, tuple(sorted(out.union(range(low, high)))))

    def needs(self, pieces: Sequence[int], pending: Ids) -> list[tuple[int, Ids]]:
        """(piece, what it directly needs) for the pending pieces of the granules that hold `pieces`, ascending."""
        if not pieces:
            return []
        rows = np.array(pending, dtype=np.int64)
        near = np.isin(self.graph.component[rows], self.graph.component[np.array(pieces, dtype=np.int64)])
        chosen = tuple(rows[near].tolist())
        return list(zip(chosen, self.graph.direct_before(chosen), strict=True))


def _ticks(trace: Trace) -> NDArray[np.int64]:
    counted = np.array([*UPDATES, *MARKS, Kind.OUTPUT], dtype=np.uint8)
    return np.flatnonzero(np.isin(trace.events["kind"], counted))
