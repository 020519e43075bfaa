"""eadr: caches are in the persistence domain (crash-model.md, `eadr`).

One granule: ordinary stores persist in the order in which they became visible, wide ones in unordered pieces. A visible
store *has* persisted, so at a given instant little is open; but a crash point represents every instant since the
outside world last learned something, and a crash at an earlier instant leaves a prefix. So pieces are
durable from the next mark, output or change of a file's size on, and until then the states are the prefixes.

A non-temporal store waits for its thread's fence and a `write` for a sync; it follows all that was visible when it
was issued (that had persisted by then), and within one word everything keeps its order.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.graph import NEVER, Options, PersistenceGraph, assemble
from crashcheck.analyzer.persistence.pieces import (
    DATA,
    IN_ORDER,
    LOOSE_AFTER,
    WORD_BYTES,
    Ints,
    cut,
    number_granules,
    persist_renamed,
)
from crashcheck.analyzer.persistence.px86 import loose_modes
from crashcheck.analyzer.persistence.sync_intervals import find_syncs
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.runtime.trace_format import Kind, SyncKind


def build(trace: Trace, options: Options) -> PersistenceGraph:
    """The eADR persistence graph of a trace."""
    pieces = cut(trace, WORD_BYTES, joins=1 << 62)
    mode = loose_modes(trace, pieces, LOOSE_AFTER)
    events = trace.events
    moment = among(events["kind"], (Kind.MARK_BEGIN, Kind.MARK_END, Kind.OUTPUT))
    # a size step is durable at once, and so is all that was visible before it
    moment[pieces.event[pieces.kind != DATA]] = True
    moments = np.flatnonzero(moment)
    bounds = np.append(moments + 1, NEVER)
    durable_from: Ints = bounds[np.searchsorted(moments, pieces.event, side="right")].astype(np.int64)
    durable_from[pieces.kind != DATA] = pieces.event[pieces.kind != DATA] + 1
    loose = mode != IN_ORDER
    durable_from[loose] = NEVER
    streaming = loose & (events["kind"][pieces.event] == Kind.STORE)
    fences = events["kind"] == Kind.FENCE
    threads = events["thread"][pieces.event]
    for thread in np.unique(threads[streaming]):
        mine = streaming & (threads == thread)
        own = np.flatnonzero(fences & (events["thread"] == thread))
        durable_from[mine] = np.append(own + 1, NEVER)[np.searchsorted(own, pieces.event[mine], side="right")]
    for sync in find_syncs(trace):
        if not sync.failed and sync.kind != SyncKind.DIRSYNC:
            covered = (pieces.kind == DATA) & (pieces.event < sync.begin) & (durable_from > sync.end)
            if sync.file:
                covered &= pieces.file == sync.file
            covered &= pieces.offset >= sync.low
            if sync.high >= 0:
                covered &= pieces.offset < sync.high
            durable_from[covered & loose] = sync.end + 1
    granule = number_granules(pieces, 1 << 62)
    data = pieces.kind == DATA
    if data.any():
        granule[data] = granule[data].min()  # one order for all files
    persist_renamed(trace, pieces, durable_from, journal=False)
    _close(durable_from, pieces.event, mode, pieces.file, pieces.offset, data)
    return assemble(trace, "eadr", options, pieces, granule, durable_from, mode, WORD_BYTES)


def _close(
    durable_from: Ints, event: Ints, mode: NDArray[np.uint8], file: Ints, offset: Ints, data: NDArray[np.bool_]
) -> None:
    """What must persist before a durable piece is durable: earlier ordinary pieces, and the same word's loose ones."""
    earliest = NEVER  # among pieces of later events
    pending_min, pending_event = NEVER, -1
    words: dict[tuple[int, int], int] = {}
    has_loose = bool((mode[data] != IN_ORDER).any())
    for id_ in np.flatnonzero(data)[::-1].tolist():
        if int(event[id_]) != pending_event:
            earliest = min(earliest, pending_min)
            pending_event = int(event[id_])
        value = int(durable_from[id_])
        if has_loose:
            word = (int(file[id_]), int(offset[id_]) // WORD_BYTES)
            value = min(value, words.get(word, NEVER))
        if int(mode[id_]) == IN_ORDER:
            value = min(value, earliest)
        if has_loose:
            words[word] = value
        durable_from[id_] = value
        pending_min = min(pending_min, value)
