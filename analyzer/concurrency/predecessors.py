"""Anticipating sets across persistence: which sites persist just before an update, and which behaviours deviate."""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import number_rows, ranges
from crashcheck.analyzer.behaviours import Behaviour, Behaviours
from crashcheck.analyzer.persistence.pieces import Ints

_NAMED = 4  # so many predecessors a sentence names


@dataclass(frozen=True, eq=False)
class Predecessors:
    """The predecessor set of every node of every behaviour, stored once for behaviours that are equal node by node.

    Behaviour i has pattern `pattern[i]`. The nodes of pattern p are rows start[p] to start[p + 1] - 1: the k-th is the
    k-th node of each behaviour of the pattern, at static site `label`, and sets[chosen] is before it. `again` is true
    of a node of the same update as the node before it.
    """

    pattern: Ints
    start: Ints
    label: Ints
    again: NDArray[np.bool_]
    chosen: Ints
    sets: Sequence[frozenset[int]]  # static sites; the empty set is nil

    def of(self, behaviour: int) -> tuple[frozenset[int], ...]:
        """Of each node of a behaviour, in its order, the static sites of its immediate predecessors."""
        pattern = int(self.pattern[behaviour])
        rows = self.chosen[int(self.start[pattern]) : int(self.start[pattern + 1])]
        return tuple(self.sets[number] for number in rows.tolist())


@dataclass(frozen=True, eq=False)
class Deviance:
    """How unlike the others each behaviour is in what persists just before its updates.

    An *entry* is an update of a behaviour with a predecessor set. Entries of one type and static site are compared: if
    c of them have the set of this one, and m the usual (most frequent) set, its surprise is ln(m / c). `value` of a
    behaviour is the largest surprise among its entries divided by ln(M), M being the largest m of the run. So
    values are in [0, 1]: 0 is "as usual", 1 "seen once, where most is known". A set seen once beside a usual one seen
    twice weighs less than one beside a usual one seen two hundred times.
    """

    found: Behaviours
    predecessors: Predecessors
    value: NDArray[np.float64]  # of each behaviour
    _row: Ints  # of each pattern, its row with the largest surprise (the first of equals)
    _type: Ints  # of each pattern
    _seen: tuple[Ints, Ints, Ints, Ints]  # type, site, set, how many entries; sorted by the first three

    def because(self, behaviour: Behaviour | int) -> str:
        """Why a behaviour deviates, in words; empty if it does not (value 0)."""
        number = behaviour if isinstance(behaviour, int) else behaviour.id
        if not self.value[number] > 0:
            return ""
        pattern = int(self.predecessors.pattern[number])
        row = int(self._row[pattern])
        label, own = int(self.predecessors.label[row]), int(self.predecessors.chosen[row])
        usual, often, total = self._usual(int(self._type[pattern]), label)
        here, there = self.predecessors.sets[own], self.predecessors.sets[usual]
        name = self._names(here | there | {label})
        if here:
            clause = f"{_several(here, name)} {_precede(here)} {name(label, True)} here"
        else:
            clause = f"{name(label, True)} has no predecessor here"
        rest = f"{_several(there, name)} {_precede(there)} it" if there else "it has none"
        return f"{clause}; in {often} of {total} updates {rest}"

    def _usual(self, type_: int, label: int) -> tuple[int, int, int]:
        """The most frequent set of a type and site, how many entries have it, and how many there are."""
        types, labels, sets, many = self._seen
        low, high = np.searchsorted(types, [type_, type_ + 1])
        low, high = low + np.searchsorted(labels[low:high], [label, label + 1])
        at = low + int(np.argmax(many[low:high]))
        return int(sets[at]), int(many[at]), int(many[low:high].sum())

    def _names(self, labels: Iterable[int]) -> Callable[..., str]:
        """The name of each of `labels` in a sentence that has them all."""
        sites = self.found.sites.sites

        def short(label: int) -> str:
            site = sites[label]
            return site.variable or site.function or f"site {site.site}"

        def place(label: int) -> str:
            return f"{os.path.basename(sites[label].file)}:{sites[label].line}" if sites[label].file else ""

        shorts = Counter(short(label) for label in labels)
        longs = Counter((short(label), place(label)) for label in labels)

        def name(label: int, full: bool = False) -> str:
            text, where = short(label), place(label)
            if where and (full or shorts[text] > 1):
                more = where if longs[text, where] == 1 else f"{where}, site {label}"
                return f"`{text}` ({more})"
            return f"`{text}`"

        return name


