"""From "this persisted, that did not" to crash states: the smallest and the largest that show it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from crashcheck.analyzer.invariants import StateQuery
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState

_LOOK_AHEAD = 64  # new signatures that are kept for the one reader while the other looks for known ones

Violation = tuple[CrashState, CrashState]  # the smallest and the largest state


def states_of(canonical: CanonicalStates, query: StateQuery) -> Violation | tuple[()]:
    """(smallest, largest), at the first crash point at which all pieces of the query were issued; () if none shows it.

    The smallest holds `persisted`, what these need, and all that was issued before any piece of the query; the largest
    lacks `unpersisted` and what needs them. Where the first point has no such state, no later one has: what is durable
    stays so, and the order of what is pending does not change.
    """
    space, graph = canonical.space, canonical.space.graph
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
    return canonical.with_only(point, kept, int(events.min())), canonical.first(largest)


def violating(
    canonical: CanonicalStates, queries: Iterable[StateQuery]
) -> tuple[Iterator[CrashState], Iterator[CrashState]]:
    """Of the first feasible query of each signature, the largest states and then the smallest; those of all others.

    The largest are first because they have found more planted bugs earlier. States are made when they are asked for:
    looking for a new signature among many queries of known ones costs little.
    """
    both = _Both(canonical, queries)
    return both.first(), both.again()


class _Both:
    """One pass over the queries for two readers; what one of them comes across is kept for the other."""

    def __init__(self, canonical: CanonicalStates, queries: Iterable[StateQuery]) -> None:
        self._canonical = canonical
        self._queries = iter(queries)
        self._seen: set[object] = set()  # signatures that were feasible
        self._fresh: deque[Violation] = deque()
        self._known: deque[StateQuery] = deque()

    def first(self) -> Iterator[CrashState]:
        small = []
        while self._fresh or self._advance():
            while self._fresh:
                smallest, largest = self._fresh.popleft()
                small.append(smallest)
                yield largest
        yield from small

    def again(self) -> Iterator[CrashState]:
        while self._known or self._advance():
            while self._known:
                yield from reversed(states_of(self._canonical, self._known.popleft()))
            if len(self._fresh) > _LOOK_AHEAD:  # hardly any signature comes twice: do not examine all before the next
                yield from reversed(self._fresh.popleft())

    def _advance(self) -> bool:
        """Examine one more query; False if there is none."""
        query = next(self._queries, None)
        if query is None:
            return False
        if query.signature in self._seen:
            self._known.append(query)
        elif states := states_of(self._canonical, query):
            self._seen.add(query.signature)
            self._fresh.append(states)
        return True
