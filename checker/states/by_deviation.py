"""Crash states by how far they deviate: in few granules from "everything persisted", or from "nothing pending did".

A granule of a state is *cut* on the lost side if it lost something, on the kept side if it kept something. A state
belongs to the side on which fewer granules are cut (to the lost side where they are equal), and that number is
its deviation. Counting granules, not pieces, puts the whole loss of a page with a hundred updates beside the
loss of a page with one: that a granule did not persist is one accident, however much it held.

Of one deviation, first are the states whose cut granules are lost (kept) whole, at every crash point. Then follow those
that cut inside a granule. The whole ones are few, and find most of what there is to find.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.checker.states.ideals import Ideals, Ids
from crashcheck.checker.states.partial_order import Order
from crashcheck.checker.states.rooted import Rooted
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep

# Of a granule: is it cut (0 or 1), what it lost (kept), is it cut inside (0 or 1).
Option = tuple[int, Ids, int]
# The options of a granule: generated again each time, because there may be more than memory holds.
Options = Callable[[], Iterator[Option]]
# Of a state: what it lost (kept), and how many of its granules are cut inside.
Cut = tuple[Ids, int]


def max_deviation(space: StateSpace) -> int:
    """The largest deviation that any state may have."""
    most = 0
    sweep = Sweep(space)
    while sweep.advance():
        sweep.add()
        most = max(most, sweep.factors)
    return most


def states_of_deviation(space: StateSpace, d: int, skip: Container[object] = ()) -> Iterator[CrashState]:
    """All states of deviation exactly d, each once; one pass over the points for each of the orders above.

    Points in `skip` are left out, also from the moment on at which they come into it. Memory follows what is pending at
    a point.
    """
    if d == 0:
        yield from (state for state in _ends(space) if state.point not in skip)
        return
    for inside in (False, True):
        for lost in (True, False):
            yield from _of_side(space, d, skip, lost=lost, inside=inside)


def _of_side(space: StateSpace, d: int, skip: Container[object], *, lost: bool, inside: bool) -> Iterator[CrashState]:
    sweep = Sweep(space)
    while sweep.advance():
        sweep.add()
        if sweep.point in skip or sweep.factors < d or not (sweep.has_new or _all_new(space, sweep)):
            continue
        for state in _at(space, sweep, d, lost=lost, inside=inside):
            yield state
            if sweep.point in skip:
                break


def _all_new(space: StateSpace, sweep: Sweep) -> bool:
    """Every state of the point is new: the outside world knows more, or all of them hold something new."""
    return bool(space.points.acknowledged_more[sweep.point]) or sweep.all_new


def _ends(space: StateSpace) -> Iterator[CrashState]:
    sweep = Sweep(space)
    while sweep.advance():
        sweep.add()
        all_new = _all_new(space, sweep)
        if all_new or sweep.has_new:
            yield space.full(sweep.point)
        if all_new and sweep.factors:
            yield space.empty(sweep.point)


def _at(space: StateSpace, sweep: Sweep, d: int, *, lost: bool, inside: bool) -> Iterator[CrashState]:
    since = 0 if _all_new(space, sweep) else sweep.since
    ideals = sweep.all_ideals()
    for ids, cut_inside in _choices(space.graph, ideals, d, since, lost=lost, inside=inside):
        # granules cut on the other side: those left alone, and those cut inside
        others = len(ideals) - d + cut_inside
        if bool(cut_inside) is not inside or (d > others if lost else d >= others):
            continue
        yield space.without(sweep.point, ids) if lost else space.with_(sweep.point, ids)


def _choices(
    graph: PersistenceGraph, ideals: list[Ideals], d: int, since: int, *, lost: bool, inside: bool
) -> Iterator[Cut]:
    """Choices of exactly d cut granules that leave a piece with an id from `since` on persisted (0: any choice).

    By the first granule that keeps such a new piece: those before it keep none, it keeps one, those after it are
    free. So nothing is produced to be thrown away, but inside one granule.
    """
    if not since:
        yield from _free(ideals, d, lost=lost, inside=inside, done=False)
        return
    news = [factor.newer(since) for factor in ideals]
    with_new = [at for at, new in enumerate(news) if new]
    for rank, at in enumerate(with_new):
        earlier = with_new[:rank]
        if lost and rank > d:
            return
        own: Options = partial(
            _lost_not_all_new if lost else _kept_some_new, graph, ideals[at], news[at], since, inside
        )
        bound = [*(_without_new(ideals[j], news[j], since, lost=lost, inside=inside) for j in earlier), own]
        rest = [factor for j, factor in enumerate(ideals) if j != at and j not in earlier]
        for cuts, ids, cut_inside in _bound(bound, 0, d):
            for others, others_inside in _free(rest, d - cuts, lost=lost, inside=inside, done=cut_inside > 0):
                yield ids + others, cut_inside + others_inside


def _without_new(factor: Ideals, new: Ids, since: int, *, lost: bool, inside: bool) -> Options:
    """The choices of a granule that keep no new piece."""
    if lost:
        return partial(_lost_all_new, factor, new, since, inside)
    return partial(_kept_no_new, factor, since, inside)


def _bound(options: Sequence[Options], at: int, most: int) -> Iterator[Option]:
    """One option of each granule, with at most `most` cuts in all."""
    if at == len(options):
        yield 0, (), 0
        return
    for cut, ids, inside in options[at]():
        if cut <= most:
            for cuts, others, others_inside in _bound(options, at + 1, most - cut):
                yield cut + cuts, ids + others, inside + others_inside


def _free(ideals: Sequence[Ideals], d: int, *, lost: bool, inside: bool, done: bool) -> Iterator[Cut]:
    """Exactly d of the granules cut, in every way; with `inside`, at least one of them inside unless `done`."""
    last_inside = max((at for at, factor in enumerate(ideals) if factor.size > 1 or factor.parted), default=-1)
    yield from _free_from(ideals, 0, d, last_inside, lost=lost, inside=inside, done=done)


def _free_from(
    ideals: Sequence[Ideals], start: int, d: int, last_inside: int, *, lost: bool, inside: bool, done: bool
) -> Iterator[Cut]:
    if not d:
        yield (), 0
        return
    wanted = inside and not done
    last = len(ideals) - d
    for at in range(start, last + 1):
        if wanted and at > last_inside:
            return
        for ids, cut_inside in _cuts(ideals[at], lost=lost, inside=inside):
            if wanted and d == 1 and not cut_inside:
                continue
            sure = done or cut_inside > 0
            for others, others_inside in _free_from(
                ideals, at + 1, d - 1, last_inside, lost=lost, inside=inside, done=sure
            ):
                yield ids + others, cut_inside + others_inside


def _cuts(factor: Ideals, *, lost: bool, inside: bool) -> Iterator[Cut]:
    """The ways to cut one granule: whole, then (if wanted) inside, from the least on."""
    take = factor.lost if lost else factor.kept
    whole = next(take(factor.size))  # before those with a part of an extension
    yield whole, 0
    if not inside:
        return
    for many in range(1, factor.size + 1):
        for ids in take(many):
            if ids != whole:
                yield ids, 1


def _lost_all_new(factor: Ideals, new: Ids, since: int, inside: bool) -> Iterator[Option]:
    """Cut: all new pieces lost, and any of the older ones."""
    older = factor.older(since)
    whole = next(older.lost(older.size)) if older.size else ()
    yield 1, whole + new, 0
    if inside:
        for many in range(older.size + 1):
            for ids in older.lost(many):
                if ids != whole:
                    yield 1, ids + new, 1


def _lost_not_all_new(graph: PersistenceGraph, factor: Ideals, new: Ids, since: int, inside: bool) -> Iterator[Option]:
    """Not cut, or cut so that a new piece (or a part of one) stays."""
    yield 0, (), 0
    if not inside:
        return
    # in a chain the new pieces are lost first; a part of the oldest new one still counts as kept
    most = factor.size if isinstance(factor, Order | Rooted) else len(new)
    for many in range(1, most + 1):
        for ids in factor.lost(many):
            if sum(id_ in new for id_ in ids) < len(new):
                yield 1, ids, 1


def _kept_no_new(factor: Ideals, since: int, inside: bool) -> Iterator[Option]:
    """Not cut, or some of the older pieces kept."""
    yield 0, (), 0
    if not inside:
        return
    older = factor.older(since)
    for many in range(1, older.size + 1):
        for ids in older.kept(many):
            yield 1, ids, 1


def _kept_some_new(graph: PersistenceGraph, factor: Ideals, new: Ids, since: int, inside: bool) -> Iterator[Option]:
    """Cut: a new piece is kept, and with it what it needs."""
    whole = next(factor.kept(factor.size))
    yield 1, whole, 0
    if not inside:
        return
    least = 1 if isinstance(factor, Order | Rooted) else factor.size - len(new) + 1
    for many in range(least, factor.size + 1):
        for ids in factor.kept(many):
            if ids != whole and any(graph.whole(id_) >= since for id_ in ids):
                yield 1, ids, 1
