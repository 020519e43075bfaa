"""Crash states that vary the updates of one behaviour, with all that precedes it persisted (Pathfinder §3.5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import numpy as np

from crashcheck.analyzer.behaviours import Behaviour
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.partial_order import Order
from crashcheck.checker.states.space import CrashState


class _Moment:
    """One crash point of a behaviour: which of its pieces are pending, and what they need.

    The order of the granules that hold some of its pieces is found when it is first needed, and what a state needs is
    looked for from its own pieces: a hundred thousand pieces may be pending, and a behaviour's ends need none.
    """

    def __init__(self, canonical: CanonicalStates, point: int, behaviour: Behaviour, rows: Ints) -> None:
        """`rows`: the behaviour's pieces that are pending, ascending."""
        space = canonical.space
        self._canonical = canonical
        self._point = point
        self._rows = rows
        self._pending = space.pending_rows(point)
        # ids below this one precede the behaviour
        self._since = int(np.searchsorted(space.graph.event, behaviour.first, side="left"))

    @cached_property
    def mine(self) -> Ids:
        return tuple(self._rows.tolist())

    @cached_property
    def _near(self) -> Ids:
        return self._canonical.space.in_factors_of(self._point, self.mine)

    @cached_property
    def _before(self) -> dict[int, Ids]:
        """What each piece directly needs."""
        return dict(zip(self._near, self._canonical.space.graph.direct_before(self._near), strict=True))

    @cached_property
    def _after(self) -> dict[int, list[int]]:
        """What directly needs each piece."""
        after: dict[int, list[int]] = {id_: [] for id_ in self._near}
        for id_, befores in self._before.items():
            for before in befores:
                after[before].append(id_)
        return after

    @cached_property
    def granules(self) -> tuple[Ids, ...]:
        """The behaviour's pieces by granule."""
        factors: dict[int, list[int]] = {}
        component = self._canonical.space.graph.component
        for id_, factor in zip(self.mine, component[self._rows].tolist(), strict=True):
            factors.setdefault(factor, []).append(id_)
        return tuple(tuple(ids) for ids in factors.values())

    def kept(self, ids: Ids) -> CrashState:
        """What precedes the behaviour has persisted, these of its pieces and what they need, and nothing else."""
        lost = self._pending[self._pending.searchsorted(self._since) :]
        if ids:
            lost = np.setdiff1d(lost, list(_reached(ids, self._before)), assume_unique=True)
        return self._canonical.lacking(self._point, lost)

    @property
    def pending(self) -> int:
        return len(self._pending)

    def lost(self, ids: Ids) -> CrashState:
        """Everything has persisted but these pieces and what needs them."""
        return self._canonical.lacking(self._point, _reached(ids, self._after) if ids else ())

    def unordered(self) -> Iterator[tuple[int, int]]:
        """Pairs of the behaviour's pieces neither of which needs the other, ascending."""
        for at, one in enumerate(self.mine):
            needing = _reached((one,), self._after)
            yield from ((one, other) for other in self.mine[at + 1 :] if other not in needing)

    def orders(self) -> list[Order]:
        """The persist order of the behaviour's pending pieces alone, by granule."""
        return [Order(ids, [self._needs(id_, ids) for id_ in ids]) for ids in self.granules]

    def _needs(self, id_: int, ids: Ids) -> Ids:
        below = _reached((id_,), self._before)
        return tuple(other for other in ids if other != id_ and other in below)


def _reached(ids: Iterable[int], steps: Mapping[int, Sequence[int]]) -> set[int]:
    """Some pieces, and all that leads on from them."""
    out = set(ids)
    todo = list(out)
    while todo:
        for id_ in steps[todo.pop()]:
            if id_ not in out:
                out.add(id_)
                todo.append(id_)
    return out


