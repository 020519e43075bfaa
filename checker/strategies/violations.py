"""From "this persisted, that did not" to crash states: the smallest and the largest that show it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

import numpy as np

from crashcheck.analyzer.invariants import Queries, StateQuery
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState
from crashcheck.interruption import KeepOn, always

_AT_ONCE = 1024  # queries whose signatures are compared with the known ones at a time
_MADE = 64  # queries of known signatures that are made at a time
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
    canonical: CanonicalStates, queries: Queries | Sequence[StateQuery], keep_on: KeepOn = always
) -> tuple[Iterator[CrashState], Iterator[CrashState]]:
    """Of the first feasible query of each signature, the largest states and then the smallest; those of all others.

    The largest are first because they have found more planted bugs earlier. States are made when they are asked for:
    looking for a new signature among many queries of known ones costs little. `keep_on` is called now and then; what
    it raises ends the search.
    """
    both = _Both(canonical, queries if isinstance(queries, Queries) else _Listed(queries), keep_on)
    return both.first(), both.again()


class _Listed:
    """A few queries that are there already, as Queries has them."""

    def __init__(self, queries: Sequence[StateQuery]) -> None:
        self._queries = queries

    def at(self, rows: Ints) -> Iterator[tuple[int, StateQuery]]:
        return ((row, self._queries[row]) for row in rows.tolist())

    def signatures(self) -> Ints:
        number: dict[object, int] = {}
        return np.array([number.setdefault(query.signature, len(number)) for query in self._queries], dtype=np.int64)


class _Both:
    """One pass over the queries for two readers; what one of them comes across is kept for the other.

    Nearly all queries are of known signatures: they are kept as ranges of rows, and made when the second reader asks.
    """

    def __init__(self, canonical: CanonicalStates, queries: Queries | _Listed, keep_on: KeepOn) -> None:
        self._canonical = canonical
        self._queries = queries
        self._keep_on = keep_on
        self._fresh: deque[Violation] = deque()
        self._known: deque[tuple[int, int]] = deque()  # ranges of rows whose signatures were feasible before
        self._steps = self._examine()

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
                low, high = self._known.popleft()
                if low + _MADE < high:
                    self._known.appendleft((low + _MADE, high))
                for _, query in self._queries.at(np.arange(low, min(low + _MADE, high))):
                    self._keep_on()
                    yield from reversed(states_of(self._canonical, query))
            if len(self._fresh) > _LOOK_AHEAD:  # hardly any signature comes twice: do not examine all before the next
                yield from reversed(self._fresh.popleft())

    def _advance(self) -> bool:
        """Examine one more query, or go past those of known signatures; False if there is none."""
        return next(self._steps, False)

    def _examine(self) -> Iterator[bool]:
        """A step for each range of known signatures, and for each query of another one."""
        signature = self._queries.signatures()
        seen = np.zeros(len(signature), dtype=np.bool_)  # that were feasible
        for low in range(0, len(signature), _AT_ONCE):
            self._keep_on()
            high = min(low + _AT_ONCE, len(signature))
            done = low
            for row, query in self._queries.at(low + np.flatnonzero(~seen[signature[low:high]])):
                if seen[signature[row]]:
                    continue
                if done < row:
                    self._known.append((done, row))
                    yield True
                self._keep_on()
                if states := states_of(self._canonical, query):
                    seen[signature[row]] = True
                    self._fresh.append(states)
                done = row + 1
                yield True
            if done < high:
                self._known.append((done, high))
                yield True
