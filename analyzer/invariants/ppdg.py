"""The persistence program dependence graph: which access depended on which earlier read (Witcher 4.3.2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import Bools, mix_hash, sort_rows, unique
from crashcheck.analyzer.behaviours.updates import AccessColumns
from crashcheck.analyzer.compile.dependence.interprocedural import Dependences, SiteRef
from crashcheck.analyzer.invariants.numbers import FOLLOWED
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.accesses import Events
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.interruption import KeepOn, always

_TABLE = 1 << 24  # numbers up to which a table of them is faster than sorting

CONTROL, ADDRESS, VALUE = 1, 2, 4
_KINDS, _PLACE = 3, 30  # bits of these, and of a row of Accesses


@dataclass(frozen=True, slots=True, eq=False)
class Accesses:
    """Loads and stores in the order in which they happened; a row's number is its time.

    `columns` are those of updates; its `event` is an index into `trace.events` for stores, into `trace.loads` else.
    Of a whole run they are as narrow as in the trace: widen before computing with them (`chosen` does).
    """

    columns: AccessColumns
    load: Bools
    thread: Ints
    stretch: NDArray[Any]  # of its thread: no load of a stretch was left out of the trace; -1 where they were

    def __len__(self) -> int:
        return len(self.load)

    def chosen(self, rows: Ints) -> Accesses:
        """Some rows, ascending, as accesses of their own."""
        columns = self.columns
        names = ("event", "site", "stack", "file", "offset", "size", "delta")
        return Accesses(
            AccessColumns(*(getattr(columns, name)[rows].astype(np.int64) for name in names)),
            self.load[rows],
            self.thread[rows],
            self.stretch[rows],
        )


def collect_accesses(trace: Trace, stores: Ints) -> Accesses:
    """All loads of a trace, and the stores at the event indices `stores`."""
    loads, updates = trace.loads, trace.events[stores]

    def column(name: str) -> Any:
        return np.concatenate([loads[name], updates[name]])

    # a load has the number of the event after it, and of one thread they come in order
    order, _ = sort_rows(column("seq"))
    names = ("site", "stack", "file", "offset", "size", "instance_delta")
    named = {name: column(name)[order] for name in names}
    index = np.concatenate([np.arange(len(loads)), stores])[order]
    return Accesses(
        AccessColumns(index, *(named[name] for name in names)),
        order < len(loads),
        column("thread")[order],
        np.concatenate([_stretches(trace.gaps, loads, True), _stretches(trace.gaps, updates, False)])[order],
    )


def _stretches(gaps: Events, rows: Events, loads: bool) -> NDArray[Any]:
    """The number of the stretch of its thread, between two gaps, of each access in one array of a trace."""
    out = np.zeros(len(rows), dtype=np.int32)
    for thread in np.unique(gaps["thread"]).tolist():
        mine = np.flatnonzero(rows["thread"] == thread)
        theirs = gaps[gaps["thread"] == thread]
        place, at = (theirs["offset"], mine) if loads else (theirs["seq"], rows["seq"][mine])
        before = np.searchsorted(place.astype(np.int64), at.astype(np.int64), side="right")
        begun = np.concatenate([[0], np.cumsum(theirs["aux"] == 0)])
        out[mine] = np.where(before > 0, np.where(theirs["aux"][np.maximum(before - 1, 0)] == 1, -1, begun[before]), 0)
    return out


class Frames:
    """The tree of calls: a call stack is a node, below the stack that it extends. Equal stacks are one node."""

    def __init__(self, trace: Trace, stacks: Ints) -> None:
        known: dict[tuple[int, ...], int] = {(): 0}
        self.parent = [0]
        self.of: dict[int, int] = {}
        for stack in unique(stacks).tolist():
            chain = trace.stack(stack)[::-1]
            for depth in range(1, len(chain) + 1):
                if chain[:depth] not in known:
                    known[chain[:depth]] = len(self.parent)
                    self.parent.append(known[chain[: depth - 1]])
            self.of[stack] = known[chain]
        # numbered in depth-first order, so that what is below a node is a range
        children: list[list[int]] = [[] for _ in self.parent]
        for node, parent in enumerate(self.parent[1:], 1):
            children[parent].append(node)
        self.first = [0] * len(self.parent)
        self.last = [0] * len(self.parent)
        clock, work = 0, [(0, False)]
        while work:
            node, done = work.pop()
            if done:
                self.last[node] = clock
                continue
            self.first[node] = clock
            clock += 1
            work.append((node, True))
            work += [(child, False) for child in reversed(children[node])]

    def below(self, node: int, frame: int) -> bool:
        """Whether the stack `node` is the stack `frame` or extends it."""
        return self.first[frame] <= self.first[node] < self.last[frame]

    def nearest(self, own: int, others: Sequence[int], inherited: bool) -> tuple[int, ...]:
        """Those of `others` that share the innermost frame with `own`; if `inherited`, of its callers only."""
        taken = others
        if inherited:
            if not own:
                return ()
            taken = [node for node in others if not self.below(node, own)]
            own = self.parent[own]
        first, last = self.first, self.last
        while taken:
            low, high = first[own], last[own]
            found = tuple([node for node in taken if low <= first[node] < high])
            if found or not own:
                return found
            own = self.parent[own]
        return ()


@dataclass(frozen=True, slots=True, eq=False)
class Edges:
    """Dependences of single accesses, as parallel arrays of rows of `Accesses`, sorted and each once.

    `access` depended on what the load `on` read; `how` is a sum of CONTROL (a path with a control edge), ADDRESS and
    VALUE (one with data edges only, into the address or the value of `access`).
    """

    access: Ints
    on: Ints
    how: Ints

    def __len__(self) -> int:
        return len(self.access)


class Binder:
    """Finds the reads that gave an access what it depends on.

    An access at site S that depends statically on a load at site L depends on the latest execution of L before it in
    its thread, of those whose call stack shares with its own the innermost frame under which L was executed at all:
    its own function and what that calls, else its caller and what that calls, and so on. Where loads were left out of
    the trace, that execution may be missing: nothing is joined across such a gap.
    """

    def __init__(self, trace: Trace, rows: Accesses, dependences: Dependences) -> None:
        self.rows = rows
        self._dependences = dependences
        self._bases: dict[int, list[int]] = {}
        for unit in trace.units:
            self._bases.setdefault(unit.key, []).append(unit.base)
        self._units = sorted((unit.base, unit.base + unit.sites, unit.key) for unit in trace.units)
        self._frames = Frames(trace, rows.columns.stack)
        stacks = unique(rows.columns.stack)
        node_of = np.array([self._frames.of[stack] for stack in stacks.tolist()], dtype=np.int32)
        self._node = node_of[np.searchsorted(stacks, rows.columns.stack)]
        threads = unique(rows.thread)
        self._thread = np.searchsorted(threads, rows.thread).astype(np.int32)
        self._loads = _grouped(rows.columns.site, self._node, rows.load)
        self._stacks_of: dict[int, list[int]] = {}
        for site, node in self._loads:
            self._stacks_of.setdefault(site, []).append(node)
        self._keys: dict[tuple[int, tuple[int, ...]], Ints] = {}

    def ref(self, site: int) -> SiteRef | None:
        """What the program calls a site of the trace."""
        for base, end, key in self._units:
            if base <= site < end and site:
                return SiteRef(key, site - base)
        return None

    def statically(self, site: int) -> Iterator[tuple[int, int, bool]]:
        """(site of a load that ran, how, inherited) for each static dependence of a site of the trace."""
        ref = self.ref(site)
        for dependence in self._dependences.of(ref) if ref is not None else ():
            how = CONTROL * dependence.control | ADDRESS * dependence.address | VALUE * dependence.value
            for base in self._bases.get(dependence.on.unit, ()):
                if base + dependence.on.index in self._stacks_of:
                    yield base + dependence.on.index, how, dependence.inherited

    def bind(self, asked: Ints) -> Iterator[tuple[Ints, Ints, Ints]]:
        """(accesses, the reads that they depend on, how) for rows `asked`; of one site and stack at most FOLLOWED.

        Not in order: those that may depend on the same reads are looked for at once.
        """
        by_reads: dict[tuple[int, tuple[int, ...]], list[tuple[Ints, int]]] = {}
        for some, reads, how in self._bindings(asked):
            by_reads.setdefault(reads, []).append((some, how))
        for reads, parts in by_reads.items():
            some = np.concatenate([rows for rows, _ in parts])
            hows = np.repeat([how for _, how in parts], [len(rows) for rows, _ in parts])
            which, found = self._latest(some, self._executions(*reads))
            yield some[which], found, hows[which]

    def _bindings(self, asked: Ints) -> Iterator[tuple[Ints, tuple[int, tuple[int, ...]], int]]:
        """(accesses of one site and stack, the load that they depend on and its stacks, how)."""
        site, node = self.rows.columns.site[asked], self._node[asked]
        known: dict[tuple[int, int, bool], tuple[int, ...]] = {}
        static: dict[int, list[tuple[int, int, bool]]] = {}
        for (number, own), mine in _grouped(site, node, np.ones(len(asked), dtype=np.bool_)).items():
            some = asked[mine if len(mine) <= FOLLOWED else mine[np.arange(FOLLOWED) * len(mine) // FOLLOWED]]
            if number not in static:
                static[number] = list(self.statically(number))
            for on, how, inherited in static[number]:
                if (own, on, inherited) not in known:
                    known[own, on, inherited] = self._frames.nearest(own, self._stacks_of[on], inherited)
                frames = known[own, on, inherited]
                if frames:
                    yield some, (on, frames), how

    def _latest(self, some: Ints, keys: Ints) -> tuple[Ints, Ints]:
        """(place in `some`, read): of some executions the latest before each access, in its thread and stretch."""
        time = self._time(some)
        at = np.searchsorted(keys, time) - 1
        read = keys[np.maximum(at, 0)] - (time - some)  # below 0 if it is of another thread
        which = np.flatnonzero((at >= 0) & (read >= 0))
        read = read[which]
        stretch = self.rows.stretch[some[which]]
        fits = (stretch >= 0) & (self.rows.stretch[read] == stretch)
        return which[fits], read[fits]

    def _time(self, rows: Ints) -> Ints:
        """Sorts rows by thread, then by time."""
        out: Ints = self._thread[rows].astype(np.int64) * len(self.rows) + rows
        return out

    def _executions(self, site: int, frames: tuple[int, ...]) -> Ints:
        if (site, frames) not in self._keys:
            rows = np.concatenate([self._loads[site, node] for node in frames])
            self._keys[site, frames] = np.sort(self._time(rows))
        return self._keys[site, frames]


def _grouped(site: NDArray[Any], node: NDArray[Any], mask: Bools) -> dict[tuple[int, int], Ints]:
    """Places where `mask` holds by (site, node), in order of first appearance; each group ascending."""
    which = np.flatnonzero(mask)
    if not len(which):
        return {}
    pairs, number = _numbers(site[which], node[which])
    order = np.argsort(number, kind="stable")
    groups = np.split(which[order], np.cumsum(np.bincount(number, minlength=pairs))[:-1])
    groups.sort(key=lambda group: int(group[0]))
    return {(int(site[group[0]]), int(node[group[0]])): group for group in groups}


def _numbers(one: NDArray[Any], other: NDArray[Any]) -> tuple[int, NDArray[Any]]:
    """(how many, a number below it of each row): equal for equal pairs of small numbers, as narrow as it can be."""
    width = int(other.max()) + 1
    key = one.astype(np.int64) * width + other
    top = int(key.max()) + 1
    if top <= _TABLE:
        known = np.zeros(top, dtype=np.bool_)
        known[key] = True
        table = np.cumsum(known) - 1
        many = int(known.sum())
        return many, table.astype(_narrow(many))[key]
    distinct_ = unique(key)
    return len(distinct_), np.searchsorted(distinct_, key).astype(_narrow(len(distinct_)))


def _narrow(many: int) -> type:
    return np.uint16 if many < 1 << 16 else np.int64  # numpy sorts 16 bits by counting


def find_edges(binder: Binder, keep_on: KeepOn = always) -> Edges:
    """All edges between accesses; not through other memory, which is not recorded."""
    found: list[Ints] = []
    for access, on, how in binder.bind(np.flatnonzero(binder.rows.columns.site > 0)):
        keep_on()
        # packed: one number each, which sorts them by access and by `on`
        found.append(access << _PLACE + _KINDS | on << _KINDS | how)
    return _merged(found)


def keep_informative(rows: Accesses, joined: Edges) -> tuple[Accesses, Edges]:
    """Without the loads that are in no edge, except the first and the last of those that are equal.

    These show which object is where (variables.py); the rest, by far the most of a run, show nothing more.
    """
    keep = ~rows.load
    keep[joined.access] = keep[joined.on] = True
    rest = np.flatnonzero(~keep)
    columns = rows.columns
    mixed = np.zeros(len(rest), dtype=np.uint64)
    for column in (columns.site, columns.file, columns.offset, columns.size, columns.delta):
        mixed = mix_hash(mixed ^ column[rest].astype(np.uint64))
    order, fresh = sort_rows(mixed)
    keep[rest[order[fresh | np.append(fresh[1:], True)]]] = True
    chosen = np.flatnonzero(keep)
    number = np.cumsum(keep) - 1
    return rows.chosen(chosen), Edges(number[joined.access], number[joined.on], joined.how)


def _merged(parts: list[Ints]) -> Edges:
    """Of packed edges each one once, with all its kinds of path; none of an access to itself. Empties `parts`."""
    packed = np.concatenate([np.zeros(0, dtype=np.int64), *parts])  # millions: what is not copied is time saved
    parts.clear()
    packed.sort()
    how = packed & (1 << _KINDS) - 1
    packed >>= _KINDS
    later = packed[1:] != packed[:-1]
    if not later.all():
        heads = np.flatnonzero(np.append(True, later))
        packed, how = packed[heads], np.bitwise_or.reduceat(how, heads)
    on = packed & (1 << _PLACE) - 1
    packed >>= _PLACE
    keep = np.flatnonzero(packed != on)
    return Edges(packed, on, how) if len(keep) == len(on) else Edges(packed[keep], on[keep], how[keep])
