"""ext4 with new data before the metadata that show them: kernels before 5.6, or mounted with dioread_lock.

As ext4, and (rules 3, 5): a size that ends in a new block needs the data of that block, and a rename over a file needs
all data of what it renames. Holes below the surviving size, and the tail of an append inside an allocated block, read
as zeros here, too (seen on real kernels).
"""

from __future__ import annotations

from collections.abc import Iterator

from crashcheck.analyzer.persistence.filesystem.ext4 import journaled
from crashcheck.analyzer.persistence.filesystem.updates import Updates, updates_of
from crashcheck.analyzer.persistence.filesystem.written_blocks import at_once
from crashcheck.analyzer.persistence.graph import Options, PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, PAGE_BYTES, SIZE
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The ext4-strict persistence graph of a trace of system calls."""
    updates, zeros_first = at_once(updates_of(trace, options, replacing=True, by_block=True))
    return journaled("ext4-strict", updates, options).with_order([*data_first(updates), *zeros_first])


def data_first(updates: Updates, *, appended: bool = False) -> Iterator[tuple[int, int]]:
    """(data, size): the data persist before the size.

    `appended`: those inside the last block, too, and before a size the earlier ones of its file.
    """
    pieces, kinds = updates.pieces, updates.trace.events["kind"]
    latest: dict[tuple[int, int], int] = {}  # of each file and granule, the last data so far
    grown: dict[int, int] = {}  # of each file, the last size that a write left
    for row in range(len(pieces)):
        file, offset = int(pieces.file[row]), int(pieces.offset[row])
        if pieces.kind[row] == DATA:
            latest[file, offset // updates.granule_bytes] = row
        elif pieces.kind[row] == SIZE and updates.grows[row]:
            old, block = int(pieces.old_size[row]), (offset - 1) // PAGE_BYTES
            if appended and file in grown:
                yield grown[file], row
            grown[file] = row
            if appended or old <= block * PAGE_BYTES:
                yield from ((latest[key], row) for key in _granules(updates, file, block) if key in latest)
        elif pieces.kind[row] == SIZE and offset == int(pieces.old_size[row]):
            if kinds[pieces.event[row]] == Kind.TRUNCATE and not appended:
                continue  # ext4 sets the size alone, and a rename over a file, or xfs, writes the data first
            yield from ((data, row) for (of, _), data in latest.items() if of == file)


def _granules(updates: Updates, file: int, block: int) -> list[tuple[int, int]]:
    many = PAGE_BYTES // updates.granule_bytes
    return [(file, block * many + at) for at in range(many)]