def measure_deviance(found: Behaviours) -> Deviance:
    """Compares the predecessor sets of all behaviours of a run. Near-linear in the trace."""
    before, types = _predecessors(found)
    if not len(found):
        none = np.zeros(0, dtype=np.int64)
        return Deviance(found, before, np.zeros(0), none, none, (none, none, none, none))
    patterns = len(types)
    owner = np.repeat(np.arange(patterns), np.diff(before.start))
    update = np.cumsum(~before.again).astype(np.int64)
    many = np.bincount(before.pattern, minlength=patterns)
    _, entry = number_rows(update, before.label, before.chosen)
    columns = types[owner[entry]], before.label[entry], before.chosen[entry]
    of_set, heads = number_rows(*columns)
    often = np.bincount(of_set, weights=many[owner[entry]]).astype(np.int64)
    of_site, sites = number_rows(columns[0], columns[1])
    usual = np.zeros(len(sites), dtype=np.int64)
    np.maximum.at(usual, of_site, often[of_set])
    surprise = np.log(usual[of_site] / often[of_set])
    most = int(usual.max())
    # the first of each pattern's largest: rows in order of pattern, surprise, place
    order = np.lexsort((entry, -surprise, owner[entry]))
    first = np.searchsorted(owner[entry][order], np.arange(patterns))
    value = surprise[order[first]] / np.log(most) if most > 1 else np.zeros(patterns)
    seen = columns[0][heads], columns[1][heads], columns[2][heads], often
    return Deviance(found, before, np.clip(value, 0.0, 1.0)[before.pattern], entry[order[first]], types, seen)


def _predecessors(found: Behaviours) -> tuple[Predecessors, Ints]:
    """All predecessor sets, and the type of each pattern.

    Behaviours have one pattern if they agree, node by node, on the static site, on how many nodes of the behaviour were
    issued before it had persisted, on the first node of its granule, and on the update's boundaries: the persist order
    follows from these (`Nodes`). Equal hashes of 128 bits are taken for equal.
    """
    start, node = found.start[:-1], found.row_node
    if not len(start):
        none = np.zeros(0, dtype=np.int64)
        return Predecessors(none, np.zeros(1, dtype=np.int64), none, none.astype(np.bool_), none, ()), none
    sizes = np.diff(found.start)
    order, type_ = found.order, found.instances.type[found.instance]
    columns = order.place, order.reach, order.chain, order.same_update
    hashes = found.hashes(type_[order.owner], found.label[node], *columns)
    pattern, first = number_rows(*hashes)
    # numbered by their first behaviour: the order of hashes means nothing
    by_first = np.argsort(first)
    rank = np.empty(len(by_first), dtype=np.int64)
    rank[by_first] = np.arange(len(by_first))
    first = first[by_first]
    rows = ranges(start[first], sizes[first])
    begins = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(sizes[first])])
    label = found.label[node[rows]]
    sets: dict[frozenset[int], int] = {}
    chosen: list[int] = []
    labels, reaches, chains = label.tolist(), order.reach[rows].tolist(), order.chain[rows].tolist()
    for low, high in zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True):
        for one in immediate_predecessors(labels[low:high], reaches[low:high], chains[low:high]):
            chosen.append(sets.setdefault(one, len(sets)))
    numbers = np.array(chosen, dtype=np.int64)
    same_update = order.same_update[rows]
    return Predecessors(rank[pattern], begins, label, same_update, numbers, tuple(sets)), type_[first]


