"""Updates of two fields that belong together, and which of them a crash may leave in the wrong order (Witcher 4.4).

A run has thousands of pairs of fields, and most of them have many updates of the one and few of the other. All pairs
are gone through together, and of each the shorter list, so that a pair costs no more than its shorter list is long.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from crashcheck.analyzer.arrays import Bools, number_rows, ranges, sort_rows, take_rows, unique
from crashcheck.analyzer.invariants.numbers import SITE_PAIRS
from crashcheck.analyzer.invariants.queries import RunStores
from crashcheck.analyzer.invariants.rules import JoinedInstances
from crashcheck.analyzer.persistence.pieces import Ints

_BLOCK = 1 << 18  # updates of joined instances that are compared for two fields
_CHUNK = 1 << 18  # updates in one batch


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """Pairs of updates (rows of Accesses) of which a crash state may hold `then` and lack `first`, by the time of
    `then`, of equal static sites the earliest. `held` counts the updates of `then` for which the order was kept,
    `violated` all pairs that there were."""

    first: Ints
    then: Ints
    held: int
    violated: int


class _Lists:
    """Updates by group, each group's ascending: those of group g are row[start[g]] to row[start[g + 1] - 1]."""

    def __init__(self, group: Ints, row: Ints, groups: int, bits: int) -> None:
        self._bits = bits
        key = unique(group << bits | row)
        self._key = key
        self.row = key & (1 << bits) - 1
        self.start = np.searchsorted(key, np.arange(groups + 1) << bits)
        self.many = np.diff(self.start)

    def place(self, group: Ints, row: Ints) -> Ints:
        """Where each group's first update from a row on is; where the next group begins if there is none."""
        out: Ints = np.searchsorted(self._key, group << self._bits | row)
        return out

    def before(self, group: Ints, place: Ints) -> tuple[Ints, Ints]:
        """(which, row): of the groups that have an update before a place, the latest."""
        which = np.flatnonzero(place > self.start[group])
        return which, self.row[place[which] - 1]

    def after(self, group: Ints, place: Ints, row: Ints) -> tuple[Ints, Ints, Ints]:
        """(which, its place, row): of the groups that have an update after a row, whose place is known, the next."""
        if len(self.row):
            place = place + (self._key[np.minimum(place, len(self.row) - 1)] == (group << self._bits | row))
        which = np.flatnonzero(place < self.start[group + 1])
        return which, place[which], self.row[place[which]]

    def between(self, which: Ints, begin: Ints, end: Ints) -> tuple[Ints, Ints]:
        """(which, row): the updates from one place on and before another."""
        many = np.maximum(end - begin, 0)
        return np.repeat(which, many), self.row[ranges(begin, many)]

    def neighbours(self, group: Ints, place: Ints, none: int) -> tuple[Ints, Ints]:
        """The rows before and after the update at a place, in its group; 0 and `none` where there are none."""
        before = np.where(place > self.start[group], self.row[np.maximum(place - 1, 0)], 0)
        after = self.row[np.minimum(place + 1, len(self.row) - 1)]
        return before, np.where(place + 1 < self.start[group + 1], after, none)


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """How far from an update one must look, by row: no pair across them is evidence.

    `reach` is the first update after its operation and after it is durable, `since` the first of its operation, and
    `lasting` are those updates that are not durable when their operation ends.
    """

    reach: Ints
    since: Ints
    lasting: _Lists

    def outlasted(self, group: Ints, low: Ints, high: Ints) -> tuple[Ints, Ints]:
        """(place in `group`, row): the `lasting` updates of each group from row `low` on and before row `high`."""
        which = np.flatnonzero(low < high) if len(self.lasting.row) else group[:0]
        begin, end = (self.lasting.place(group[which], row[which]) for row in (low, high))
        return self.lasting.between(which, begin, end)


