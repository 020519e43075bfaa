"""Changes of names that survive, while what was written to the files before them does not.

Where a file is renamed, linked or removed without a sync, one state for each change shows it, so that none waits for
its turn among billions.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.names import REMOVED
from crashcheck.analyzer.persistence.pieces import DATA, NAME
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState


def states_of_names(canonical: CanonicalStates) -> Iterator[CrashState]:
    """One state for each change of a name, those that replace a file first."""
    graph = canonical.space.graph
    held = dict(graph.names.first)
    others = []
    for piece in np.flatnonzero(graph.kind == NAME).tolist():
        entries = graph.name_change(piece).entries
        replaces = any(inode != REMOVED and held.get(slot, REMOVED) not in (REMOVED, inode) for slot, inode in entries)
        held.update(entries)
        if not replaces:
            others.append(piece)
        else:
            yield from _without_data(canonical, piece)
    for piece in others:
        yield from _without_data(canonical, piece)


def _without_data(canonical: CanonicalStates, piece: int) -> Iterator[CrashState]:
    """Just after a change of a name: it persisted, and what is pending of the file that has the name did not.

    Of a removal, and of a directory, nothing else persisted that it does not need. None if nothing is pending, or the
    change needs it.
    """
    space = canonical.space
    graph, event = space.graph, int(space.graph.event[piece])
    inodes = [i for _, i in graph.name_change(piece).entries if i != REMOVED]
    point = int(space.points.event.searchsorted(event, side="right"))
    if point == len(space.points):
        return
    folders = any(graph.trace.inodes[inode].is_folder for inode in inodes)
    if inodes and not folders and not any(_written_before(graph, inode, event) for inode in inodes):
        return
    pending = space.pending_rows(point)
    data = pending[(graph.kind[pending] != NAME) & (graph.event[pending] < event)]
    if not inodes or folders:
        if len(data):
            yield canonical.first(space.keep(point, pending[pending == piece].tolist()))
        return
    data = data[np.isin(graph.file[data], inodes)]
    for lost in (data, data[graph.kind[data] == DATA]):  # a model may put the size before the change
        state = space.drop(point, lost.tolist())
        if len(lost) and piece not in space.lost(state):
            yield canonical.first(state)
            return


def _written_before(graph: PersistenceGraph, inode: int, event: int) -> bool:
    pieces = graph.pieces_of(inode)
    return bool(np.any((graph.kind[pieces] != NAME) & (graph.event[pieces] < event)))
