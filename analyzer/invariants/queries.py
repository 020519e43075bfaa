"""Where a run may violate a likely invariant: pairs of updates, and the crash states to ask for (Witcher 4.4)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from crashcheck.analyzer.arrays import (
    Bools,
    distinct_rows,
    fresh_rows,
    number_rows,
    occurrence_numbers,
    ranges,
    sort_rows,
    take_rows,
    unique,
)
from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.invariants.numbers import LARGE, NEAR
from crashcheck.analyzer.invariants.ppdg import Accesses
from crashcheck.analyzer.invariants.variables import AccessedVariables
from crashcheck.analyzer.persistence.graph import NEVER
from crashcheck.analyzer.persistence.pieces import IN_ORDER, WORD_BYTES, Ints
from crashcheck.runtime.trace_format import Kind

_MEMBERS = 1 << 15  # updates of guardians in one batch
_AT_ONCE = 1024  # queries in one batch
_PIECES = 1 << 16  # of the updates of one batch, unless one query has more
_COMPARED = 1 << 20  # granules of two updates that are compared at a time: two pages make thousands of pairs


class StateQuery(NamedTuple):
    """A state that would violate invariant number `invariant`: the pieces `persisted` did, `unpersisted` did not.

    To be looked for at the crash points after `event`, while `unpersisted` are pending. Queries of one `signature`,
    the rule and the static sites of both updates, are equivalent.
    """

    persisted: tuple[int, ...]
    unpersisted: tuple[int, ...]
    event: int
    invariant: int
    signature: tuple[str, int, int]


class RunStores:
    """The stores of a run: which may persist without which, and which belong to a field."""

    def __init__(self, found: Behaviours, rows: Accesses, keys: AccessedVariables) -> None:
        self.found, self.thread = found, rows.thread
        nodes, graph = found.nodes, found.graph
        stores = np.flatnonzero(~rows.load)
        event = np.full(len(rows), -1, dtype=np.int64)
        event[stores] = rows.columns.event[stores]
        self.event = event
        self._first_node = np.zeros(len(rows), dtype=np.int64)
        self._node_count = np.zeros(len(rows), dtype=np.int64)
        self._first_node[stores] = np.searchsorted(nodes.event, event[stores])
        self._node_count[stores] = np.searchsorted(nodes.event, event[stores], side="right") - self._first_node[stores]
        self.durable = np.full(len(rows), NEVER, dtype=np.int64)
        have = stores[self._node_count[stores] > 0]
        if len(have):
            self.durable[have] = _most(nodes.durable_from, self._first_node[have], self._node_count[have])
        self.label = np.full(len(rows), -1, dtype=np.int64)
        self.label[have] = found.label[self._first_node[have]]
        # until when something of it may be missing, and where alone it keeps its place in an order
        self._until = np.where(self.durable > event, self.durable, -1)
        self._slot = -1 - np.arange(len(rows))
        single = stores[self._node_count[stores] == 1]
        node = self._first_node[single]
        self._slot[single] = np.where(nodes.ordered[node], nodes.granule[node], self._slot[single])
        self._several = self._node_count > 1
        self.size = np.zeros(len(rows), dtype=np.int64)  # in pieces
        ends = self._first_node[have] + self._node_count[have]
        self.size[have] = nodes.start[ends] - nodes.start[self._first_node[have]]
        columns = rows.columns
        self._low = columns.file << 40 | columns.offset // WORD_BYTES
        self._high = columns.file << 40 | (columns.offset + columns.size - 1) // WORD_BYTES
        self.begins = graph.trace.rows(Kind.MARK_BEGIN)
        self.operation = np.searchsorted(self.begins, event)
        is_store = np.zeros(len(rows), dtype=np.bool_)
        is_store[have] = True
        members = np.flatnonzero(is_store[keys.access])
        self.update, self.instance, self.field = keys.access[members], keys.instance[members], keys.field[members]
        self.inner, self.fields = keys.inner[members], len(keys.names)

    def may_lack(self, first: Ints, then: Ints) -> Bools:
        """Whether the model allows states that hold all of `then` and lack some of `first`, for updates with pieces.

        Not if `first` is older and what is pending of it has its granule's order with `then`.
        """
        now = self.event[then]
        older = self.event[first] < now
        allowed: Bools = (self._until[first] > now) & ~(older & (self._slot[first] == self._slot[then]))
        if not self._several.any():
            return allowed
        # an update of several pieces has no slot: its pieces are compared one by one
        undecided = np.flatnonzero(allowed & older & (self._several[first] | self._several[then]))
        comparisons = np.cumsum(self._node_count[first[undecided]] * self._node_count[then[undecided]])
        low = 0
        while low < len(undecided):  # in batches, for memory
            before = int(comparisons[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(comparisons, before + _COMPARED, side="right")))
            batch = undecided[low:high]
            allowed[batch] = self._lacks_older(first[batch], then[batch])
            low = high
        return allowed

    def _lacks_older(self, older: Ints, later: Ints) -> Bools:
        """Whether something pending of each update `older` is not ordered before the update `later` beside it."""
        nodes = self.found.nodes
        # a row for each pair of a node of the older update with one of the later
        comparisons = self._node_count[older] * self._node_count[later]
        pair = np.repeat(np.arange(len(older)), comparisons)
        place = ranges(np.zeros(len(older), dtype=np.int64), comparisons)  # of the row within its pair of updates
        older_place, later_place = np.divmod(place, self._node_count[later[pair]])
        older_node = self._first_node[older[pair]] + older_place
        later_node = self._first_node[later[pair]] + later_place
        same_granule = nodes.granule[older_node] == nodes.granule[later_node]
        ordered = same_granule & nodes.ordered[older_node] & nodes.ordered[later_node]
        # the rows of one older node follow one another: may it be missing, and does no later node need it
        starts = np.flatnonzero(later_place == 0)
        needed = np.logical_or.reduceat(ordered, starts)
        pending = nodes.durable_from[older_node[starts]] > self.event[later[pair[starts]]]
        lacking: Bools = np.bincount(pair[starts], weights=pending & ~needed, minlength=len(older)) > 0
        return lacking

    def overlap(self, one: Ints, other: Ints) -> Bools:
        """Whether two accesses touch a word in common."""
        out: Bools = (self._low[one] <= self._high[other]) & (self._low[other] <= self._high[one])
        return out

    def pieces(self, updates: Ints) -> tuple[Ints, Ints]:
        """(place in `updates`, piece): the pieces of each, ascending."""
        nodes = self.found.nodes
        begin, count = nodes.start[self._first_node[updates]], self.size[updates]
        return distinct_rows(np.repeat(np.arange(len(updates)), count), nodes.piece[ranges(begin, count)])  # type: ignore[return-value]

    def states(self, rule: Sequence[str], first: Ints, then: Ints, invariant: Ints) -> Iterator[tuple[int, StateQuery]]:
        """(place, query) of pairs, in order; none where nothing of `first` can be missing."""
        graph = self.found.graph
        at, kept = self.pieces(then)
        of, lost = self.pieces(first)
        now = np.maximum(self.event[then], self.event[first])
        older = self.event[first] < self.event[then]
        span = int(graph.granule.max(initial=0)) + 1
        in_order = graph.mode[kept] == IN_ORDER
        needs = unique(at[in_order] * span + graph.granule[kept[in_order]])
        needed = np.isin(of * span + graph.granule[lost], needs) & (graph.mode[lost] == IN_ORDER) & older[of]
        pending = (graph.durable_from[lost] > now[of]) & ~needed
        of, lost = of[pending], lost[pending]
        pairs = np.arange(len(first) + 1)
        keeps, loses = np.searchsorted(at, pairs).tolist(), np.searchsorted(of, pairs).tolist()
        persisted, unpersisted = kept.tolist(), lost.tolist()
        ends = pairwise(keeps), pairwise(loses)
        labels = self.label[first].tolist(), self.label[then].tolist()
        columns = zip(rule, now.tolist(), invariant.tolist(), *labels, *ends, strict=True)
        for place, (name, event, number, one, other, (held, until), (low, high)) in enumerate(columns):
            if low < high:
                here, gone = tuple(persisted[held:until]), tuple(unpersisted[low:high])
                yield place, StateQuery(here, gone, event, number, (name, one, other))


def _most(values: Ints, first: Ints, many: Ints) -> Ints:
    """The largest of values[first : first + many], for each."""
    starts = np.cumsum(many) - many
    out: Ints = np.maximum.reduceat(values[ranges(first, many)], starts)
    return out


def guardians_together(updates: RunStores, fields: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(relation, first, then): each update of a guardian with the few before and after it in the same operation, or
    without marks while the earlier is pending. Some updates at a time, sorted by (then, first).

    A relation is two guardians, as places in `fields`, and whether they are in one instance: the number of (x, y,
    shared) is (x * len(fields) + y) * 2 + shared, x not above y, as (x, y) and (y, x) are one invariant.
    """
    number = np.full(max(updates.fields, 1), -1, dtype=np.int64)
    number[fields] = np.arange(len(fields))
    members = np.flatnonzero(updates.inner & (number[updates.field] >= 0)) if len(fields) else fields[:0]
    access, instance, guard = updates.update[members], updates.instance[members], number[updates.field[members]]
    thread = updates.thread[access]
    by_thread, _ = sort_rows(thread)
    place = np.empty(len(members), dtype=np.int64)
    place[by_thread] = np.arange(len(members))
    heads = np.append(np.flatnonzero(np.diff(access, prepend=-1)), len(access))
    several = len(heads) <= len(access)  # fields of one update
    near = np.concatenate([np.arange(-NEAR, 0), np.arange(1, NEAR + 1)])
    low = 0
    while low < len(members):
        high = int(heads[np.searchsorted(heads, min(low + _MEMBERS, len(members)))])
        at = place[low:high, None] + near
        inside = (at >= 0) & (at < len(members))
        other = by_thread[np.where(inside, at, 0)]
        inside &= thread[low:high, None] == thread[other]
        own, which = np.nonzero(inside)
        own, other = own + low, other[own, which]
        then, first = access[own], access[other]
        if len(updates.begins):
            fits = updates.operation[first] == updates.operation[then]
        else:
            early, late = np.minimum(first, then), np.maximum(first, then)
            fits = updates.durable[early] > updates.event[late]
        fits &= (first != then) & ~updates.overlap(first, then)
        own, other = own[fits], other[fits]
        x, y = guard[own], guard[other]
        relation = (np.minimum(x, y) * len(fields) + np.maximum(x, y)) * 2 + (instance[own] == instance[other])
        columns: tuple[Ints, ...] = access[own], access[other], relation
        then, first, relation = distinct_rows(*columns) if several else columns
        yield relation, first, then
        low = high


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """The queries of a run, made when they are asked for, in the same order each time.

    First the first occurrence of every signature, those of the strongest invariants first, then the second ones, ….
    Those of very large updates are behind all others: each costs what thousands of others cost.
    """

    updates: RunStores
    rules: tuple[str, ...]
    rule: Ints
    first: Ints
    then: Ints
    invariant: Ints

    def __len__(self) -> int:
        """How many there are at most."""
        return len(self.first)

    def __iter__(self) -> Iterator[StateQuery]:
        for low in range(0, len(self.first), _AT_ONCE):
            rows = np.arange(low, min(low + _AT_ONCE, len(self.first)))
            yield from (query for _, query in self.at(rows))

    def at(self, rows: Ints) -> Iterator[tuple[int, StateQuery]]:
        """(row, query) of some rows, below the length; not of those where nothing can be missing."""
        pieces = np.cumsum(self.updates.size[self.first[rows]] + self.updates.size[self.then[rows]])
        low = 0
        while low < len(rows):
            done = int(pieces[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(pieces, done + _PIECES, side="right")))
            batch, low = rows[low:high], high
            rules = [self.rules[number] for number in self.rule[batch].tolist()]
            places = batch.tolist()
            asked = self.updates.states(rules, self.first[batch], self.then[batch], self.invariant[batch])
            yield from ((places[place], query) for place, query in asked)

    def signatures(self) -> Ints:
        """A number for the signature of each row, below the length: equal for equal signatures."""
        label = self.updates.label
        return number_rows(self.rule, label[self.first], label[self.then])[0]


def order_queries(
    updates: RunStores, rules: tuple[str, ...], rule: Ints, first: Ints, then: Ints, invariant: Ints
) -> Queries:
    """In order; of equal pairs of one rule only that of the strongest invariant (the smallest number) stays."""
    rule, first, then, invariant = distinct_rows(rule, first, then, invariant)
    heads = np.flatnonzero(fresh_rows(rule, first, then))
    rule, first, then, invariant = take_rows(heads, rule, first, then, invariant)
    by_time, _ = sort_rows(np.maximum(first, then), first, invariant)
    nth = np.empty(len(by_time), dtype=np.int64)
    nth[by_time] = occurrence_numbers(*take_rows(by_time, rule, updates.label[first], updates.label[then]))
    large = updates.size[first] + updates.size[then] > LARGE
    order, _ = sort_rows(large, nth, invariant, then, first)
    return Queries(updates, rules, *take_rows(order, rule, first, then, invariant))