class Representative:
    """The crash states of one behaviour, family by family. Each family goes through the behaviour's crash points.

    `near` are the points at which its updates are pending up to the first acknowledgement after the last of
    them; `later` those after it that are the first to follow an acknowledgement: what an operation left unpersisted. Of
    recorded system calls these are the 1st, 2nd, 4th, 8th, … of them.
    Parts of extensions of a file (crash-model.md, page-cache rule 5) are not varied.
    """

    def __init__(self, canonical: CanonicalStates, behaviour: Behaviour) -> None:
        self._canonical = canonical
        self._behaviour = behaviour
        space = canonical.space
        events = space.points.event
        self._rows = rows = np.sort(np.array(behaviour.pieces, dtype=np.int64))
        until = int(space.graph.durable_from[rows].max())
        first = int(np.searchsorted(events, behaviour.first, side="right"))
        stop = int(np.searchsorted(events, until, side="left"))
        last = int(np.searchsorted(events, canonical.acknowledgement_after(behaviour.last), side="right")) + 1
        self.near = range(first, min(stop, last))
        later = (np.flatnonzero(space.points.acknowledged_more[last:stop]) + last).tolist() if last < stop else []
        # A program that never syncs its log leaves it pending at all of them.
        self.later = tuple(later[(1 << at) - 1] for at in range(len(later).bit_length()) if (1 << at) <= len(later))
        if not space.graph.family.names:
            self.later = tuple(later)

    def _moments(self, points: Iterable[int]) -> Iterator[_Moment]:
        for point in points:
            rows = self._pending_at(point)
            if len(rows):
                yield _Moment(self._canonical, point, self._behaviour, rows)

    def _pending_at(self, point: int) -> Ints:
        """The behaviour's pieces that are pending at a point, ascending."""
        space, rows = self._canonical.space, self._rows
        event = space.moment(point)
        pending = (space.graph.event[rows] < event) & (space.graph.durable_from[rows] > event)
        return rows[pending]

    def cheap(self) -> Iterator[tuple[str, CrashState]]:
        """What nearly every bug shows in (docs/search.md), each state with the name of its family."""
        for family, states in (("ends", self.ends()), ("one kept", self.single()), ("one cut", self.cut())):
            for state in states:
                yield family, state

    def ends(self) -> Iterator[CrashState]:
        """Everything persisted; nothing of the behaviour."""
        for moment in self._moments(self.near):
            yield moment.lost(())
            yield moment.kept(())

    def single(self, points: Iterable[int] | None = None) -> Iterator[CrashState]:
        """One pending piece with what it needs, or what one granule has pending, and nothing else of the behaviour."""
        for moment in self._moments(self.near if points is None else points):
            for ids in moment.granules:
                for id_ in ids:
                    yield moment.kept((id_,))
                yield moment.kept(ids)

    def cut(self, points: Iterable[int] | None = None) -> Iterator[CrashState]:
        """Everything persisted but one granule, from each of the behaviour's pieces on."""
        for moment in self._moments(self.near if points is None else points):
            for ids in moment.granules:
                for id_ in reversed(ids):
                    yield moment.lost((id_,))
                yield moment.lost(ids)

    def pairs(self) -> Iterator[CrashState]:
        """Two unordered pieces persisted alone; everything persisted but two."""
        for moment in self._moments(self.near):
            for alone in (True, False):
                for pair in moment.unordered():
                    yield moment.kept(pair) if alone else moment.lost(pair)

    def ideals(self) -> Iterator[CrashState]:
        """Every set of the behaviour's updates that may have persisted."""
        for moment in self._moments(self.near):
            for ids in _product(moment.orders(), 0):
                yield moment.kept(ids)

    def feasible(self, most_steps: int | None = None) -> tuple[int, bool]:
        """How many sets of the behaviour's own updates may have persisted, over its near points, each once between
        two acknowledgements; and whether that is exact or an upper bound.

        `most_steps`: pending pieces, and pairs of its own, that are examined; beyond them each piece counts as free.
        """
        space = self._canonical.space
        total, exact, steps = 0, True, 0
        for point in self.near:
            rows = self._pending_at(point)
            steps += len(rows) ** 2
            if most_steps is not None and steps > most_steps:
                return total + ((self.near.stop - point) << len(self._behaviour.pieces)), False
            moment = _Moment(self._canonical, point, self._behaviour, rows)
            steps += moment.pending
            if not len(rows):
                continue
            new, sure = _count(moment.orders())
            exact = exact and sure
            if point > self.near.start and not bool(space.points.acknowledged_more[point]):
                before = space.moment(point - 1)
                known = [
                    order.older(int(np.searchsorted(space.graph.event, before, side="left")))
                    for order in moment.orders()
                ]
                gone = set(self._gone(point))
                if not gone:
                    old, sure = _count(known)
                    new, exact = (new - old, exact) if sure else (new, False)
            total += new
        return total, exact

    def _gone(self, point: int) -> Iterator[int]:
        """Pieces of the behaviour issued since the point before and durable already: all sets with them are new."""
        space = self._canonical.space
        low, high = space.moment(point - 1), space.moment(point)
        for id_ in self._behaviour.pieces:
            if low <= int(space.graph.event[id_]) < high and int(space.graph.durable_from[id_]) <= high:
                yield id_


def _count(orders: Iterable[Order]) -> tuple[int, bool]:
    total, exact = 1, True
    for order in orders:
        value, sure = order.count()
        total, exact = total * value, exact and sure
    return total, exact


def _product(orders: list[Order], at: int) -> Iterator[Ids]:
    if at == len(orders):
        yield ()
        return
    for many in range(orders[at].size + 1):
        for ids in orders[at].kept(many):
            for others in _product(orders, at + 1):
                yield ids + others
