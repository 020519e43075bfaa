"""Crash states: what may have persisted at each crash point."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from crashcheck.analyzer.persistence.graph import NEVER, PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.points import CrashPoints

_MOST_KEPT = 1 << 18  # pieces of crash points whose pending pieces are remembered
_FEW = 64  # so many are gone through faster one by one than as an array


class CrashState(NamedTuple):
    """A crash point and an order ideal of its pending pieces, named by its smaller side.

    `pieces` ascends: the pending pieces that were lost if `dropped`, else those that persisted. A part of an
    extension (PersistenceGraph) means the extension persisted up to that part, on either side.
    """

    point: int
    dropped: bool
    pieces: tuple[int, ...]


class StateSpace:
    """The crash states of a persistence graph, each once.

    An ideal is feasible at point k if it holds what is durable at k (D_k) and nothing that is not issued
    (U_k). D and U grow, so an ideal feasible at points j < k is feasible at all between, and is new at
    exactly one point of a run of points with equal acknowledgements: the first. There it is the one that is not
    feasible at k - 1, that is, it holds a piece issued since. counting.py counts them, by_deviation.py lists them.
    """

    def __init__(self, graph: PersistenceGraph, exits: bool = False, since: int | None = None) -> None:
        """`exits`: that the program ended is an acknowledgement. `since`: of crash points, as CrashPoints has it."""
        self.graph = graph
        self._many = len(graph)
        self.points = CrashPoints(graph, exits, since)
        self.finite = np.flatnonzero(graph.durable_from < NEVER)
        self.finite = self.finite[np.argsort(graph.durable_from[self.finite], kind="stable")]
        self._index = _Stab(graph.event, graph.durable_from)
        self._pending: dict[int, Ints] = {}  # by point, those used last at the end
        self._kept = 0  # pieces in `_pending`, in sum

    # One crash point.

    def pending(self, point: int) -> Ids:
        """Pieces issued but not durable at a point, ascending; extensions as wholes, not in parts."""
        return tuple(self.pending_rows(point).tolist())

    def pending_rows(self, point: int) -> Ints:
        """The same as an array, to be read only."""
        rows = self._pending.pop(point, None)
        if rows is None:
            rows = self._index.query(self.moment(point))
            self._kept += len(rows)
        self._pending[point] = rows
        while self._kept > _MOST_KEPT and len(self._pending) > 1:
            self._kept -= len(self._pending.pop(next(iter(self._pending))))
        return rows

    def moment(self, point: int) -> int:
        """The event just before which a crash point is."""
        return int(self.points.event[point])

    def issued(self, point: int) -> int:
        """How many pieces were issued by a point: those with lower ids."""
        return int(self.graph.event.searchsorted(self.moment(point)))

    def durable(self, point: int) -> Ints:
        """Ids of the pieces that are durable at a point, ascending."""
        return np.flatnonzero(self.graph.durable_from <= self.moment(point))

    def full(self, point: int) -> CrashState:
        """Everything issued has persisted."""
        return CrashState(point, True, ())

    def empty(self, point: int) -> CrashState:
        """Nothing persisted but what had to."""
        return self.with_(point, ())

    def persisted(self, state: CrashState) -> Ids:
        """Pending pieces that the state holds, ascending; an extension held in part appears as its part."""
        return state.pieces if not state.dropped else self._others(state.point, state.pieces)

    def lost(self, state: CrashState) -> Ids:
        """Pending pieces that the state lacks, ascending; an extension held in part appears as its part."""
        return state.pieces if state.dropped else self._others(state.point, state.pieces)

    def _others(self, point: int, pieces: Ids | Ints) -> Ids:
        """What is pending at a point but `pieces`, which ascend; parts of these are on either side."""
        rows = self.pending_rows(point)
        wholes = len(pieces) - self._parts_in(pieces)
        parts = tuple(int(part) for part in pieces[wholes:])
        listed = (*pieces[:wholes], *map(self.graph.whole, parts)) if parts else pieces
        if len(rows) <= _FEW:
            some = set(listed)
            return tuple(id_ for id_ in rows.tolist() if id_ not in some) + parts
        return tuple(np.setdiff1d(rows, np.asarray(listed), assume_unique=True).tolist()) + parts

    def state(self, point: int, persisted: Iterable[int]) -> CrashState:
        """The state that holds exactly the given pending pieces.

        Raises ValueError if one of them is not pending or needs a piece that is not given.
        """
        given = tuple(sorted(set(persisted)))
        pending = set(self.pending(point))
        try:
            wholes = tuple(self.graph.whole(id_) for id_ in given)
        except IndexError as error:
            raise ValueError(str(error)) from None
        stray = sorted(set(wholes) - pending)
        if stray or len(set(wholes)) < len(wholes):
            raise ValueError(f"pieces {stray or given} are not pending at crash point {point}")
        whole_held = {id_ for id_ in given if id_ < self._many}
        wholes_given = set(wholes)
        for id_, befores in self._before(point, wholes):
            if id_ not in wholes_given:
                continue
            missing = [b for b in befores if b not in whole_held]
            if missing:
                raise ValueError(f"piece {id_} cannot persist without pieces {missing} at crash point {point}")
        return self.with_(point, given)

    def drop(self, point: int, pieces: Iterable[int]) -> CrashState:
        """The largest state without the given pieces: all that depend on them are lost as well.

        A part in `pieces` means the rest of its extension beyond that part.
        """
        given = set(pieces)
        parts = {self.graph.whole(p): p for p in given if p >= self._many}
        gone = {p for p in given if p < self._many}
        lost = []
        for id_, befores in self._before(point, gone | set(parts)):
            if id_ in gone or any(b in gone or b in parts for b in befores):
                gone.add(id_)
                lost.append(id_)
        return self.without(point, (*lost, *sorted(p for w, p in parts.items() if w not in gone)))

    def keep(self, point: int, pieces: Iterable[int]) -> CrashState:
        """The smallest state with the given pieces: all that they need persisted as well."""
        given = set(pieces)
        held = {p for p in given if p < self._many}
        parts = {self.graph.whole(p): p for p in given if p >= self._many}
        kept, stopped = [], []
        for id_, befores in reversed(self._before(point, held | set(parts))):
            if id_ in held or id_ in parts:
                held.update(befores)
                if id_ in held:
                    kept.append(id_)
                else:
                    stopped.append(parts[id_])
        return self.with_(point, (*kept, *stopped))

    def drop_too(self, state: CrashState, pieces: Iterable[int]) -> CrashState:
        """The largest state that lacks what a state lacks, and the given pieces.

        As `drop` of all of them, but only what depends on the given ones is looked for.
        """
        given, lost = tuple(pieces), self.lost(state)
        if self._parts_in(lost) or any(piece >= self._many for piece in given):
            return self.drop(state.point, (*lost, *given))
        return self.without(state.point, tuple({*lost, *self.lost(self.drop(state.point, given))}))

    def keep_too(self, state: CrashState, pieces: Iterable[int]) -> CrashState:
        """The smallest state that holds what a state holds, and the given pieces.

        As `keep` of all of them, but only what the given ones need is looked for.
        """
        given, lost = tuple(pieces), self.lost(state)
        if self._parts_in(lost) or any(piece >= self._many for piece in given):
            return self.keep(state.point, (*self.persisted(state), *given))
        kept = set(self.persisted(self.keep(state.point, given)))
        return self.without(state.point, tuple(piece for piece in lost if piece not in kept))

    def _before(self, point: int, wanted: Iterable[int]) -> list[tuple[int, Ids]]:
        """(piece, what it directly needs) for the pending pieces of the factors that hold `wanted`, ascending."""
        chosen = self.in_factors_of(point, wanted)
        return list(zip(chosen, self.graph.direct_before(chosen), strict=True))

    def in_factors_of(self, point: int, pieces: Iterable[int]) -> Ids:
        """What is pending at a point of the factors that hold some pieces, ascending."""
        component, rows = self.graph.component, self.pending_rows(point)
        some = set(component[list(pieces)].tolist())
        factors = component[rows]
        if len(rows) <= _FEW:
            return tuple(id_ for id_, factor in zip(rows.tolist(), factors.tolist(), strict=True) if factor in some)
        inside = np.isin(factors, np.fromiter(some, dtype=np.int64, count=len(some)))
        return tuple(rows[inside].tolist())

    def without(self, point: int, lost: Ids | Ints) -> CrashState:
        """The state that lacks exactly `lost`, which must be what some ideal lacks (not checked); an array ascends."""
        return self._named(point, lost, lost=True)

    def with_(self, point: int, kept: Ids | Ints) -> CrashState:
        """The state that holds exactly `kept`, which must be an ideal (not checked); an array ascends."""
        return self._named(point, kept, lost=False)

    def _named(self, point: int, pieces: Ids | Ints, *, lost: bool) -> CrashState:
        """A state by its smaller side; of equal ones by what was lost."""
        if isinstance(pieces, tuple):
            pieces = tuple(sorted(pieces))
        if 2 * len(pieces) < len(self.pending_rows(point)) + self._parts_in(pieces) + lost:
            return CrashState(point, lost, pieces if isinstance(pieces, tuple) else tuple(pieces.tolist()))
        return CrashState(point, not lost, self._others(point, pieces))

    def _parts_in(self, pieces: Ids | Ints) -> int:
        """How many of some pieces, which ascend, are parts."""
        return len(pieces) - bisect_left(pieces, self._many) if len(pieces) and pieces[-1] >= self._many else 0


class _Stab:
    """Which pieces are pending at an event index, without a scan of every piece of the trace."""

    _BLOCK = 4096

    def __init__(self, event: Ints, durable_from: Ints) -> None:
        self.event = event
        self.durable_from = durable_from
        starts = range(0, len(event), self._BLOCK)
        self.latest = np.array([int(durable_from[s : s + self._BLOCK].max()) for s in starts], dtype=np.int64)

    def query(self, event: int) -> Ints:
        issued = int(self.event.searchsorted(event))
        blocks = -(-issued // self._BLOCK)
        out = [np.zeros(0, dtype=np.int64)]
        for block in np.flatnonzero(self.latest[:blocks] > event).tolist():
            low = block * self._BLOCK
            high = min(low + self._BLOCK, issued)
            out.append(np.flatnonzero(self.durable_from[low:high] > event) + low)
        return np.concatenate(out)
