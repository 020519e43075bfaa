"""Remote predecessors of a run: which site of another thread accessed a variable just before (AI §2.1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import number_rows, ranges
from crashcheck.analyzer.behaviours.sites import UnitSources
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.analyzer.trace.reader import Facts, Trace, calls_of
from crashcheck.runtime.trace_format import Kind

NIL = -1  # no instruction of another thread accessed the variable before
_ROWS = 8 << 20  # accesses of variables in one batch


@dataclass(frozen=True, slots=True, eq=False)
class MemoryAccesses:
    """Parallel arrays, a row an access to memory that outlives a function's frame, in the order of the run.

    `space` numbers address spaces: watched files, and each process's memory. `label` is a place in `sites`: an
    instruction's number in the trace, and the calls that distinguish the uses of a function in a header.
    """

    seq: Ints
    thread: Ints
    space: Ints
    offset: Ints
    size: Ints
    label: Ints
    sites: Sequence[tuple[int, tuple[int, ...]]]

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(frozen=True, slots=True)
class Interleaving:
    """A site's access with its remote predecessor: labels, `before` NIL if there is none. `many` accesses had it, the
    `first` of them is a row of Accesses."""

    label: int
    before: int
    first: int
    many: int


@dataclass(frozen=True, slots=True, eq=False)
class Interleavings:
    """What one run shows: each distinct pair of a site and a remote predecessor, by the first access that had it.

    `shared` are the labels that accessed a variable which more than one thread accessed.
    """

    accesses: MemoryAccesses
    pairs: tuple[Interleaving, ...]
    shared: frozenset[int]


def collect_memory_accesses(trace: Trace, facts: Facts | None) -> MemoryAccesses:
    """All reads and writes through instructions: of watched files and, where recorded, of other memory."""
    stores = trace.events[trace.events["kind"] == Kind.STORE]
    rows = np.concatenate([stores, trace.loads, trace.elsewhere])
    rows = rows[rows["size"] > 0]
    # what shares a number happened in one thread, in the order given, or before the event that took it
    rank = rows["kind"] == Kind.STORE
    rows = rows[np.lexsort((rank, rows["seq"]))]
    volatile = (rows["kind"] == Kind.VOLATILE_LOAD) | (rows["kind"] == Kind.VOLATILE_STORE)
    space, _ = number_rows(volatile.astype(np.int64), np.where(volatile, rows["pid"], rows["file"]).astype(np.int64))
    label, sites = _labels(trace, facts, rows)
    seq, thread, offset, size = (rows[name].astype(np.int64) for name in ("seq", "thread", "offset", "size"))
    return MemoryAccesses(seq, thread, space, offset, size, label, sites)


def find_interleavings(found: MemoryAccesses) -> Interleavings:
    """The remote predecessor of every access (AI §2.1), each distinct one once. Near-linear in the accesses.

    The remote predecessor of an access of thread A is the latest earlier access to the same variable by another thread;
    later accesses of A itself do not count. There is none (nil) if no other thread accessed it before. Reads and
    writes are treated the same. A variable is a run of bytes that every access covers as a whole or not at all: an
    access that spans several has a remote predecessor for each.
    """
    pairs: dict[tuple[int, int], tuple[int, int]] = {}
    shared: set[int] = set()
    many_labels = len(found.sites)
    for row, variable in _rows(found):
        order = np.lexsort((row, variable))
        row, variable = row[order], variable[order]
        label, thread = found.label[row], found.thread[row]
        fresh = np.ones(len(row), dtype=np.bool_)
        fresh[1:] = variable[1:] != variable[:-1]
        turn = fresh.copy()
        turn[1:] |= thread[1:] != thread[:-1]
        # the last access before this thread's turn, if it is to the same variable
        begins = np.flatnonzero(turn)[np.cumsum(turn) - 1]
        before = np.where(fresh[begins], NIL, label[begins - 1])
        which, heads = number_rows(label * (many_labels + 1) + before + 1)
        often = np.bincount(which)
        earliest = np.full(len(heads), len(found), dtype=np.int64)
        np.minimum.at(earliest, which, row)
        for head, first, count in zip(heads.tolist(), earliest.tolist(), often.tolist(), strict=True):
            key = int(label[head]), int(before[head])
            known = pairs.get(key, (first, 0))
            pairs[key] = min(known[0], first), known[1] + count
        of_variable = np.cumsum(fresh) - 1
        many_turns = np.bincount(of_variable, weights=turn)
        shared.update(np.unique(label[many_turns[of_variable] > 1]).tolist())
    ordered = sorted((first, label, before, many) for (label, before), (first, many) in pairs.items())
    return Interleavings(
        found,
        tuple(Interleaving(label, before, first, many) for first, label, before, many in ordered),
        frozenset(shared),
    )


def _rows(found: MemoryAccesses) -> Iterator[tuple[Ints, Ints]]:
    """(access, variable) in batches of bounded size; all rows of a variable are in one batch."""
    if not len(found):
        return
    low, high = found.offset, found.offset + found.size
    span = int(high.max()) + 1
    if span > (1 << 62) // (int(found.space.max()) + 1):  # addresses of other processes may need all 48 bits
        raise OverflowError("more address spaces than 64 bits can number")
    bounds = np.unique(np.concatenate([found.space * span + low, found.space * span + high]))
    first = np.searchsorted(bounds, found.space * span + low)
    last = np.searchsorted(bounds, found.space * span + high)
    # how many accesses cover each variable, and where to cut
    change = np.bincount(first, minlength=len(bounds)) - np.bincount(last, minlength=len(bounds))
    total = np.cumsum(np.cumsum(change))
    cuts = np.searchsorted(total, np.arange(_ROWS, int(total[-1]) + 1, _ROWS))
    edges = np.unique(np.concatenate([[0], cuts + 1, [len(bounds)]]))
    for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        at, stop = np.maximum(first, begin), np.minimum(last, end)
        inside = np.flatnonzero(at < stop)
        if len(inside):
            many = stop[inside] - at[inside]
            yield np.repeat(inside, many), ranges(at[inside], many)


def _labels(
    trace: Trace, facts: Facts | None, rows: NDArray[np.void]
) -> tuple[Ints, tuple[tuple[int, tuple[int, ...]], ...]]:
    """The static instruction of each access, as the paper has it; one in a header with its callers up to a source.

    An access by no known instruction (a library's) has the innermost call that led to it for its place.
    """
    distinct, first, inverse = np.unique(calls_of(rows), return_index=True, return_inverse=True)
    units = UnitSources(trace, facts)
    known: dict[tuple[int, tuple[int, ...]], int] = {}
    number = np.zeros(len(distinct), dtype=np.int64)
    for at in np.argsort(first, kind="stable").tolist():
        site, stack = int(distinct[at]) >> 32, int(distinct[at]) & 0xFFFFFFFF
        callers: tuple[int, ...] = ()
        if units.site(site) is None:
            callers = trace.stack(stack)[:1]
        elif units.in_header(site):
            callers = units.callers_into_header(trace.stack(stack))
        number[at] = known.setdefault((site, callers), len(known))
    return number[inverse.reshape(-1)], tuple(known)
