"""One name for each crash state: the same pieces persisted at several crash points are one state, of the first."""

from __future__ import annotations

from collections.abc import Iterable

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
        self.acknowledgements: Ints = np.flatnonzero(
            np.isin(graph.trace.events["kind"], np.array([Kind.MARK_END, Kind.OUTPUT], dtype=np.uint8))
        )

    def acknowledgement_after(self, event: int) -> int:
        """The first acknowledgement after an event, as an event; past the last event if there is none."""
        at = int(np.searchsorted(self.acknowledgements, event, side="right"))
        return int(self.acknowledgements[at]) if at < len(self.acknowledgements) else len(self.space.graph.trace.events)

    def state(self, point: int, kept: set[int]) -> CrashState:
        """The state that holds what is durable at a point and `kept`, pending pieces and parts that are an ideal."""
        graph, events = self.space.graph, self.space.points.event
        newest = max(int(self._newest[point]), max((graph.whole(id_)[0] for id_ in kept), default=-1))
        first = int(np.searchsorted(events, graph.event[newest], side="right")) if newest >= 0 else 0
        at = max(first, int(self._run[point]))
        if at < point:
            crash = int(events[point])
            pending = self.space.pending(at)
            held = graph.durable_from[list(pending)] <= crash
            kept = kept | {id_ for id_, durable in zip(pending, held.tolist(), strict=True) if durable}
        return self.space.with_(at, tuple(sorted(kept)))

    def first(self, state: CrashState) -> CrashState:
        """A state that is feasible at its point, under the name that it has in the whole search."""
        return self.state(state.point, set(self.space.persisted(state)))

    def without(self, point: int, pieces: Iterable[int]) -> CrashState:
        """Everything issued has persisted but these pieces and what needs them."""
        return self.first(self.space.drop(point, pieces))

    def with_only(self, point: int, pieces: Iterable[int], since: int) -> CrashState:
        """Nothing has persisted but these pieces, what they need, and what was issued before the event `since`."""
        pending = self.space.pending(point)
        events = self.space.graph.event[list(pending)].tolist()
        older = [id_ for id_, event in zip(pending, events, strict=True) if event < since]
        return self.first(self.space.keep(point, (*older, *pieces)))
