"""Updates of two fields that belong together, and which of them a crash may leave in the wrong order (Witcher 4.4).

A run has thousands of pairs of fields, and most of them have many updates of the one and few of the other. All pairs
are gone through together, and of each the shorter list, so that what a pair costs is what it has to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np

from crashcheck.analyzer.behaviours.updates import numbered, occurrence, ranges, sorting, taken
from crashcheck.analyzer.invariants.ppdg import Bools
from crashcheck.analyzer.invariants.rules import Joined
from crashcheck.analyzer.persistence.pieces import Ints

_MOST = 256  # pairs with equal static sites that are kept of two fields
_BLOCK = 1 << 18  # updates of joined instances that are looked at for two fields
_CHUNK = 1 << 18  # updates that are looked at together


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of updates (rows of Accesses) of which a crash state may hold `then` and lack `first`, by the time of
    `then`, of equal static sites the earliest. `held` counts the updates of `then` for which the order was kept,
    `violated` all pairs that there were."""

    first: Ints
    then: Ints
    held: int
    violated: int


class Stores(Protocol):
    """The updates of a run (queries.Updates), as far as they are asked here; by row of Accesses."""

    event: Ints
    durable: Ints
    operation: Ints
    begins: Ints  # of operations, as events
    fields: int  # how many there are
    label: Ints
    update: Ints  # of each membership, ascending: the update,
    instance: Ints  # what it belongs to,
    field: Ints
    inner: Bools  # and whether that is its innermost struct

    def may_lack(self, first: Ints, then: Ints) -> Bools: ...
    def overlap(self, one: Ints, other: Ints) -> Bools: ...