def ordered_pairs(stores: RunStores, first: Ints, then: Ints, shared: Bools, bound: JoinedInstances) -> Iterator[Pairs]:
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
    def __init__(self, stores: RunStores, bound: JoinedInstances) -> None:
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
        """About how many pairs of updates there are to examine for each two fields."""
        ones, others = (
            np.where(shared, self._shared.many_of[field], self._by_field.many[field]) for field in (first, then)
        )
        out: Ints = np.minimum(ones, others) + (np.maximum(ones, others) >> 2)
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
        # each (relation, then, first) once, as one number, sorted in this order
        key = unique(np.concatenate([relation << 2 * bits | w << bits | f for relation, f, w in parts]))
        parts.clear()
        first_update, then_update = key & mask, key >> bits & mask
        distinct = ~stores.overlap(first_update, then_update)  # an update does not belong with itself
        violable = stores.may_lack(first_update, then_update)
        held = np.flatnonzero(distinct & ~violable & (first_update < then_update))
        in_operation = stores.operation[first_update[held]] == stores.operation[then_update[held]]
        held = held[in_operation | shared[key[held] >> 2 * bits]]
        held_counts = np.bincount(unique(key[held] >> bits) >> bits, minlength=len(first))  # each `then` once
        violable &= distinct
        relation = key[violable] >> 2 * bits
        violable_counts = np.bincount(relation, minlength=len(first))
        relation, ones, others = _earliest(stores, relation, first_update[violable], then_update[violable])
        bounds = np.searchsorted(relation, np.arange(len(first) + 1)).tolist()
        for each, (low, high) in enumerate(pairwise(bounds)):
            yield Pairs(ones[low:high], others[low:high], int(held_counts[each]), int(violable_counts[each]))

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
        return _latest_before(lists, self._windows.reach, of, fs, ws)


class _ByInstance:
    """Updates by field and instance."""

    def __init__(self, stores: RunStores, members: Ints, fields: int, bits: int) -> None:
        field, self._instance = stores.field[members], stores.instance[members]
        self._wide = int(stores.instance.max(initial=0)) + 1
        group, heads = number_rows(field * self._wide + self._instance)
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
        instances = self._begins[first[of] + 1] - begin
        fs = ranges(begin, instances)
        of = np.repeat(of, instances)
        has, ws = self.find(then[of], self._known[fs] % self._wide)
        return of[has], fs[has], ws[has]


def _latest_before(lists: _Lists, reach: Ints, of: Ints, fs: Ints, ws: Ints) -> tuple[Ints, Ints, Ints]:
    """(relation, first, then): the latest of a group `fs` before each of the group `ws`, as far as it reaches."""
    short = lists.many[ws] <= lists.many[fs]
    relation, f, w = of[short], fs[short], ws[short]
    many = lists.many[w]
    relation, f, w = np.repeat(relation, many), np.repeat(f, many), lists.row[ranges(lists.start[w], many)]
    which, latest = lists.before(f, lists.place(f, w))
    near = w[which] < reach[latest]
    which = which[near]
    one = relation[which], latest[near], w[which]

    relation, f, w = of[~short], fs[~short], ws[~short]
    many = lists.many[f]
    place = ranges(lists.start[f], many)
    relation, f, w, row = np.repeat(relation, many), np.repeat(f, many), np.repeat(w, many), lists.row[place]
    _, after = lists.neighbours(f, place, len(reach))
    end = lists.place(w, np.minimum(after + 1, reach[row]))
    each, then = lists.between(np.arange(len(row)), lists.place(w, row + 1), end)
    other = relation[each], row[each], then
    return tuple(np.concatenate(column) for column in zip(one, other, strict=True))  # type: ignore[return-value]


