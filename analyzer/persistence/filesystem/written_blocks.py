"""Blocks of files that a trace proves to be allocated and written, and what ext4 does at once in such a block.

A block is proven where the file was there at first without a hole, or where a sync covered data in it, and nothing
removed it since. In other blocks the size or the data may wait for write-back, so nothing more is known of them.

1. A write that ends in such a block sets the size on the disk itself, so the size joins the journal at the write
   (ext4_da_write_end, fs/ext4/inode.c). A write that ends in a later block does not: kernels with large folios leave
   the whole size to write-back.
2. A call that zeroes a part of such a block, as a truncation does, adds the block to the running transaction
   (__ext4_block_zero_page_range, ext4_jbd2_inode_add_write, data=ordered): what it holds then persists before that
   transaction. The size of the truncation itself may be in an earlier one (ext4_setattr, ext4_truncate).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from crashcheck.analyzer.arrays import Bools, among
from crashcheck.analyzer.persistence.filesystem.updates import Updates
from crashcheck.analyzer.persistence.graph import NEVER
from crashcheck.analyzer.persistence.pieces import DATA, PAGE_BYTES, SIZE
from crashcheck.analyzer.trace.calls import Allocate, allocations
from crashcheck.runtime.trace_format import Kind

_MOVES = Allocate.COLLAPSE_RANGE | Allocate.INSERT_RANGE  # calls that give blocks other numbers


def at_once(updates: Updates) -> tuple[Updates, Iterator[tuple[int, int]]]:
    """The updates, whose `grows` leaves out the sizes of rule 1, and what rule 2 orders."""
    proof = _Proof(updates)
    grows = updates.grows.copy()
    grows[proof.joined] = False
    joined = replace(updates, grows=grows)
    return joined, _zeros_first(joined, set(proof.zeroed))


def _zeros_first(updates: Updates, zeroed: set[int]) -> Iterator[tuple[int, int]]:
    """(zeros of a part of a block, each change of the journal that a later call makes, up to the next in its order)."""
    if not zeroed:
        return
    pieces, granule = updates.pieces, updates.granule
    latest: dict[int, int] = {}  # by granule: the last zeros of earlier calls
    own: dict[int, int] = {}  # the same, of the call itself, which need not precede it
    event = -1
    for row in np.flatnonzero((pieces.kind != DATA) | np.isin(np.arange(len(pieces)), list(zeroed))).tolist():
        if pieces.event[row] != event:
            event = int(pieces.event[row])
            latest, own = latest | own, {}
        if row in zeroed:
            own[int(granule[row])] = row
            continue
        yield from ((zeros, row) for zeros in latest.values())
        if not updates.grows[row]:
            latest = {}


@dataclass(slots=True)
class _Blocks:
    """Blocks of one file: those below `first` are as they were at first, if `since` has no other word of them."""

    first: int
    since: dict[int, int] = field(default_factory=dict)  # from which event each is written; NEVER: it was removed

    def written(self, block: int, event: int) -> bool:
        return self.since[block] <= event if block in self.since else block < self.first

    def hold(self, block: int, durable_from: int) -> None:
        if block in self.since or block >= self.first:
            self.since[block] = min(self.since.get(block, NEVER), durable_from)

    def cut(self, blocks: int) -> None:
        self.first = min(self.first, blocks)
        self.since = {block: event for block, event in self.since.items() if block < blocks}


class _Proof:
    """One pass over the updates of files in which something depends on it."""

    def __init__(self, updates: Updates) -> None:
        self._updates = updates
        self._events = updates.trace.events
        self._blocks: dict[int, _Blocks] = {}
        self.joined: list[int] = []  # sizes, rule 1
        self.zeroed: list[int] = []  # data, rule 2
        zeros = self._zeros_of_calls()
        rows = np.flatnonzero(self._that_matter(zeros))
        pieces = updates.pieces
        whose = (pieces.kind, pieces.file, pieces.offset, pieces.old_size, updates.durable_from, zeros)
        columns = (column[rows].tolist() for column in whose)  # Python's numbers: there may be millions of rows
        for row, kind, file, offset, old, durable, zero in zip(rows.tolist(), *columns, strict=True):
            blocks = self._of(file)
            if kind == SIZE and offset < old:
                blocks.cut(-(-offset // PAGE_BYTES))
            elif kind == SIZE:
                if blocks.written(old // PAGE_BYTES, int(pieces.event[row])):
                    self.joined.append(row)
            elif zero:
                self._zeros(row, blocks)
            else:
                blocks.hold(offset // PAGE_BYTES, durable)

    def _zeros_of_calls(self) -> Bools:
        """Which pieces are zeros that a truncation or fallocate leaves."""
        pieces = self._updates.pieces
        kinds = self._events["kind"][pieces.source]
        zeros: Bools = (pieces.kind == DATA) & among(kinds, (Kind.TRUNCATE, Kind.ALLOCATE))
        return zeros

    def _that_matter(self, zeros: Bools) -> Bools:
        """Which pieces a rule may apply to, or prove or end what one needs: of the files that have both."""
        updates, pieces = self._updates, self._updates.pieces
        # rule 1: a size that ends in the block in which the old one did
        ends = (self._events["offset"] + self._events["size"])[pieces.event].astype(np.int64)
        inside = updates.grows & (pieces.old_size % PAGE_BYTES > 0) & (pieces.offset >= pieces.old_size)
        inside &= ends <= (pieces.old_size // PAGE_BYTES + 1) * PAGE_BYTES
        # what proves a block: a sync of its data, or the file as it was at first
        content = (pieces.kind == DATA) & among(self._events["kind"][pieces.source], (Kind.WRITE, Kind.STORE)) & ~zeros
        content &= updates.durable_from < NEVER
        dense = [number for number, inode in updates.trace.inodes.items() if inode.dense and inode.first_size]
        proven = np.union1d(pieces.file[content], np.array(dense, dtype=np.int64))
        # what ends the proof
        cuts = (pieces.kind == SIZE) & (pieces.offset < pieces.old_size)
        moved = [call.inode for call in allocations(updates.trace) if call.mode & _MOVES]
        files = np.setdiff1d(pieces.file[zeros | inside], np.array(moved, dtype=np.int64))
        matter: Bools = np.isin(pieces.file, np.intersect1d(files, proven)) & (inside | cuts | zeros | content)
        return matter

    def _of(self, file: int) -> _Blocks:
        if file not in self._blocks:
            inode = self._updates.trace.inodes[file]
            self._blocks[file] = _Blocks(-(-inode.first_size // PAGE_BYTES) if inode.dense else 0)
        return self._blocks[file]

    def _zeros(self, row: int, blocks: _Blocks) -> None:
        pieces = self._updates.pieces
        event, block = int(pieces.event[row]), int(pieces.offset[row]) // PAGE_BYTES
        call = self._events[int(pieces.source[row])]
        if int(call["kind"]) == Kind.ALLOCATE:
            low, size = int(call["offset"]), int(call["payload"])
            if low <= block * PAGE_BYTES and (block + 1) * PAGE_BYTES <= low + size:
                blocks.since[block] = NEVER
                return
        if blocks.written(block, event):
            self.zeroed.append(row)
