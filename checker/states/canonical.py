"""One name for each crash state: equal sets of persisted pieces at several crash points are one state, at the first."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable

import numpy as np

from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.runtime.trace_format import Kind


class CanonicalStates:
    """The canonical state of a set of persisted pieces: at the first crash point that allows it.

    Within a run of points with equal acknowledgements an ideal is a state of the first at which it is feasible.
    """

    def __init__(self, space: StateSpace) -> None:
        self.space = space
        graph, points = space.graph, space.points
        newest = np.concatenate([np.full(1, -1, dtype=np.int64), np.maximum.accumulate(space.finite)])
        durable = np.searchsorted(graph.durable_from[space.finite], points.event, side="right")
        self._newest: Ints = newest[durable]
        acknowledging = np.flatnonzero(points.acknowledged_more)
        self._run: Ints = acknowledging[np.searchsorted(acknowledging, np.arange(len(points)), side="right") - 1]
        self.acknowledgements = graph.trace.rows(Kind.MARK_END, Kind.OUTPUT)

    def acknowledgement_after(self, event: int) -> int:
        """The first acknowledgement after an event, as an event; past the last event if there is none."""
        at = int(np.searchsorted(self.acknowledgements, event, side="right"))
        return int(self.acknowledgements[at]) if at < len(self.acknowledgements) else len(self.space.graph.trace.events)

    def state(self, point: int, kept: Collection[int]) -> CrashState:
        """The state that holds what is durable at a point and `kept`, pending pieces and parts that are an ideal."""
        space, held = self.space, np.array(sorted(kept), dtype=np.int64)
        whole = int(held.searchsorted(len(space.graph)))
        newest = max([int(held[whole - 1]) if whole else -1, *map(space.graph.whole, held[whole:].tolist())])
        at = self._first(point, newest)
        if at < point:
            pending = space.pending_rows(at)
            durable = pending[space.graph.durable_from[pending] <= space.moment(point)]
            held = np.sort(np.concatenate([held, durable]))
        return space.with_(at, held)

    def lacking(self, point: int, lost: Collection[int] | Ints) -> CrashState:
        """The state that holds what was issued by a point but `lost`, pending pieces and parts that some ideal lacks.

        Takes as long as what is lost, however much is pending. An array ascends.
        """
        space = self.space
        gone = lost if isinstance(lost, np.ndarray) else np.array(sorted(lost), dtype=np.int64)
        at = self._first(point, _newest_but(space.pending_rows(point), gone))
        if at < point:  # what is lost and was not issued by then was not there to be lost
            issued, wholes = space.issued(at), int(gone.searchsorted(len(space.graph)))
            parts = [id_ for id_ in gone[wholes:].tolist() if space.graph.whole(id_) < issued]
            gone = np.concatenate([gone[: gone[:wholes].searchsorted(issued)], np.array(parts, dtype=np.int64)])
        return space.without(at, gone)

    def _first(self, point: int, newest: int) -> int:
        """The point of the state that holds what is durable at `point` and up to the pending piece `newest`."""
        newest = max(int(self._newest[point]), newest)
        if newest < 0:
            return int(self._run[point])
        first = self.space.points.event.searchsorted(self.space.graph.event[newest], side="right")
        return max(int(first), int(self._run[point]))

    def first(self, state: CrashState) -> CrashState:
        """A state that is feasible at its point, under the name that it has in the whole search."""
        if state.dropped:
            return self.lacking(state.point, state.pieces)
        return self.state(state.point, set(state.pieces))

    def without(self, point: int, pieces: Iterable[int]) -> CrashState:
        """Everything issued has persisted but these pieces and what needs them."""
        return self.first(self.space.drop(point, pieces))

    def with_only(self, point: int, pieces: Iterable[int], since: int) -> CrashState:
        """Nothing has persisted but these pieces, what they need, and what was issued before the event `since`."""
        whole = self.space.graph.whole
        older = int(np.searchsorted(self.space.graph.event, since))  # ids below this; what they need is older as well
        newer = self.space.keep(point, [id_ for id_ in pieces if whole(id_) >= older])
        lost = self.space.lost(newer)
        lost = lost[bisect_left(lost, older) :]
        if lost and lost[-1] >= len(self.space.graph):
            lost = tuple(id_ for id_ in lost if whole(id_) >= older)
        return self.lacking(point, lost)


def _newest_but(pending: Ints, gone: Ints) -> int:
    """The last of `pending` that is not in `gone`, -1: none is. Both ascend; of `gone` all but parts are pending."""
    wholes = gone[: gone.searchsorted(pending[-1], side="right")] if len(pending) else pending
    at = len(pending) - len(wholes)
    left = np.flatnonzero(pending[at:] != wholes)
    if len(left):
        at += int(left[-1]) + 1
    return int(pending[at - 1]) if at else -1
