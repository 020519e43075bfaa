"""Cuts the updates of a trace into the pieces that survive a crash whole or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind, StoreFlag, WriteFlag

Ints = NDArray[np.int64]

WORD_BYTES = 8
LINE_BYTES = 64
PAGE_BYTES = 4096  # the kernel's page and, on the file systems modelled, its block

# What a piece is.
DATA, SIZE, EXISTS, NAME = 0, 1, 2, 3

# How a piece is ordered within its granule.
IN_ORDER = 0  # after every IN_ORDER piece of an earlier event, and every earlier piece of the same word
LOOSE = 1  # after earlier pieces of the same word only
LOOSE_AFTER = 2  # after every IN_ORDER piece of an earlier event, and earlier pieces of the same word


class SizeSteps(NamedTuple):
    """Changes of files' sizes and existence, as parallel arrays in trace order. `new` and `old` are sizes in bytes.

    Of existence `new` is 0, and `old` is 1 where the file goes away, else 0.
    """

    event: Ints
    file: Ints
    kind: Ints  # SIZE or EXISTS
    old: Ints
    new: Ints


_STEPS = np.array([Kind.WRITE, Kind.TRUNCATE, Kind.CREATE, Kind.UNLINK, Kind.RENAME], dtype=np.uint8)


class _Sizes:
    """The sizes of some files on the way through a trace, and the steps that they take."""

    def __init__(self, trace: Trace) -> None:
        self.size = {number: file.first_size for number, file in trace.files.items()}
        self.steps: list[tuple[int, int, int, int, int]] = []

    def set(self, event: int, file: int, new: int) -> None:
        old = self.size[file]
        if new != old:
            self.steps.append((event, file, SIZE, old, new))
            self.size[file] = new

    def begin(self, event: int, file: int) -> None:
        """The file comes into being, empty."""
        self.steps.append((event, file, EXISTS, 0, 0))
        self.size[file] = 0

    def empty(self, event: int, file: int) -> None:
        """The file loses all that it held; even an empty one, of which a mapping may hold bytes beyond its end."""
        self.steps.append((event, file, SIZE, max(self.size[file], 1), 0))
        self.size[file] = 0

    def end(self, event: int, file: int) -> None:
        """The file goes away, with all that it held."""
        self.empty(event, file)
        self.steps.append((event, file, EXISTS, 1, 0))

    def replace(self, event: int, file: int, size: int) -> None:
        """The file becomes another one, of `size` bytes."""
        self.empty(event, file)
        self.begin(event, file)
        self.set(event, file, size)


def size_steps(trace: Trace) -> SizeSteps:
    """Every step that a file's size and existence take."""
    kinds, files = trace.events["kind"], trace.events["file"]
    where = np.flatnonzero(np.isin(kinds, _STEPS))
    renewed = where[(kinds[where] != Kind.WRITE) & (kinds[where] != Kind.TRUNCATE)]
    renewed_files = np.concatenate([files[renewed], trace.events["aux"][renewed]])
    slow = np.isin(files[where], renewed_files)
    one_by_one = np.array(_steps_one_by_one(trace, where[slow]), dtype=np.int64).reshape(-1, 5)
    steps = np.concatenate([one_by_one, np.stack(_steps_of_writes(trace, where[~slow]), axis=1)])
    return SizeSteps(*steps[np.argsort(steps[:, 0], kind="stable")].T)


