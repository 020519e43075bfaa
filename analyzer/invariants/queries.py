"""Where a run may violate a likely invariant: pairs of updates, and the crash states to ask for (Witcher 4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.behaviours.updates import distinct, occurrence, ranges, sorting, taken
from crashcheck.analyzer.invariants.keys import Keys
from crashcheck.analyzer.invariants.ppdg import Accesses, Bools
from crashcheck.analyzer.persistence.graph import NEVER
from crashcheck.analyzer.persistence.pieces import IN_ORDER, WORD_BYTES, Ints
from crashcheck.analyzer.trace.format import Kind

_NEAR = 8  # updates of guardians before one that it is compared with
_COMPARED = 1 << 20  # granules of two updates that are compared at a time: two pages make thousands of pairs


@dataclass(frozen=True, slots=True)
class StateQuery:
    """A state that would violate invariant number `invariant`: the pieces `persisted` did, `unpersisted` did not.

    To be looked for at the crash points after `event`, while `unpersisted` are pending. Queries of one `signature`,
    the rule and the static sites of both updates, are alike.
    """

    persisted: tuple[int, ...]
    unpersisted: tuple[int, ...]
    event: int
    invariant: int
    signature: tuple[str, int, int]


class Updates:
    """The stores of a run: which may persist without which, and which belong to a field."""

    def __init__(self, found: Behaviours, rows: Accesses, keys: Keys) -> None:
        self.rows, self.keys, self.found = rows, keys, found
        nodes, graph = found.nodes, found.graph
        stores = np.flatnonzero(~rows.load & ~rows.volatile)
        event = np.full(len(rows), -1, dtype=np.int64)
        event[stores] = rows.columns.event[stores]
        self.event = event
        self._node = np.zeros(len(rows), dtype=np.int64)
        self._many = np.zeros(len(rows), dtype=np.int64)
        self._node[stores] = np.searchsorted(nodes.event, event[stores])
        self._many[stores] = np.searchsorted(nodes.event, event[stores], side="right") - self._node[stores]
        self.durable = np.full(len(rows), NEVER, dtype=np.int64)
        have = stores[self._many[stores] > 0]
        if len(have):
            self.durable[have] = _most(nodes.durable_from, self._node[have], self._many[have])
        self.label = np.full(len(rows), -1, dtype=np.int64)
        self.label[have] = found.label[self._node[have]]
        columns = rows.columns
        self._low = columns.file << 40 | columns.offset // WORD_BYTES
        self._high = columns.file << 40 | (columns.offset + columns.size - 1) // WORD_BYTES
        kinds = graph.trace.events["kind"]
        self.begins = np.flatnonzero(kinds == Kind.MARK_BEGIN)
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
        out = self.durable[first] > np.maximum(self.event[then], self.event[first])
        older = np.flatnonzero(out & (self.event[first] < self.event[then]))
        compared = np.cumsum(self._many[first[older]] * self._many[then[older]])
        low = 0
        while low < len(older):
            before = int(compared[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(compared, before + _COMPARED, side="right")))
            some = older[low:high]
            out[some] = self._lacks_older(first[some], then[some])
            low = high
        return out

    def _lacks_older(self, f: Ints, w: Ints) -> Bools:
        """Whether something pending of each update `f` is not ordered before the later update `w`."""
        nodes = self.found.nodes
        each = self._many[f] * self._many[w]
        pair = np.repeat(np.arange(len(f)), each)
        inside = ranges(np.zeros(len(f), dtype=np.int64), each)
        node = self._node[f[pair]] + inside // self._many[w[pair]]
        other = self._node[w[pair]] + inside % self._many[w[pair]]
        ordered = (nodes.granule[node] == nodes.granule[other]) & nodes.ordered[node] & nodes.ordered[other]
        # of each node of `first`: is it pending, and does no node of `then` need it
        span = int(self._many.max()) + 1
        one = pair * span + inside // self._many[w[pair]]
        heads = np.flatnonzero(np.concatenate([[True], one[1:] != one[:-1]]))
        free = ~np.logical_or.reduceat(ordered, heads)
        pending = nodes.durable_from[node[heads]] > self.event[w[pair[heads]]]
        out: Bools = np.bincount(pair[heads], weights=free & pending, minlength=len(f)) > 0
        return out

    def overlap(self, one: Ints, other: Ints) -> Bools:
        """Whether two accesses touch a word in common."""
        out: Bools = (self._low[one] <= self._high[other]) & (self._low[other] <= self._high[one])
        return out

    def pieces(self, update: int) -> tuple[int, ...]:
        low = int(self._node[update])
        return tuple(
            sorted(
                piece for node in range(low, low + int(self._many[update])) for piece in self.found.nodes.pieces(node)
            )
        )

    def query(self, rule: str, first: int, then: int, invariant: int) -> StateQuery | None:
        """The query of a pair; None if nothing of `first` can be missing."""
        graph = self.found.graph
        kept = self.pieces(then)
        granules = {int(graph.granule[piece]) for piece in kept if int(graph.mode[piece]) == IN_ORDER}
        now = max(int(self.event[then]), int(self.event[first]))
        older = int(self.event[first]) < int(self.event[then])
        lost = tuple(
            piece
            for piece in self.pieces(first)
            if int(graph.durable_from[piece]) > now
            and not (older and int(graph.mode[piece]) == IN_ORDER and int(graph.granule[piece]) in granules)
        )
        if not lost:
            return None
        return StateQuery(kept, lost, now, invariant, (rule, int(self.label[first]), int(self.label[then])))


def _most(values: Ints, first: Ints, many: Ints) -> Ints:
    """The largest of values[first : first + many], for each."""
    starts = np.cumsum(many) - many
    out: Ints = np.maximum.reduceat(values[ranges(first, many)], starts)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Together:
    """Pairs of updates of guardians in one operation, by (field of the earlier, of the later, shared); sorted."""

    one: Ints
    other: Ints
    field_one: Ints
    field_other: Ints
    shared: Ints


def guardians_together(updates: Updates, fields: Ints) -> Together:
    """Each update of a guardian with the few before it in the same operation (without marks: that are pending still).

    Fields are in ascending order in each pair: (x, y) and (y, x) are one invariant.
    """
    number = np.full(max(len(updates.keys.names), 1), -1, dtype=np.int64)
    number[fields] = np.arange(len(fields))
    members = np.flatnonzero(updates.inner & (number[updates.field] >= 0)) if len(fields) else fields[:0]
    (members,) = taken(np.lexsort((members, updates.rows.thread[updates.update[members]])), members)
    access, instance, guard = updates.update[members], updates.instance[members], number[updates.field[members]]
    thread = updates.rows.thread[access]
    parts: list[tuple[Ints, ...]] = []
    for back in range(1, min(_NEAR, len(members) - 1) + 1):
        one, other = access[:-back], access[back:]
        fits = (thread[:-back] == thread[back:]) & (one != other)
        if len(updates.begins):
            fits &= updates.operation[one] == updates.operation[other]
        else:
            fits &= updates.durable[one] > updates.event[other]
        early = np.flatnonzero(fits)
        early = early[~updates.overlap(access[early], access[early + back])]
        late = early + back
        x, y = guard[early], guard[late]
        code = np.minimum(x, y) * len(fields) + np.maximum(x, y)
        parts.append((code << 1 | (instance[early] == instance[late]), access[early], access[late]))
    if not parts:
        return Together(fields[:0], fields[:0], fields[:0], fields[:0], fields[:0])
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    parts.clear()  # there may be many
    code, one, other = distinct(*columns)
    x, y = np.divmod(code >> 1, len(fields))
    return Together(one, other, fields[x], fields[y], code & 1)


@dataclass(frozen=True, slots=True, eq=False)
class Queries:
    """The queries of a run, made when they are asked for, in the same order each time.

    First the first occurrence of every signature, those of the strongest invariants first, then the second ones, ….
    """

    updates: Updates
    rules: tuple[str, ...]
    rule: Ints
    first: Ints
    then: Ints
    invariant: Ints

    def __len__(self) -> int:
        """How many there are at most."""
        return len(self.first)

    def __iter__(self) -> Iterator[StateQuery]:
        for at in range(len(self.first)):
            made = self.updates.query(
                self.rules[int(self.rule[at])], int(self.first[at]), int(self.then[at]), int(self.invariant[at])
            )
            if made is not None:
                yield made


def queries(updates: Updates, rules: tuple[str, ...], rule: Ints, first: Ints, then: Ints, invariant: Ints) -> Queries:
    """In order; of equal pairs of one rule only that of the strongest invariant (the smallest number) stays."""
    order, _ = sorting(rule, first, then, invariant)
    rule, first, then, invariant = taken(order, rule, first, then, invariant)
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (rule[1:] != rule[:-1]) | (first[1:] != first[:-1]) | (then[1:] != then[:-1])
    rule, first, then, invariant = taken(np.flatnonzero(fresh), rule, first, then, invariant)
    by_time, _ = sorting(np.maximum(first, then), first, invariant)
    rule, first, then, invariant = taken(by_time, rule, first, then, invariant)
    nth = occurrence(rule, updates.label[first], updates.label[then])
    order, _ = sorting(nth, invariant, then, first)
    return Queries(updates, rules, *taken(order, rule, first, then, invariant))


__all__ = ["Queries", "StateQuery", "Updates", "guardians_together", "queries"]