def _near(
    stores: RunStores, lists: _Lists, windows: _Windows, of: Ints, fs: Ints, ws: Ints
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
        place = ranges(lists.start[own[go_through]], many)
        own, other, relation, row = own[at], other[at], of[at], lists.row[place]
        before, after = lists.neighbours(own, place, len(event))
        here = lists.place(other, row)
        low = np.maximum(before, since[row])

        # the others between the one before and this: of its operation, and of earlier ones what outlasted them
        which, found = lists.before(other, here)
        inside = found >= low[which]
        far, latest, which = which[~inside], found[~inside], which[inside]
        each, found = lists.between(which, lists.place(other[which], low[which]), here[which])
        old, outlasted = windows.outlasted(other, before, since[row])
        pending = durable[outlasted] > event[row[old]]
        old, outlasted = old[pending], outlasted[pending]
        if by_then:
            yield relation[each], found, row[each]
            yield relation[old], outlasted, row[old]
            reached = row[far] < reach[latest]  # the latest `first`
            yield relation[far[reached]], latest[reached], row[far[reached]]
            which, _, found = lists.after(other, here, row)  # the next `first`, while this is pending
            pending = durable[row[which]] > event[found]
            yield relation[which[pending]], found[pending], row[which[pending]]
        else:
            pending = durable[found] > event[row[each]]
            yield relation[each[pending]], row[each[pending]], found[pending]
            yield relation[old], row[old], outlasted
            # those for which this is the latest `first`, and the next `then` in any case
            which, begin, found = lists.after(other, here, row)
            bound = np.minimum(after[which] + 1, reach[row[which]])
            inside = found < bound
            far, nearest = which[~inside], found[~inside]
            which, begin, bound = which[inside], begin[inside], bound[inside]
            each, found = lists.between(which, begin, lists.place(other[which], bound))
            yield relation[each], row[each], found
            reached = nearest < reach[row[far]]
            yield relation[far[reached]], row[far[reached]], nearest[reached]


def parted_pairs(stores: RunStores, near: Iterable[tuple[Ints, Ints, Ints]]) -> Iterator[tuple[int, Pairs]]:
    """For each relation, ascending, the pairs of which either may persist without its other, both ways round.

    `near` is (relation, first, then), a part at a time, over all parts sorted by (then, first), each pair both ways
    round. `held` counts the pairs that persist together, one way round.
    """
    counts: list[tuple[Ints, ...]] = []
    kept: list[tuple[Ints, ...]] = []
    seen: dict[tuple[int, ...], int] = {}
    for relation, first, then in near:
        bad = stores.may_lack(first, then)
        early = np.flatnonzero(first < then)
        broken = bad[early] | stores.may_lack(then[early], first[early])
        order, fresh = sort_rows(relation[early])
        heads = np.flatnonzero(fresh)
        if len(heads):
            many = np.diff(heads, append=len(order))
            counts.append((relation[early[order[heads]]], many, np.add.reduceat(broken[order], heads, dtype=np.int64)))
        kept.append(_earliest(stores, relation[bad], first[bad], then[bad], seen))
    if not counts:
        return
    relation, total, violated = (np.concatenate(column) for column in zip(*counts, strict=True))
    number, heads = number_rows(relation)
    asked = relation[heads]
    total, violated = (np.bincount(number, weights=column).astype(np.int64) for column in (total, violated))
    relation, first, then = (np.concatenate(column) for column in zip(*kept, strict=True))
    order, _ = sort_rows(relation)
    relation, first, then = take_rows(order, relation, first, then)
    bounds = np.searchsorted(relation, np.append(asked, asked[-1] + 1)).tolist()
    for each, (low, high) in enumerate(pairwise(bounds)):
        held = int(total[each] - violated[each])
        yield int(asked[each]), Pairs(first[low:high], then[low:high], held, int(violated[each]))


def _earliest(
    stores: RunStores, relation: Ints, first: Ints, then: Ints, seen: dict[tuple[int, ...], int] | None = None
) -> tuple[Ints, Ints, Ints]:
    """Of the pairs of each relation with equal static sites, the first SITE_PAIRS. `seen`: how many there were."""
    columns = relation, stores.label[first], stores.label[then]
    order, fresh = sort_rows(*columns)
    heads = np.flatnonzero(fresh)
    many = np.diff(heads, append=len(order))
    if seen is not None:
        kinds = list(zip(*(column.tolist() for column in take_rows(order[heads], *columns)), strict=True))
        before = np.array([seen.get(kind, 0) for kind in kinds], dtype=np.int64)
        seen.update(zip(kinds, (before + many).tolist(), strict=True))
        many = np.minimum(many, np.maximum(SITE_PAIRS - before, 0))
    chosen = np.sort(order[ranges(heads, np.minimum(many, SITE_PAIRS))])
    return relation[chosen], first[chosen], then[chosen]