def _steps_of_writes(trace: Trace, rows: Ints) -> SizeSteps:
    """The steps of files that calls only write and cut: a size is the farthest end written since the last cut."""
    events = trace.events[rows]
    order = np.argsort(events["file"], kind="stable")
    file, cut = events["file"].astype(np.int64)[order], (events["kind"] == Kind.TRUNCATE)[order]
    offset, size = (events[name].astype(np.int64)[order] for name in ("offset", "size"))
    reach = np.where(cut, offset, np.where(size > 0, offset + size, 0))
    opens = np.diff(file, prepend=-1) != 0
    first = np.array([trace.files[number].first_size for number in file[opens].tolist()], dtype=np.int64)
    reach[opens] = np.where(cut[opens], reach[opens], np.maximum(reach[opens], first))
    sizes, place = np.unique(reach, return_inverse=True)
    new = sizes[np.maximum.accumulate(np.cumsum(opens | cut) * len(sizes) + place) % max(len(sizes), 1)]
    old = np.concatenate([new[:1], new[:-1]])
    old[opens] = first
    some = new != old
    return SizeSteps(rows[order][some], file[some], np.full(int(some.sum()), SIZE), old[some], new[some])


def _steps_one_by_one(trace: Trace, rows: Ints) -> list[tuple[int, int, int, int, int]]:
    """The same of any files, one event after another."""
    sizes = _Sizes(trace)
    columns = (trace.events[name][rows].tolist() for name in ("kind", "file", "offset", "size", "aux"))
    for event, kind, file, offset, size, aux in zip(rows.tolist(), *columns, strict=True):
        if kind == Kind.CREATE:
            sizes.begin(event, file)
        elif kind == Kind.UNLINK:
            sizes.end(event, file)
        elif kind == Kind.RENAME:
            if aux:
                sizes.end(event, aux)
            sizes.replace(event, file, offset)
        else:
            sizes.set(
                event, file, offset if kind == Kind.TRUNCATE else max(sizes.size[file], offset + size if size else 0)
            )
    return sizes.steps


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Parallel arrays, one row per piece, sorted by event; metadata precede the data of their event."""

    event: Ints  # which the piece is issued with
    file: Ints
    kind: NDArray[np.uint8]
    offset: Ints  # of data, in the file; of a size step: the new size
    size: Ints  # bytes of data; 0 for metadata
    old_size: Ints  # of a size step: the size before it; of existence: SizeSteps.old; -1 for others
    source: Ints  # the event that carries the bytes of data; else `event`
    # by source: later events of its update, whose bytes a piece carries too as far as they are in its range
    continued: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.event)

    def only(self, keep: NDArray[np.bool_]) -> Pieces:
        """Some of the rows."""
        event, file, offset, size, old, source = (
            column[keep] for column in (self.event, self.file, self.offset, self.size, self.old_size, self.source)
        )
        return Pieces(event, file, self.kind[keep], offset, size, old, source, self.continued)


def _renamed_with(trace: Trace) -> tuple[Ints, Ints]:
    """Events with the content of renamed files, and for each its rename; none that was cut short."""
    kinds, files, threads = (trace.events[name] for name in ("kind", "file", "thread"))
    contents = np.flatnonzero((kinds == Kind.CONTENT) & (trace.events["size"] > 0))
    renames = trace.rows(Kind.RENAME)
    into = np.full(len(contents), -1, dtype=np.int64)
    for at, content in enumerate(contents.tolist()):
        later = renames[np.searchsorted(renames, content) :]
        same = later[(files[later] == files[content]) & (threads[later] == threads[content])]
        into[at] = same[0] if len(same) else -1
    return contents[into >= 0], into[into >= 0]


def _first_of_update(trace: Trace, updates: Ints, span: int) -> Ints:
    """For each of some stores and writes the one that began its update: itself, or the first that it is joined to.

    Only those are joined that begin in the same `span` bytes in which the one before them ends.
    """
    kinds, threads = trace.events["kind"][updates], trace.events["thread"][updates]
    flags = trace.events["flags"][updates]
    joined = np.where(kinds == Kind.STORE, flags & int(StoreFlag.JOINED), flags & int(WriteFlag.JOINED)) != 0
    who = threads.astype(np.int64) * 2 + (kinds == Kind.STORE)
    order = np.argsort(who, kind="stable")
    at = np.arange(len(updates))
    begins = ~joined[order]
    begins[1:] |= who[order][1:] != who[order][:-1]
    low = trace.events["offset"][updates][order].astype(np.int64)
    high = low + trace.events["size"][updates][order].astype(np.int64) - 1
    begins[1:] |= low[1:] // span != high[:-1] // span
    first = np.empty(len(updates), dtype=np.int64)
    first[order] = updates[order][np.maximum.accumulate(np.where(begins, at, 0))]
    return first


def cut(trace: Trace, unit_bytes: int, joins: int = 0) -> Pieces:
    """All updates: data cut at multiples of `unit_bytes`, and a piece for every size step.

    `joins`: within that many bytes, stores that continue with an earlier one are issued with it, so that their pieces
    have no order among themselves. Other lines of px86 have none anyway, and there a flush may be between the two.
    0: what one update changes in a unit is one piece, also where it left bytes between them as they were.
    """
    events = trace.events
    updates = np.flatnonzero(((events["kind"] == Kind.STORE) | (events["kind"] == Kind.WRITE)) & (events["size"] > 0))
    begun = _first_of_update(trace, updates, joins or 1 << 62)
    contents, renames = _renamed_with(trace)
    issued = np.concatenate([begun if joins else updates, renames])
    updates, begun = np.concatenate([updates, contents]), np.concatenate([begun, contents])
    start = events["offset"][updates].astype(np.int64)
    end = start + events["size"][updates].astype(np.int64)
    first = start // unit_bytes
    counts = (end - 1) // unit_bytes - first + 1
    rows = np.repeat(np.arange(len(updates)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    unit = first[rows] + within
    data = _Data(
        issued[rows],
        updates[rows],
        events["file"][updates][rows].astype(np.int64),
        unit,
        np.maximum(unit * unit_bytes, start[rows]),
        np.minimum((unit + 1) * unit_bytes, end[rows]),
    )
    continued: dict[int, tuple[int, ...]] = {}
    joined = np.flatnonzero(np.isin(begun, begun[begun != updates])[rows])
    if len(joined) and not joins:
        data, continued = _one_update_a_page(data, begun[rows], joined, PAGE_BYTES // unit_bytes)
    steps = size_steps(trace)
    many = len(data.event)

    kind = np.concatenate([np.full(many, DATA, dtype=np.int64), steps.kind]).astype(np.uint8)
    event = np.concatenate([data.event, steps.event])
    source = np.concatenate([data.source, steps.event])
    file = np.concatenate([data.file, steps.file])
    offset = np.concatenate([data.low, steps.new])
    size = np.concatenate([data.high - data.low, np.zeros_like(steps.event)])
    old = np.concatenate([np.full(many, -1, np.int64), steps.old])
    # metadata of one event keep their order, and precede its data
    order = np.lexsort((np.where(kind == DATA, offset, 0), kind == DATA, event))
    return _while_files_exist(
        Pieces(event[order], file[order], kind[order], offset[order], size[order], old[order], source[order], continued)
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Data:
    """Parallel arrays, one row for each unit in which an event changes data."""

    event: Ints
    source: Ints
    file: Ints
    unit: Ints
    low: Ints
    high: Ints


def _one_update_a_page(data: _Data, update: Ints, joined: Ints, units: int) -> tuple[_Data, dict[int, tuple[int, ...]]]:
    """One row for all that an update changes in a unit, as of the event that changes its page (of `units`) first.

    `joined`: the rows of updates that took several events. Also returned: for such a first event the others.
    """
    page = data.unit // units
    order = joined[np.lexsort((joined, page[joined], data.file[joined], update[joined]))]
    columns = [column[order].tolist() for column in (update, data.file, page, data.unit, data.source)]
    event, source, low, high = (column.copy() for column in (data.event, data.source, data.low, data.high))
    keep = np.ones(len(event), dtype=np.bool_)
    continued: dict[int, tuple[int, ...]] = {}
    current, head, first_of = None, 0, dict[int, int]()  # of the page: its first event, and the first row of each unit
    for row, *of_page, unit, own in zip(order.tolist(), *columns, strict=True):
        if of_page != current:
            current, head, first_of = of_page, own, {}
        if own != head:
            event[row] = source[row] = head
            others = continued.get(head, ())
            if own not in others:
                continued[head] = (*others, own)
        first = first_of.setdefault(unit, row)
        if first != row:
            low[first], high[first] = min(low[first], low[row]), max(high[first], high[row])
            keep[row] = False
    left = (event, source, data.file, data.unit, low, high)
    return _Data(*(column[keep] for column in left)), continued


def _while_files_exist(pieces: Pieces) -> Pieces:
    """The pieces without those of a file that had no name when they were issued: no crash leaves them."""
    names = np.flatnonzero(pieces.kind == EXISTS)
    if not bool((pieces.old_size[names] > 0).any()):
        return pieces
    rows = np.arange(len(pieces))
    span = len(pieces) + 1
    keys = pieces.file[names] * span + names
    order = np.argsort(keys)
    last = np.searchsorted(keys[order], pieces.file * span + rows, side="right") - 1
    name = names[order][np.maximum(last, 0)]
    nameless = (last >= 0) & (pieces.file[name] == pieces.file) & (pieces.old_size[name] > 0)
    keep = ~nameless | (pieces.kind == EXISTS)
    if bool(keep.all()):
        return pieces
    return pieces.only(keep)


def persist_renamed(trace: Trace, pieces: Pieces, durable_from: Ints, journal: bool) -> None:
    """Make a change of names durable at once, with all that its files held (crash-model.md, "Names").

    `journal`: and with every earlier change of a name, and of a size by itself, of any file: one journal holds them.
    """
    names = trace.rows(Kind.UNLINK, Kind.RENAME)
    if not len(names):
        return
    source = np.where(trace.events["kind"][names] == Kind.RENAME, trace.events["aux"][names], 0).astype(np.int64)
    files = np.concatenate([trace.events["file"][names].astype(np.int64), source])
    moments = np.concatenate([names, names])
    _persist_by_next(files, moments, pieces.file, pieces, durable_from)
    if journal:
        changed = (pieces.kind != DATA) & (trace.events["kind"][pieces.event] != Kind.WRITE)
        _persist_by_next(np.zeros_like(names), names, np.where(changed, 0, -1), pieces, durable_from)
    earliest: dict[int, int] = {}  # a durable size makes the earlier sizes of its file durable, too
    for row in np.flatnonzero(pieces.kind == SIZE)[::-1].tolist():
        file = int(pieces.file[row])
        durable_from[row] = earliest[file] = min(int(durable_from[row]), earliest.get(file, int(durable_from[row])))


def _persist_by_next(groups: Ints, moments: Ints, group_of: Ints, pieces: Pieces, durable_from: Ints) -> None:
    """Make pieces durable just after the first of the `moments` (events) of their group that is not before them."""
    span = int(pieces.event.max(initial=0)) + 2
    keys = np.sort(groups * span + moments)
    at = np.searchsorted(keys, group_of * span + pieces.event, side="left")
    rows = np.flatnonzero((at < len(keys)) & (group_of >= 0))
    rows = rows[keys[at[rows]] // span == group_of[rows]]
    durable_from[rows] = np.minimum(durable_from[rows], keys[at[rows]] % span + 1)


def number_granules(pieces: Pieces, granule_bytes: int) -> Ints:
    """Granule ids, numbered from 0: of data by (file, offset // granule_bytes), of sizes and existences by file."""
    place = np.where(pieces.kind == DATA, pieces.offset // granule_bytes, 0)
    owners, owner = np.unique(pieces.file * 4 + pieces.kind, return_inverse=True)
    span = int(place.max(initial=0)) + 1
    if span <= (1 << 62) // max(len(owners), 1):
        _, inverse = np.unique(owner * span + place, return_inverse=True)
    else:
        _, inverse = np.unique(np.stack([owner, place]), axis=1, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64)
