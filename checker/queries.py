"""From "this persisted, that did not" to crash states: the smallest and the largest that show it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import tee

import numpy as np

from crashcheck.analyzer.invariants.ranking import Query
from crashcheck.checker.representative import Places
from crashcheck.checker.states import CrashState

Violation = tuple[CrashState, CrashState]  # the smallest and the largest state


def states_of(places: Places, query: Query) -> Violation | tuple[()]:
    """(smallest, largest), at the first crash point at which all pieces of the query were issued; () if none shows it.

    The smallest holds `persisted`, what these need, and all that was issued before any piece of the query; the largest
    lacks `unpersisted` and what needs them. Where the first point has no such state, no later one has: what is durable
    stays so, and the order of what is pending does not change.
    """
    space, graph = places.space, places.space.graph
    if not query.unpersisted:
        return ()
    events = graph.event[[*query.persisted, *query.unpersisted]]
    after = max(query.event, int(events.max()))
    point = int(np.searchsorted(space.points.event, after, side="right"))
    if point >= len(space.points) or bool(
        (graph.durable_from[list(query.unpersisted)] <= int(space.points.event[point])).any()
    ):
        return ()
    largest = space.drop(point, query.unpersisted)
    gone = set(space.lost(largest))
    if not gone.isdisjoint(query.persisted):
        return ()
    pending = set(space.pending(point))
    kept = [piece for piece in query.persisted if piece in pending]
    return places.with_only(point, kept, int(events.min())), places.first(largest)


def violating(places: Places, queries: Iterable[Query]) -> tuple[Iterator[CrashState], Iterator[CrashState]]:
    """Of the first feasible query of each signature, the largest states and then the smallest; those of all others.

    The largest come first because they have found more planted bugs sooner.
    """
    one, other = tee(_feasible(places, queries))

    def first() -> Iterator[CrashState]:
        small = []
        for is_first, (smallest, largest) in one:
            if is_first:
                small.append(smallest)
                yield largest
        yield from small

    return first(), (state for is_first, states in other if not is_first for state in reversed(states))


def _feasible(places: Places, queries: Iterable[Query]) -> Iterator[tuple[bool, Violation]]:
    seen: set[object] = set()
    for query in queries:
        states = states_of(places, query)
        if states:
            yield query.signature not in seen, states
            seen.add(query.signature)
