"""Cuts the updates of a trace into the pieces that survive a crash whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind

Ints = NDArray[np.int64]

WORD_BYTES = 8
LINE_BYTES = 64
PAGE_BYTES = 4096  # the kernel's page and, on the file systems modelled, its block

# What a piece is.
DATA, SIZE, EXISTS = 0, 1, 2

# How a piece is ordered within its granule.
IN_ORDER = 0  # after every IN_ORDER piece of an earlier event, and every earlier piece of the same word
LOOSE = 1  # after earlier pieces of the same word only
LOOSE_AFTER = 2  # after every IN_ORDER piece of an earlier event, and earlier pieces of the same word


@dataclass(frozen=True, slots=True)
class SizeStep:
    """A change of a file's size or existence. `new` and `old` are sizes in bytes (0 for existence)."""

    event: int
    file: int
    kind: int  # SIZE or EXISTS
    old: int
    new: int


def size_steps(trace: Trace) -> list[SizeStep]:
    """Every step that a file's size and existence take, in trace order."""
    events = trace.events
    sizes = {number: file.first_size for number, file in trace.files.items()}
    kinds = np.array([Kind.WRITE, Kind.TRUNCATE, Kind.CREATE], dtype=np.uint8)
    where = np.flatnonzero(np.isin(events["kind"], kinds))
    steps = []
    rows = zip(
        where.tolist(),
        events["kind"][where].tolist(),
        events["file"][where].tolist(),
        events["offset"][where].tolist(),
        events["size"][where].tolist(),
        strict=True,
    )
    for event, kind, file, offset, size in rows:
        old = sizes[file]
        if kind == Kind.CREATE:
            steps.append(SizeStep(event, file, EXISTS, 0, 0))
            sizes[file] = 0
            continue
        new = offset if kind == Kind.TRUNCATE else max(old, offset + size if size else old)
        if new != old:
            steps.append(SizeStep(event, file, SIZE, old, new))
            sizes[file] = new
    return steps


@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """Parallel arrays, one row per piece, sorted by event; metadata precede the data of their event."""

    event: Ints
    file: Ints
    kind: NDArray[np.uint8]
    offset: Ints  # of data, in the file; of a size step: the new size
    size: Ints  # bytes of data; 0 for metadata
    old_size: Ints  # of a size step: the size before it; -1 for others

    def __len__(self) -> int:
        return len(self.event)


def cut(trace: Trace, unit_bytes: int) -> Pieces:
    """All updates: data cut at multiples of `unit_bytes`, and a piece for every size step."""
    events = trace.events
    updates = np.flatnonzero(((events["kind"] == Kind.STORE) | (events["kind"] == Kind.WRITE)) & (events["size"] > 0))
    start = events["offset"][updates].astype(np.int64)
    end = start + events["size"][updates].astype(np.int64)
    first = start // unit_bytes
    counts = (end - 1) // unit_bytes - first + 1
    rows = np.repeat(np.arange(len(updates)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    unit = first[rows] + within
    low = np.maximum(unit * unit_bytes, start[rows])
    high = np.minimum((unit + 1) * unit_bytes, end[rows])
    steps = size_steps(trace)
    many = len(rows)
    event = np.concatenate([updates[rows], np.array([s.event for s in steps], dtype=np.int64)])
    kind = np.concatenate([np.full(many, DATA, dtype=np.uint8), np.array([s.kind for s in steps], dtype=np.uint8)])
    file = np.concatenate(
        [events["file"][updates][rows].astype(np.int64), np.array([s.file for s in steps], dtype=np.int64)]
    )
    offset = np.concatenate([low, np.array([s.new for s in steps], dtype=np.int64)])
    size = np.concatenate([high - low, np.zeros(len(steps), dtype=np.int64)])
    old = np.concatenate(
        [
            np.full(many, -1, dtype=np.int64),
            np.array([s.old if s.kind == SIZE else -1 for s in steps], dtype=np.int64),
        ]
    )
    order = np.lexsort((offset, kind == DATA, event))
    return Pieces(event[order], file[order], kind[order], offset[order], size[order], old[order])


def number_granules(pieces: Pieces, granule_bytes: int) -> Ints:
    """Granule ids, numbered from 0: of data by (file, offset // granule_bytes), of sizes and existences by file."""
    place = np.where(pieces.kind == DATA, pieces.offset // granule_bytes, 0)
    owners, owner = np.unique(pieces.file * 3 + pieces.kind, return_inverse=True)
    span = int(place.max(initial=0)) + 1
    if span <= (1 << 62) // max(len(owners), 1):
        _, inverse = np.unique(owner * span + place, return_inverse=True)
    else:
        _, inverse = np.unique(np.stack([owner, place]), axis=1, return_inverse=True)
    return inverse.reshape(-1).astype(np.int64)
