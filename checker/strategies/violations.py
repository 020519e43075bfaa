"""From "this persisted, that did not" to crash states: the smallest and the largest that show it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from crashcheck.analyzer.invariants import Queries, StateQuery
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState
from crashcheck.interruption import KeepOn, always

_AT_ONCE = 1024  # queries whose signatures are compared with the known ones at a time

Violation = tuple[CrashState, CrashState]  # the smallest and the largest state


def states_of(canonical: CanonicalStates, query: StateQuery) -> Violation | tuple[()]:
    """(smallest, largest), at the first crash point at which all pieces of the query were issued; () if none shows it.

    The smallest holds `persisted`, what these need, and all that was issued before any piece of the query; the largest
    lacks `unpersisted` and what needs them. Where the first point has no such state, no later one has: what is durable
    stays so, and the order of what is pending does not change.
    """
    found = _found(canonical, query)
    return () if found is None else (found[0](), found[1])


def _found(canonical: CanonicalStates, query: StateQuery) -> tuple[Callable[[], CrashState], CrashState] | None:
    """The same, with the smallest made when it is asked for: a search seldom gets there."""
    space, graph = canonical.space, canonical.space.graph
    if not query.unpersisted:
        return None
    events = graph.event[[*query.persisted, *query.unpersisted]]
    after = max(query.event, int(events.max()))
    point = int(space.points.event.searchsorted(after, side="right"))
    if point >= len(space.points) or bool((graph.durable_from[list(query.unpersisted)] <= space.moment(point)).any()):
        return None
    largest = space.drop(point, query.unpersisted)
    gone = set(space.lost(largest))
    if not gone.isdisjoint(query.persisted):
        return None
    pending = set(space.pending(point))
    kept = [piece for piece in query.persisted if piece in pending]
    return partial(canonical.with_only, point, kept, int(events.min())), canonical.first(largest)


def violating(
    canonical: CanonicalStates, queries: Queries | Sequence[StateQuery], keep_on: KeepOn = always
) -> Iterator[CrashState]:
    """Of the first feasible query of each signature, the largest states and then the smallest.

    The largest are first because they have found more planted bugs earlier. Further queries of a signature earned
    nothing beyond chance. `keep_on` is called now and then; what it raises ends the search.
    """
    listed = queries if isinstance(queries, Queries) else _Listed(queries)
    signature = listed.signatures()
    seen = np.zeros(len(signature), dtype=np.bool_)  # that were feasible
    small = []
    for low in range(0, len(signature), _AT_ONCE):
        keep_on()
        high = min(low + _AT_ONCE, len(signature))
        for row, query in listed.at(low + np.flatnonzero(~seen[signature[low:high]])):
            if seen[signature[row]]:
                continue
            keep_on()
            if found := _found(canonical, query):
                seen[signature[row]] = True
                small.append(found[0])
                yield found[1]
    for smallest in small:
        yield smallest()


class _Listed:
    """A few queries that are there already, as Queries has them."""

    def __init__(self, queries: Sequence[StateQuery]) -> None:
        self._queries = queries

    def at(self, rows: Ints) -> Iterator[tuple[int, StateQuery]]:
        return ((row, self._queries[row]) for row in rows.tolist())

    def signatures(self) -> Ints:
        number: dict[object, int] = {}
        return np.array([number.setdefault(query.signature, len(number)) for query in self._queries], dtype=np.int64)
