"""ext4 with its defaults: kernel 5.6 and later, data=ordered, delayed allocation, dioread_nolock, auto_da_alloc.

Names and sizes persist through one journal, in one order for the whole file system; the rules have the numbers of
docs/file-systems.md. Sources: Bornholt et al., ASPLOS 2016 (Ferrite); Pillai et al., OSDI 2014 (ALICE); fs/ext4 of
Linux; and what was seen on real kernels.

The journal is one granule. A name, and a size that a call sets, has its place in its order (rules 1, 2), and so has
the size that a write leaves inside a block that is written (written_blocks.py). The size that another write beyond the
end leaves joins it when blocks are allocated, at any later time: it needs the changes before it, and no later one
needs it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.filesystem.updates import Updates, covered_from, journal_syncs, updates_of
from crashcheck.analyzer.persistence.filesystem.written_blocks import at_once
from crashcheck.analyzer.persistence.graph import Options, PersistenceGraph, assemble
from crashcheck.analyzer.persistence.pieces import DATA, IN_ORDER, LOOSE_AFTER, SIZE, Ints
from crashcheck.analyzer.trace.reader import Trace


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The ext4 persistence graph of a trace of system calls."""
    updates, zeros_first = at_once(updates_of(trace, options, replacing=True))
    return journaled("ext4", updates, options).with_order(zeros_first)


def journaled(model: str, updates: Updates, options: Options) -> PersistenceGraph:
    """The graph of one journal for all names and sizes."""
    pieces = updates.pieces
    data = pieces.kind == DATA
    granule = np.where(data, updates.granule, 0)
    mode = np.full(len(pieces), IN_ORDER, dtype=np.uint8)
    mode[updates.grows] = LOOSE_AFTER
    durable_from = updates.durable_from.copy()
    _commit(updates, durable_from, mode)
    return assemble(
        updates.trace,
        model,
        options,
        pieces,
        granule,
        durable_from,
        mode,
        updates.granule_bytes,
        updates.fresh,
        updates.names,
        updates.stale,
    )


def _commit(updates: Updates, durable_from: Ints, mode: NDArray[np.uint8]) -> None:
    """Make the journal durable as far as each sync commits it (rule 4)."""
    pieces = updates.pieces
    chain = np.flatnonzero((pieces.kind != DATA) & (mode == IN_ORDER))
    durable_from[chain] = np.minimum(durable_from[chain], covered_from(pieces.event[chain], journal_syncs(updates)))
    # A size that has persisted needs the journal before it; the earlier sizes of its file do not matter any more.
    rows = np.flatnonzero(pieces.kind != DATA)
    durable_from[chain] = earliest(durable_from[rows])[np.searchsorted(rows, chain)]
    sizes = rows[pieces.kind[rows] == SIZE]
    sizes = sizes[np.argsort(pieces.file[sizes], kind="stable")]
    for mine in np.split(sizes, np.flatnonzero(np.diff(pieces.file[sizes])) + 1):
        durable_from[mine] = earliest(durable_from[mine])


def earliest(durable_from: Ints) -> Ints:
    """For each of some pieces, when it or a later one becomes durable."""
    found: Ints = np.minimum.accumulate(durable_from[::-1])[::-1]
    return found