def immediate_predecessors(label: Sequence[int], reach: Sequence[int], chain: Sequence[int]) -> list[frozenset[int]]:
    """The labels of each node's predecessors in the transitive reduction of a persist order.

    Nodes are places 0, 1, … in the order issued. u precedes v if reach[u] <= v (it has persisted by then), or if
    chain[u] == chain[v] and u < v (they share a granule); along a chain reach never falls.

    Of v's predecessors let w be the latest. One that had persisted before w is no immediate predecessor, nor is
    one with a later predecessor of v in its chain; all others are. The persisted ones that may count for a later node
    are kept in the order of reach: a persisted w ends those before it for good; one that is only v's predecessor in
    its granule ends them for v alone.
    """
    many = len(label)
    if many == 1:
        return [frozenset()]
    live = _Live(label, reach, chain)
    last: dict[int, int] = {}  # the latest of each chain
    coming = sorted(range(many), key=lambda u: (reach[u], u))
    at = 0
    out = []
    for v in range(many):
        if at < many and reach[coming[at]] <= v:
            stop = at
            while stop < many and reach[coming[stop]] <= v:
                stop += 1
            live.add(coming[at:stop])
            at = stop
        before = last.get(chain[v], -1)
        out.append(live.before(chain[v], before))
        last[chain[v]] = v
    return out


class _Live:
    """The persisted nodes that no persisted node follows, in the order in which they persisted."""

    def __init__(self, label: Sequence[int], reach: Sequence[int], chain: Sequence[int]) -> None:
        self._label, self._reach, self._chain = label, reach, chain
        self._newest = -1  # the latest node that has persisted
        self._nodes: list[int] = []  # in the order of reach; those before _left, and others of one chain, are gone
        self._reaches: list[int] = []
        self._left = 0
        self._of_chain: dict[int, int] = {}  # of each chain the one that counts
        self._all: Counter[int] = Counter()  # of labels
        self._counts: dict[int, Counter[int]] = {}  # the same, from a place in _nodes on
        self._known: dict[tuple[int, int, int], frozenset[int]] = {}

    def add(self, nodes: Sequence[int]) -> None:
        """Nodes that have persisted, in the order of reach."""
        self._newest = max(self._newest, *nodes)
        while self._left < len(self._nodes) and self._reaches[self._left] <= self._newest:
            self._end(self._nodes[self._left])
            self._left += 1
        for u in nodes:
            if self._reach[u] <= self._newest:
                continue
            self._end(self._of_chain.get(self._chain[u], -1))
            self._nodes.append(u)
            self._reaches.append(self._reach[u])
            self._of_chain[self._chain[u]] = u
            self._all[self._label[u]] += 1
        self._counts.clear()
        self._known.clear()

    def _end(self, u: int) -> None:
        if u < 0 or self._of_chain.get(self._chain[u]) != u:
            return
        del self._of_chain[self._chain[u]]
        self._all[self._label[u]] -= 1
        if not self._all[self._label[u]]:
            del self._all[self._label[u]]

    def _from(self, start: int) -> Counter[int]:
        if start <= self._left:
            return self._all
        if start not in self._counts:
            nodes = self._nodes[start:]
            self._counts[start] = Counter(self._label[u] for u in nodes if self._of_chain[self._chain[u]] == u)
        return self._counts[start]

    def before(self, chain: int, last: int) -> frozenset[int]:
        """The labels before a node of a chain whose latest node is `last` (-1: there is none)."""
        start = self._left
        if last > self._newest:
            start = bisect_right(self._reaches, last, lo=start)
        counts = self._from(start)
        add = drop = -1
        if last >= 0 and self._reach[last] > max(self._newest, last):
            add = self._label[last]
        own = self._of_chain.get(chain, -1)
        if own not in (-1, last) and (start == self._left or self._reach[own] > last) and counts[self._label[own]] == 1:
            drop = self._label[own]
        key = start, drop, add
        if key not in self._known:
            self._known[key] = frozenset(counts.keys() - {drop} | {add} - {-1})
        return self._known[key]


def _several(labels: frozenset[int], name: Callable[..., str]) -> str:
    names = sorted(name(label) for label in labels)
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    *others, final = names
    return f"{', '.join(others)} and {final}" if others else final


def _precede(labels: frozenset[int]) -> str:
    return "precedes" if len(labels) == 1 else "precede"
