"""Crash states: at which instants a crash is worth considering, and what may have persisted at each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import NEVER, PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.by_deviation import level
from crashcheck.checker.states.ideals import COUNT_BUDGET, Ids
from crashcheck.checker.states.sweep import Sweep
from crashcheck.runtime.trace_format import Kind

if TYPE_CHECKING:
    from crashcheck.checker.strategies import Strategy


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """A crash just before `event` (the number of events: after the last one)."""

    index: int
    event: int
    acked: int  # operations ended by then
    begun: int  # operations begun by then
    stdout_bytes: int


@dataclass(frozen=True, slots=True)
class CrashState:
    """A crash point and an order ideal of its pending pieces, told by its smaller side.

    `pieces` ascends: the pending pieces that were lost if `dropped`, else those that persisted. A part of an
    extension (PersistenceGraph) stands for the extension persisted up to that part, on either side.
    """

    point: int
    dropped: bool
    pieces: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Feasible:
    """How many distinct crash states there are; an upper bound, named in `note`, unless `exact`."""

    value: int
    exact: bool
    note: str


class CrashPoints(Sequence[CrashPoint]):
    """All crash points of a trace: before each obligation, mark and output, and at the end (Vocabulary)."""

    def __init__(self, graph: PersistenceGraph) -> None:
        events = graph.trace.events
        kinds = events["kind"]
        told = np.isin(kinds, np.array([Kind.MARK_BEGIN, Kind.MARK_END, Kind.OUTPUT], dtype=np.uint8))
        self.event: Ints = np.unique(
            np.concatenate([graph.obligations, np.flatnonzero(told), np.array([len(events)])])
        ).astype(np.int64)

        def before(kind: Kind) -> Ints:
            return np.searchsorted(np.flatnonzero(kinds == kind), self.event, side="left").astype(np.int64)

        self.acked = before(Kind.MARK_END)
        self.begun = before(Kind.MARK_BEGIN)
        sizes = events["offset"][kinds == Kind.OUTPUT].astype(np.int64)
        most = np.concatenate([np.zeros(1, dtype=np.int64), np.maximum.accumulate(sizes)])
        self.stdout_bytes: Ints = most[before(Kind.OUTPUT)]

    def __len__(self) -> int:
        return len(self.event)

    @overload
    def __getitem__(self, index: int) -> CrashPoint: ...
    @overload
    def __getitem__(self, index: slice) -> list[CrashPoint]: ...
    def __getitem__(self, index: int | slice) -> CrashPoint | list[CrashPoint]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        return CrashPoint(
            index,
            int(self.event[index]),
            int(self.acked[index]),
            int(self.begun[index]),
            int(self.stdout_bytes[index]),
        )

    @cached_property
    def acknowledged_more(self) -> NDArray[np.bool_]:
        """Whether the outside world knows more at a point than at the one before."""
        out = np.ones(len(self), dtype=np.bool_)
        out[1:] = (self.acked[1:] != self.acked[:-1]) | (self.stdout_bytes[1:] != self.stdout_bytes[:-1])
        return out


class StateSpace:
    """The crash states of a persistence graph, each once.

    An ideal is feasible at point k if it holds what is durable at k (D_k) and nothing that is not issued
    (U_k). D and U grow, so an ideal feasible at points j < k is feasible at all between, and is new at
    exactly one point of a run of points with equal acknowledgements: the first. There it is the one that is not
    feasible at k - 1, that is, it holds a piece issued since. Counting: ideals(D_k, U_k) - ideals(D_k, U_(k-1)).
    """

    def __init__(self, graph: PersistenceGraph) -> None:
        self.graph = graph
        self.points = CrashPoints(graph)
        self.finite = np.flatnonzero(graph.durable_from < NEVER)
        self.finite = self.finite[np.argsort(graph.durable_from[self.finite], kind="stable")]
        self._index = _Stab(graph.event, graph.durable_from)
        self._pending: dict[int, Ids] = {}

    # One crash point.

    def pending(self, point: int) -> Ids:
        """Pieces issued but not durable at a point, ascending; extensions as wholes, not in parts."""
        known = self._pending.get(point)
        if known is None:
            if len(self._pending) > 64:
                self._pending.clear()
            known = self._pending[point] = self._index.query(int(self.points.event[point]))
        return known

    def durable(self, point: int) -> Ints:
        """Ids of the pieces that are durable at a point, ascending."""
        return np.flatnonzero(self.graph.durable_from <= int(self.points.event[point]))

    def full(self, point: int) -> CrashState:
        """Everything issued has persisted."""
        return CrashState(point, True, ())

    def empty(self, point: int) -> CrashState:
        """Nothing persisted but what had to."""
        return self._state(point, ())

    def persisted(self, state: CrashState) -> Ids:
        """Pending pieces that the state holds, ascending; an extension held in part appears as its part."""
        return state.pieces if not state.dropped else self._other(state)

    def lost(self, state: CrashState) -> Ids:
        """Pending pieces that the state lacks, ascending; an extension held in part appears as its part."""
        return state.pieces if state.dropped else self._other(state)

    def _other(self, state: CrashState) -> Ids:
        many = len(self.graph)
        listed = set(state.pieces)
        parts: Ids = ()
        if state.pieces and state.pieces[-1] >= many:
            parts = tuple(id_ for id_ in state.pieces if id_ >= many)
            listed.update(self.graph.whole(part)[0] for part in parts)
        return tuple(id_ for id_ in self.pending(state.point) if id_ not in listed) + parts

    def state(self, point: int, persisted: Iterable[int]) -> CrashState:
        """The state that holds exactly the given pending pieces.

        Raises ValueError if one of them is not pending or needs a piece that is not given.
        """
        given = tuple(sorted(set(persisted)))
        pending = set(self.pending(point))
        try:
            wholes = tuple(self.graph.whole(id_)[0] for id_ in given)
        except IndexError as error:
            raise ValueError(str(error)) from None
        stray = sorted(set(wholes) - pending)
        if stray or len(set(wholes)) < len(wholes):
            raise ValueError(f"pieces {stray or given} are not pending at crash point {point}")
        whole_held = {id_ for id_ in given if id_ < len(self.graph)}
        wholes_given = set(wholes)
        for id_, befores in self._before(point, wholes):
            if id_ not in wholes_given:
                continue
            missing = [b for b in befores if b not in whole_held]
            if missing:
                raise ValueError(f"piece {id_} cannot persist without pieces {missing} at crash point {point}")
        return self._state(point, given)

    def drop(self, point: int, pieces: Iterable[int]) -> CrashState:
        """The largest state without the given pieces: all that depend on them are lost as well.

        A part given stands for the rest of its extension beyond that part.
        """
        given = set(pieces)
        parts = {self.graph.whole(p)[0]: p for p in given if p >= len(self.graph)}
        gone = {p for p in given if p < len(self.graph)}
        for id_, befores in self._before(point, gone | set(parts)):
            if any(b in gone or b in parts for b in befores):
                gone.add(id_)
        kept = [id_ for id_ in self.pending(point) if id_ not in gone and id_ not in parts]
        return self._state(point, tuple(kept) + tuple(sorted(p for w, p in parts.items() if w not in gone)))

    def keep(self, point: int, pieces: Iterable[int]) -> CrashState:
        """The smallest state with the given pieces: all that they need persisted as well."""
        given = set(pieces)
        held = {p for p in given if p < len(self.graph)}
        parts = {self.graph.whole(p)[0]: p for p in given if p >= len(self.graph)}
        for id_, befores in reversed(self._before(point, held | set(parts))):
            if id_ in held or id_ in parts:
                held.update(befores)
        pending = set(self.pending(point))
        kept = tuple(sorted(held & pending)) + tuple(
            sorted(p for w, p in parts.items() if w not in held and w in pending)
        )
        return self._state(point, kept)

    def _before(self, point: int, wanted: Iterable[int]) -> list[tuple[int, Ids]]:
        """(piece, what it directly needs) for the pending pieces of the factors that hold `wanted`, ascending."""
        component = self.graph.component
        rows = np.array(self.pending(point), dtype=np.int64)
        some = np.unique(component[np.array(sorted(wanted), dtype=np.int64)])
        chosen = tuple(rows[np.isin(component[rows], some)].tolist())
        return list(zip(chosen, self.graph.direct_before(chosen), strict=True))

    def without(self, point: int, lost: Ids) -> CrashState:
        """The state that lacks exactly `lost`, which must be what some ideal lacks (not checked)."""
        state = CrashState(point, True, tuple(sorted(lost)))
        many = len(self.graph)
        parts = sum(id_ >= many for id_ in lost)
        if 2 * len(lost) <= len(self.pending(point)) + parts:
            return state
        return CrashState(point, False, self._other(state))

    def with_(self, point: int, kept: Ids) -> CrashState:
        """The state that holds exactly `kept`, which must be an ideal (not checked)."""
        state = CrashState(point, False, tuple(sorted(kept)))
        many = len(self.graph)
        parts = sum(id_ >= many for id_ in kept)
        if 2 * len(kept) < len(self.pending(point)) + parts:
            return state
        return CrashState(point, True, self._other(state))

    def _state(self, point: int, kept: Ids) -> CrashState:
        """The canonical form: dropped if no more pieces were lost than persisted."""
        dropped = self._other(CrashState(point, False, kept))
        if len(dropped) <= len(kept):
            return CrashState(point, True, dropped)
        return CrashState(point, False, kept)

    # All of them.

    def states(self, strategy: Strategy) -> Iterator[CrashState]:
        """The states that a strategy selects, each once, in its order."""
        return (choice.state for choice in strategy.plan(self).choices())

    def deviation(self, state: CrashState) -> int:
        """In how many granules a state differs from the nearer of "everything persisted" and "nothing pending did"."""

        def granules(pieces: Ids) -> int:
            return len({int(self.graph.component[self.graph.whole(id_)[0]]) for id_ in pieces})

        return min(granules(self.lost(state)), granules(self.persisted(state)))

    def count(self) -> Feasible:
        """The number of distinct states over all points."""
        total, bounded = 0, 0
        counts: dict[int, tuple[int, bool]] = {}
        product, inexact = 1, 0
        sweep = Sweep(self)
        while sweep.advance():
            after, product, inexact = self._recount(sweep, sweep.removed, counts, product, inexact)
            before_new, before_inexact = after
            after, product, inexact = self._recount(sweep, sweep.add(), counts, product, inexact)
            value, loose = after
            if self.points.acknowledged_more[sweep.point] or sweep.all_new:
                total += value
                bounded += loose > 0
            elif not sweep.has_new:
                continue
            elif loose or before_inexact:
                total += value  # the difference of two bounds bounds nothing
                bounded += 1
            else:
                total += value - before_new
        if not bounded:
            return Feasible(total, True, "")
        return Feasible(
            total,
            False,
            f"upper bound: at {bounded} crash points the ideals of one granule take more than {COUNT_BUDGET} steps "
            "to count and are bounded by the product over a chain cover",
        )

    def _recount(
        self, sweep: Sweep, changed: Iterable[int], counts: dict[int, tuple[int, bool]], product: int, inexact: int
    ) -> tuple[tuple[int, int], int, int]:
        for component in changed:
            old, old_exact = counts.pop(component, (1, True))
            ideals = sweep.ideals(component)
            new, exact = ideals.count() if ideals is not None else (1, True)
            if ideals is not None:
                counts[component] = (new, exact)
            product = product // old * new
            inexact += (not exact) - (not old_exact)
        return (product, inexact), product, inexact

    def max_deviation(self) -> int:
        """The largest deviation that any state may have."""
        most = 0
        sweep = Sweep(self)
        while sweep.advance():
            sweep.add()
            most = max(most, sweep.factors)
        return most

    def level(self, d: int) -> Iterator[CrashState]:
        """All states of deviation exactly d, in the order of by_deviation.py; memory follows what is pending."""
        return level(self, d)


class _Stab:
    """Which pieces are pending at an event index, without looking at every piece of the trace."""

    _BLOCK = 4096

    def __init__(self, event: Ints, durable_from: Ints) -> None:
        self.event = event
        self.durable_from = durable_from
        starts = range(0, len(event), self._BLOCK)
        self.latest = np.array([int(durable_from[s : s + self._BLOCK].max()) for s in starts], dtype=np.int64)

    def query(self, event: int) -> Ids:
        issued = int(np.searchsorted(self.event, event, side="left"))
        blocks = -(-issued // self._BLOCK)
        out: list[int] = []
        for block in np.flatnonzero(self.latest[:blocks] > event).tolist():
            low = block * self._BLOCK
            high = min(low + self._BLOCK, issued)
            out += (np.flatnonzero(self.durable_from[low:high] > event) + low).tolist()
        return tuple(out)
