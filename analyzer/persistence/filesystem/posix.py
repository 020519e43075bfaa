"""posix: what the standard promises, and nothing else. A sync orders what it covers.

Each entry of a directory, each block and each size is a granule of its own. A rename is two changes, of the new name
and of the old one (rule 1). `fsync` of a file covers its data and size, `fsync` of a directory its entries, so that a
new name needs both (rule 6).
"""

from __future__ import annotations

import numpy as np

from crashcheck.analyzer.persistence.filesystem.updates import covered_from, updates_of
from crashcheck.analyzer.persistence.graph import Options, PersistenceGraph, assemble
from crashcheck.analyzer.persistence.names import Slot
from crashcheck.analyzer.persistence.pieces import IN_ORDER, NAME
from crashcheck.analyzer.persistence.sync_intervals import SyncInterval, syncs_of
from crashcheck.analyzer.trace.reader import Trace


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The POSIX persistence graph of a trace of system calls."""
    updates = updates_of(trace, options, split=True)
    pieces, granule, durable_from = updates.pieces, updates.granule.copy(), updates.durable_from.copy()
    names = np.flatnonzero(pieces.kind == NAME)
    slots: dict[Slot, int] = {}
    folders = np.zeros(len(names), dtype=np.int64)
    first = int(granule.max(initial=0)) + 1
    for at, row in enumerate(names.tolist()):
        slot, _ = updates.names.changes[int(pieces.offset[row])].entries[0]
        granule[row] = first + slots.setdefault(slot, len(slots))
        folders[at] = slot[0]
    of_folder: dict[int, list[tuple[SyncInterval, int]]] = {}
    for sync in syncs_of(trace, options.amplify):
        if not sync.failed:
            of_folder.setdefault(sync.file, []).append((sync, sync.begin - 1))
    for folder in np.unique(folders).tolist():
        mine = names[folders == folder]
        syncs = of_folder.get(folder, []) + of_folder.get(0, [])
        durable_from[mine] = np.minimum(durable_from[mine], covered_from(pieces.event[mine], syncs))
    mode = np.full(len(pieces), IN_ORDER, dtype=np.uint8)
    return assemble(
        trace,
        "posix",
        options,
        pieces,
        granule,
        durable_from,
        mode,
        updates.granule_bytes,
        updates.fresh,
        updates.names,
    )
