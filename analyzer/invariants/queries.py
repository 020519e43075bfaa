"""Where a run may violate a likely invariant: pairs of updates, and the crash states to ask for (Witcher 4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.behaviours.updates import distinct, ranges, taken
from crashcheck.analyzer.invariants.keys import Keys
from crashcheck.analyzer.invariants.ppdg import Accesses, Bools
from crashcheck.analyzer.persistence.graph import NEVER
from crashcheck.analyzer.persistence.pieces import IN_ORDER, WORD_BYTES, Ints
from crashcheck.analyzer.trace.format import Kind

MOST = 256  # queries of one signature and invariant
_NEAR = 8  # updates of guardians before one that it is compared with
_BLOCK = 1 << 18  # pairs that are looked at together


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


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of updates (rows of Accesses) of which a crash state may hold `then` and lack `first`; `held` counts the
    updates of `then` for which the order was kept, `violated` all pairs there were."""

    first: Ints
    then: Ints
    held: int
    violated: int


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
        begins = np.flatnonzero(kinds == Kind.MARK_BEGIN)
        self.operation = np.searchsorted(begins, event)
        self.marked = bool(len(begins))
        is_store = np.zeros(len(rows), dtype=np.bool_)
        is_store[have] = True
        self._by_field = _by(keys.field, np.flatnonzero(is_store[keys.access]))

    def of(self, field: int, shared: bool) -> tuple[Ints, Ints]:
        """(update, instance), by time; unless `shared` only where the field is one of the innermost struct."""
        members = self._by_field.get(field, np.zeros(0, dtype=np.int64))
        if not shared:
            members = members[self.keys.inner[members]]
        return self.keys.access[members], self.keys.instance[members]

    def may_lack(self, first: Ints, then: Ints) -> Bools:
        """Whether the model allows states that hold all of `then` and lack some of `first`, for updates with pieces.

        Not if `first` is older and what is pending of it has its granule's order with `then`.
        """
        out = self.durable[first] > np.maximum(self.event[then], self.event[first])
        older = np.flatnonzero(out & (self.event[first] < self.event[then]))
        if not len(older):
            return out
        nodes = self.found.nodes
        f, w = first[older], then[older]
        each = self._many[f] * self._many[w]
        pair = np.repeat(np.arange(len(older)), each)
        inside = ranges(np.zeros(len(older), dtype=np.int64), each)
        node = self._node[f[pair]] + inside // self._many[w[pair]]
        other = self._node[w[pair]] + inside % self._many[w[pair]]
        ordered = (nodes.granule[node] == nodes.granule[other]) & nodes.ordered[node] & nodes.ordered[other]
        # of each node of `first`: is it pending, and does no node of `then` need it
        span = int(self._many.max()) + 1
        one = pair * span + inside // self._many[w[pair]]
        heads = np.flatnonzero(np.concatenate([[True], one[1:] != one[:-1]]))
        free = ~np.logical_or.reduceat(ordered, heads)
        pending = nodes.durable_from[node[heads]] > self.event[w[pair[heads]]]
        out[older] = np.bincount(pair[heads], weights=free & pending, minlength=len(older)) > 0
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


def _by(values: Ints, rows: Ints) -> dict[int, Ints]:
    if not len(rows):
        return {}
    order = rows[np.argsort(values[rows], kind="stable")]
    numbers, first = np.unique(values[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, first[1:]), strict=True))


def ordered_pairs(updates: Updates, first: int, then: int, shared: bool, bound: tuple[Ints, Ints]) -> Pairs:
    """Updates of the fields `first` and `then` that belong together, if P(first) should happen before W(then).

    Of one instance if `shared`: the latest `first` before each `then`, the next `then` after each `first`, and the
    next `first` after each `then` that is still pending. Of different instances the same, whatever the instance, and
    those of the pairs of instances in `bound` (of first, of then): what the dependences were seen to join.
    """
    f, f_instance = updates.of(first, shared)
    w, w_instance = updates.of(then, shared)
    none = np.zeros(0, dtype=np.int64)
    if not len(f) or not len(w):
        return Pairs(none, none, 0, 0)
    span = len(updates.rows) + 1
    pairs = [_near(updates, f, f_instance * shared, w, w_instance * shared, span)]
    if not shared and len(bound[0]):
        of_first, of_then = bound
        order = np.argsort(of_then, kind="stable")
        low = np.searchsorted(of_then[order], w_instance)
        each = np.searchsorted(of_then[order], w_instance, side="right") - low
        if int(each.sum()) <= _BLOCK:
            joined_w, joined = np.repeat(w, each), of_first[order][ranges(low, each)]
            pairs.append(_latest(f, f_instance, joined_w, joined, span))
    # by the time of `first`, then of `then`
    keyed = np.sort(np.concatenate([one * span + other for one, other in pairs]))
    keyed = keyed[np.concatenate([[True], keyed[1:] != keyed[:-1]])] if len(keyed) else keyed
    one, other = keyed // span, keyed % span
    fits = (one != other) & ~updates.overlap(one, other)
    one, other = one[fits], other[fits]
    bad = updates.may_lack(one, other)
    # a `first` after `then` counts while `then` is pending
    later = updates.event[one] > updates.event[other]
    bad &= ~later | (updates.durable[other] > updates.event[one])
    good = ~later & ~bad
    if not shared:
        good &= updates.operation[one] == updates.operation[other]
    held = np.sort(other[good])
    many = int((held[1:] != held[:-1]).sum()) + 1 if len(held) else 0
    return Pairs(one[bad], other[bad], many, int(bad.sum()))