class _Lists:
    """Updates by group, each group's ascending: those of group g are row[start[g]] to row[start[g + 1] - 1]."""

    def __init__(self, group: Ints, row: Ints, groups: int, bits: int) -> None:
        self._bits = bits
        key = np.sort(group << bits | row)
        key = key[np.concatenate([[True], key[1:] != key[:-1]])] if len(key) else key
        self._key = key
        self.row = key & (1 << bits) - 1
        self.start = np.searchsorted(key, np.arange(groups + 1) << bits)
        self.many = np.diff(self.start)

    def before(self, group: Ints, row: Ints) -> Ints:
        """The place of each group's latest update before a row; -1 if there is none."""
        at = np.searchsorted(self._key, group << self._bits | row) - 1
        return np.where(at >= self.start[group], at, -1)

    def after(self, group: Ints, row: Ints) -> Ints:
        """The place of each group's next update after a row; -1 if there is none."""
        at = np.searchsorted(self._key, group << self._bits | row, side="right")
        return np.where(at < self.start[group + 1], at, -1)

    def between(self, group: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """(place in `group`, row): each group's updates from row `low` on and before row `high`."""
        begin = np.searchsorted(self._key, group << self._bits | low)
        many = np.maximum(np.searchsorted(self._key, group << self._bits | np.maximum(high, low)) - begin, 0)
        return np.repeat(np.arange(len(group)), many), self.row[ranges(begin, many)]

    def neighbours(self, group: Ints, place: Ints, none: int) -> tuple[Ints, Ints]:
        """The rows before and after the update at a place, in its group; 0 and `none` where there are none."""
        before = np.where(place > self.start[group], self.row[np.maximum(place - 1, 0)], 0)
        after = self.row[np.minimum(place + 1, len(self.row) - 1)]
        return before, np.where(place + 1 < self.start[group + 1], after, none)


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """How far from an update one must look, by row: no pair across them says anything.

    `reach` is the first update after its operation and after it is durable, `since` the first of its operation, and
    `lasting` are those updates that are not durable when their operation ends.
    """

    reach: Ints
    since: Ints
    lasting: _Lists


def ordered_pairs(stores: Stores, first: Ints, then: Ints, shared: Bools, bound: Joined) -> Iterator[Pairs]:
    """For each two fields the updates that belong together, if P(first) should happen before W(then).

    Of one instance if `shared`: the latest `first` before each `then`, the next `then` after each `first`, and the
    next `first` after each `then` that is still pending. Of different instances the same, whatever the instance, and
    those of the pairs of instances in `bound` (of first, of then): what the dependences were seen to join.
    """
    together = _Together(stores, bound)
    cost = together.cost(first, then, shared)
    low = 0
    most = 1 << max(0, 62 - 2 * together.bits)
    while low < len(first):
        high = low + max(1, int(np.searchsorted(np.cumsum(cost[low : low + most]), _CHUNK)))
        yield from together.pairs(first[low:high], then[low:high], shared[low:high])
        low = high


class _Together:
    def __init__(self, stores: Stores, bound: Joined) -> None:
        self._stores, self._bound = stores, bound
        rows = len(stores.event)
        self._rows = rows
        self.bits = max(1, rows.bit_length())
        self._fields = stores.fields
        inner = np.flatnonzero(stores.inner)
        self._by_field = self._lists(stores.field[inner], stores.update[inner], self._fields)
        self._windows = self._made_windows(inner)
        self._apart = _ByInstance(stores, inner, self._fields, self.bits)
        self._shared = _ByInstance(stores, np.arange(len(stores.field)), self._fields, self.bits)
        self._endless = _Windows(
            np.full(rows, rows, dtype=np.int64), np.zeros(rows, dtype=np.int64), self._lists(inner[:0], inner[:0], 0)
        )

    def _lists(self, group: Ints, row: Ints, groups: int) -> _Lists:
        return _Lists(group, row, groups, self.bits)

    def _made_windows(self, inner: Ints) -> _Windows:
        stores = self._stores
        known = np.flatnonzero(stores.event >= 0)
        events = stores.event[known]  # ascending, as rows are in the order of events
        rows = np.append(known, self._rows)
        ends = np.append(stores.begins, 1 << 61)[stores.operation]
        reach = rows[np.searchsorted(events, np.maximum(ends, stores.durable))]
        begins = np.append(-1, stores.begins)[stores.operation]
        since = rows[np.searchsorted(events, begins)]
        lasts = inner[(stores.durable > ends)[stores.update[inner]]]
        lasting = self._lists(stores.field[lasts], stores.update[lasts], self._fields)
        return _Windows(reach, since, lasting)

    def cost(self, first: Ints, then: Ints, shared: Bools) -> Ints:
        """About how many updates each two fields have that are looked at."""
        of_field = np.where(shared, self._shared.many_of[first], self._by_field.many[first])
        out: Ints = of_field + np.where(shared, self._shared.many_of[then], self._by_field.many[then])
        return out

    def pairs(self, first: Ints, then: Ints, shared: Bools) -> Iterator[Pairs]:
        """Those of some relations."""
        stores, bits, mask = self._stores, self.bits, (1 << self.bits) - 1
        apart = np.flatnonzero(~shared)
        parts = [
            *_near(stores, self._by_field, self._windows, apart, first[apart], then[apart]),
            *_near(stores, self._shared.lists, self._endless, *self._shared.met(np.flatnonzero(shared), first, then)),
            self._joined(apart, first, then),
        ]
        key = np.concatenate([of << 2 * bits | w << bits | f for of, f, w in parts])
        key.sort()
        key = key[np.concatenate([[True], key[1:] != key[:-1]])] if len(key) else key
        of, one, other = key >> 2 * bits, key & mask, key >> bits & mask
        fits = ~stores.overlap(one, other)  # nor does an update belong with itself
        of, one, other = of[fits], one[fits], other[fits]
        bad = stores.may_lack(one, other)
        good = np.flatnonzero(~bad & (one < other))
        good = good[shared[of[good]] | (stores.operation[one[good]] == stores.operation[other[good]])]
        # rows are sorted by relation and `then`
        kept = of[good] << bits | other[good]
        kept = kept[np.concatenate([[True], kept[1:] != kept[:-1]])] if len(kept) else kept
        held = np.bincount(kept >> bits, minlength=len(first))
        for each, (fs, ws, many) in enumerate(_few(stores, of[bad], one[bad], other[bad], len(first))):
            yield Pairs(fs, ws, int(held[each]), many)

    def _joined(self, apart: Ints, first: Ints, then: Ints) -> tuple[Ints, Ints, Ints]:
        """(relation, first, then): the latest update of a joined instance before each of the instance it is joined
        to."""
        none = np.zeros(0, dtype=np.int64)
        bounds = [(int(of), *self._bound.get((int(first[of]), int(then[of])), (none, none))) for of in apart]
        of = np.repeat(apart, [len(instances) for _, instances, _ in bounds]) if bounds else none
        of_first = np.concatenate([none, *(instances for _, instances, _ in bounds)])
        of_then = np.concatenate([none, *(instances for _, _, instances in bounds)])
        has, ws = self._apart.find(then[of], of_then)
        of, of_first, ws = of[has], of_first[has], ws[has]
        lists = self._apart.lists
        total = np.bincount(of, weights=lists.many[ws], minlength=len(first))
        has, fs = self._apart.find(first[of], of_first)
        has &= total[of] <= _BLOCK
        of, fs, ws = of[has], fs[has], ws[has]
        many = lists.many[ws]
        of, fs, w = np.repeat(of, many), np.repeat(fs, many), lists.row[ranges(lists.start[ws], many)]
        at = lists.before(fs, w)
        f = lists.row[at]
        near = (at >= 0) & (w < self._windows.reach[f])
        return of[near], f[near], w[near]


class _ByInstance:
    """Updates by field and instance."""

    def __init__(self, stores: Stores, members: Ints, fields: int, bits: int) -> None:
        field, self._instance = stores.field[members], stores.instance[members]
        self._wide = int(stores.instance.max(initial=0)) + 1
        group, heads = numbered(field * self._wide + self._instance)
        self._known = (field * self._wide + self._instance)[heads]
        self.lists = _Lists(group, stores.update[members], len(heads), bits)
        self.many_of = np.bincount(field, minlength=fields)
        self._begins = np.searchsorted(self._known, np.arange(fields + 1) * self._wide)

    def find(self, field: Ints, instance: Ints) -> tuple[Bools, Ints]:
        """(whether there is, the group of) updates of a field in an instance; 0 where there is none."""
        wanted = field * self._wide + instance
        at = np.searchsorted(self._known, wanted)
        has = at < len(self._known)
        has[has] = self._known[at[has]] == wanted[has]
        return has & (instance < self._wide), np.where(has, at, 0)

    def met(self, of: Ints, first: Ints, then: Ints) -> tuple[Ints, Ints, Ints]:
        """(relation, group of its first field, group of the other) for each instance in which both were updated."""
        begin = self._begins[first[of]]
        many = self._begins[first[of] + 1] - begin
        fs = ranges(begin, many)
        of = np.repeat(of, many)
        has, ws = self.find(then[of], self._known[fs] % self._wide)
        return of[has], fs[has], ws[has]


def _near(
    stores: Stores, lists: _Lists, windows: _Windows, of: Ints, fs: Ints, ws: Ints
) -> Iterator[tuple[Ints, Ints, Ints]]:
    """(relation, first, then) of the groups `fs` and `ws`: for each pair the shorter list is gone through.

    A `first` after `then` counts while `then` is pending.
    """
    event, durable, since, reach = stores.event, stores.durable, windows.since, windows.reach
    short = lists.many[ws] <= lists.many[fs]
    for go_through, by_then in ((short, True), (~short, False)):
        go_through &= (lists.many[fs] > 0) & (lists.many[ws] > 0)
        own, other = (ws, fs) if by_then else (fs, ws)
        many = lists.many[own[go_through]]
        at = np.repeat(np.flatnonzero(go_through), many)
        if not len(at):
            continue
        own, other, relation = own[at], other[at], of[at]
        place = ranges(lists.start[own[np.cumsum(many) - many]], many)
        row = lists.row[place]
        before, after = lists.neighbours(own, place, len(event))
        if by_then:
            found = lists.before(other, row)  # the latest `first`
            f = lists.row[found]
            fits = (found >= 0) & (row < reach[f])
            yield relation[fits], f[fits], row[fits]
            found = lists.after(other, row)  # the next `first`, while this is pending
            f = lists.row[found]
            fits = (found >= 0) & (durable[row] > event[f])
            yield relation[fits], f[fits], row[fits]
            # those for which this is the next `then`: of its operation, and of earlier ones what outlasted them
            each, f = lists.between(other, np.maximum(before, since[row]), row)
            yield relation[each], f, row[each]
            each, f = windows.lasting.between(other, before, since[row]) if len(windows.lasting.row) else (at[:0],) * 2
            fits = durable[f] > event[row[each]]
            yield relation[each[fits]], f[fits], row[each[fits]]
        else:
            found = lists.after(other, row)  # the next `then`
            w = lists.row[found]
            fits = (found >= 0) & (w < reach[row])
            yield relation[fits], row[fits], w[fits]
            # those for which this is the latest `first`
            each, w = lists.between(other, row + 1, np.minimum(after + 1, reach[row]))
            yield relation[each], row[each], w
            # those that are pending, and for which this is the next `first`
            each, w = lists.between(other, np.maximum(before, since[row]), row)
            fits = durable[w] > event[row[each]]
            yield relation[each[fits]], row[each[fits]], w[fits]
            each, w = windows.lasting.between(other, before, since[row]) if len(windows.lasting.row) else (at[:0],) * 2
            fits = durable[w] > event[row[each]]
            yield relation[each[fits]], row[each[fits]], w[fits]


def parted_pairs(stores: Stores, of: Ints, one: Ints, other: Ints, relations: int) -> Iterator[Pairs]:
    """For each relation the pairs of `one` and `other`, sorted by relation, of which either may persist without its
    other: both ways round. `held` counts those that persist together."""
    low = 0
    bounds = np.searchsorted(of, np.arange(relations + 1))
    while low < relations:
        high = max(low + 1, int(np.searchsorted(bounds, bounds[low] + _CHUNK, side="right")) - 1)
        rows = slice(int(bounds[low]), int(bounds[high]))
        relation = of[rows] - low
        first, then = np.concatenate([one[rows], other[rows]]), np.concatenate([other[rows], one[rows]])
        bad = stores.may_lack(first, then)
        broken = np.logical_or(*np.split(bad, 2))
        total = np.bincount(relation, minlength=high - low)
        violated = np.bincount(relation[broken], minlength=high - low)
        relation, first, then = taken(np.flatnonzero(bad), np.concatenate([relation, relation]), first, then)
        order, _ = sorting(relation, then, first)
        relation, first, then = taken(order, relation, first, then)
        for each, (fs, ws, _) in enumerate(_few(stores, relation, first, then, high - low)):
            yield Pairs(fs, ws, int(total[each] - violated[each]), int(violated[each]))
        low = high


def _few(stores: Stores, of: Ints, first: Ints, then: Ints, relations: int) -> Iterator[tuple[Ints, Ints, int]]:
    """(first, then, how many there were) for each relation: of its pairs with equal static sites the earliest _MOST.

    The pairs are sorted by relation and by time, that of `then` before that of `first`.
    """
    place = occurrence(of, stores.label[first], stores.label[then])
    many = np.bincount(of, minlength=relations)
    of, first, then = taken(np.flatnonzero(place < _MOST), of, first, then)
    bounds = np.searchsorted(of, np.arange(relations + 1)).tolist()
    for (low, high), total in zip(pairwise(bounds), many.tolist(), strict=True):
        yield first[low:high], then[low:high], total


__all__ = ["Pairs", "ordered_pairs", "parted_pairs"]
