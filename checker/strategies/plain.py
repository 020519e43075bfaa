"""Crash states that need no analysis: everything, nothing, or one granule's updates lost or kept."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.random import default_rng  # here: its compiled modules swallow a Ctrl-C that comes while they load

from crashcheck.analyzer.arrays import halving_order, number_rows
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.signature import call_sites
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.numbers import PLAIN_PENDING

_PARTS = 4  # of one call's pieces that count as different
_MOST_KINDS = 16  # of pieces


def plain_states(canonical: CanonicalStates, point: int) -> Iterator[CrashState]:
    """At a crash point: everything, nothing, and one granule's updates lost or kept."""
    space = canonical.space
    pending = space.pending_rows(point)
    yield space.full(point)
    if not len(pending):
        return
    yield space.empty(point)
    if len(pending) > PLAIN_PENDING:
        return
    granules = space.graph.granule[pending]
    for granule in dict.fromkeys(granules.tolist()):
        mine = pending[granules == granule].tolist()
        yield space.drop(point, mine)
        yield space.keep(point, mine)


def plain_everywhere(canonical: CanonicalStates) -> Iterator[CrashState]:
    """The plain states at the first crash point of each set of sites that is pending at one, spread over the run."""
    points = first_points(canonical.space, site_numbers(canonical.space.graph))
    for at in halving_order(len(points)):
        yield from map(canonical.first, plain_states(canonical, int(points[at])))


def site_numbers(graph: PersistenceGraph) -> Ints:
    """A number for each piece's call, its kind, and which of the call's first pieces it is."""
    part = np.arange(len(graph)) - np.searchsorted(graph.event, graph.event, side="left")
    kinds = np.minimum(part, _PARTS - 1) * _MOST_KINDS + graph.kind
    return number_rows(call_sites(graph), kinds)[0]


def first_points(space: StateSpace, site: Ints) -> Ints:
    """The first crash point of each set of sites that is pending at one, ascending. `site`: of each piece."""
    graph, points = space.graph, space.points
    begin = np.searchsorted(points.event, graph.event, side="right")
    end = np.searchsorted(points.event, graph.durable_from, side="left")
    pending = np.flatnonzero(begin < end)
    order = pending[np.lexsort((begin[pending], site[pending]))]
    site, begin, end = site[order], begin[order], end[order]
    # Of each site, stretches of points that touch are one: it begins where none before it reaches.
    apart = site * (len(points) + 1)
    reached = np.maximum.accumulate(end + apart)
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = (begin + apart)[1:] > reached[:-1]
    last = np.append(first[1:], True)[: len(order)]
    names = default_rng(1).integers(1, 1 << 62, size=int(site.max(initial=0)) + 1)
    flips = np.zeros(len(points) + 1, dtype=np.int64)
    np.bitwise_xor.at(flips, begin[first], names[site[first]])
    np.bitwise_xor.at(flips, (reached - apart)[last], names[site[last]])
    sets = np.bitwise_xor.accumulate(flips)[: len(points)]  # by point: the names of its pending sites, combined
    return np.sort(np.unique(sets, return_index=True)[1]).astype(np.int64)