def _near(updates: Updates, f: Ints, f_key: Ints, w: Ints, w_key: Ints, span: int) -> tuple[Ints, Ints]:
    before = _latest(f, f_key, w, w_key, span)
    f_sorted, w_sorted = np.sort(f_key * span + f), np.sort(w_key * span + w)
    after_f = _next(f_sorted, w_sorted, span)
    after_w = _next(w_sorted, f_sorted, span)
    return np.concatenate([before[0], after_f[0], after_w[1]]), np.concatenate([before[1], after_f[1], after_w[0]])


def _latest(f: Ints, f_key: Ints, w: Ints, w_key: Ints, span: int) -> tuple[Ints, Ints]:
    keyed = np.sort(f_key * span + f)
    at = np.searchsorted(keyed, w_key * span + w) - 1
    fits = at >= 0
    fits[fits] = keyed[at[fits]] // span == w_key[fits]
    return keyed[at[fits]] % span, w[fits]


def _next(one: Ints, other: Ints, span: int) -> tuple[Ints, Ints]:
    """(of one, the next of other with the same key)."""
    at = np.searchsorted(other, one, side="right")
    fits = at < len(other)
    fits[fits] = other[at[fits]] // span == one[fits] // span
    return one[fits] % span, other[at[fits]] % span


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
    keys = updates.keys
    is_guard = np.zeros(len(keys.names), dtype=np.bool_)
    is_guard[fields] = True
    rows = (
        np.concatenate([updates._by_field.get(int(field), fields[:0]) for field in fields]) if len(fields) else fields
    )
    rows = rows[keys.inner[rows]]
    rows = rows[np.lexsort((rows, updates.rows.thread[keys.access[rows]]))]
    access, thread = keys.access[rows], updates.rows.thread[keys.access[rows]]
    parts: list[tuple[Ints, ...]] = []
    for back in range(1, _NEAR + 1):
        early, late = np.arange(len(rows) - back), np.arange(back, len(rows))
        if not len(early):
            break
        one, other = access[early], access[late]
        fits = (thread[early] == thread[late]) & (one != other) & ~updates.overlap(one, other)
        if updates.marked:
            fits &= updates.operation[one] == updates.operation[other]
        else:
            fits &= updates.durable[one] > updates.event[other]
        early, late = early[fits], late[fits]
        x, y = keys.field[rows[early]], keys.field[rows[late]]
        same = (keys.instance[rows[early]] == keys.instance[rows[late]]).astype(np.int64)
        parts.append((np.minimum(x, y), np.maximum(x, y), same, access[early], access[late]))
    if not parts:
        return Together(fields[:0], fields[:0], fields[:0], fields[:0], fields[:0])
    field_one, field_other, shared, one, other = distinct(
        *(np.concatenate(column) for column in zip(*parts, strict=True))
    )
    return Together(one, other, field_one, field_other, shared)


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


def few(updates: Updates, first: Ints, then: Ints, most: int = MOST) -> tuple[Ints, Ints]:
    """Of pairs with equal static sites the earliest `most`, by time."""
    order = np.lexsort((first, then))
    first, then = first[order], then[order]
    place = _occurrence(updates.label[first], updates.label[then])
    return first[place < most], then[place < most]


def _occurrence(*columns: Ints) -> Ints:
    """How many rows before each one equal it."""
    if not len(columns[0]):
        return columns[0]
    order = np.lexsort(columns[::-1])
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = np.logical_or.reduce([column[order][1:] != column[order][:-1] for column in columns])
    heads = np.maximum.accumulate(np.where(fresh, np.arange(len(order)), 0))
    out = np.empty(len(order), dtype=np.int64)
    out[order] = np.arange(len(order)) - heads
    return out


def queries(updates: Updates, rules: tuple[str, ...], rule: Ints, first: Ints, then: Ints, invariant: Ints) -> Queries:
    """In order; of equal pairs of one rule only that of the strongest invariant (the smallest number) stays."""
    order = np.lexsort((invariant, then, first, rule))
    rule, first, then, invariant = taken(order, rule, first, then, invariant)
    fresh = np.ones(len(order), dtype=np.bool_)
    fresh[1:] = (rule[1:] != rule[:-1]) | (first[1:] != first[:-1]) | (then[1:] != then[:-1])
    rule, first, then, invariant = taken(np.flatnonzero(fresh), rule, first, then, invariant)
    by_time = np.lexsort((invariant, first, np.maximum(first, then)))
    rule, first, then, invariant = taken(by_time, rule, first, then, invariant)
    nth = _occurrence(rule, updates.label[first], updates.label[then])
    order = np.lexsort((first, then, invariant, nth))
    return Queries(updates, rules, *taken(order, rule, first, then, invariant))


__all__ = ["Pairs", "Queries", "StateQuery", "Updates", "few", "guardians_together", "ordered_pairs", "queries"]
