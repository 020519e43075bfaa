"""Updates as parallel arrays: the nodes of behaviours (what an update writes to one granule), and recorded columns.

`AccessColumns` and `FieldRows` also hold other accesses, for the likely invariants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import sort_rows, unique
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, IN_ORDER, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Nodes:
    """Parallel arrays, one row per node, sorted by event.

    Node u persists before node v (all of u before any of v) if durable_from[u] <= event[v], or if they share a
    granule, u is older, and both are `ordered`. An update that spans granules is several nodes of one static site.
    """

    event: Ints
    granule: Ints
    durable_from: Ints  # of its last piece
    ordered: NDArray[np.bool_]  # its pieces keep the order of their granule
    data: NDArray[np.bool_]  # bytes, and not a file's size or existence
    piece: Ints  # ids of pieces, node by node
    start: Ints  # where in `piece` each node begins; one more entry than nodes

    def __len__(self) -> int:
        return len(self.event)

    def pieces(self, node: int) -> tuple[int, ...]:
        """Piece ids of one node, ascending."""
        return tuple(self.piece[int(self.start[node]) : int(self.start[node + 1])].tolist())

    def of_pieces(self, column: Ints) -> Ints:
        """A column with a row for each node, as one with a row for each piece."""
        out = np.empty(len(self.piece), dtype=np.int64)
        out[self.piece] = np.repeat(column, np.diff(self.start))
        return out


def build_nodes(graph: PersistenceGraph) -> Nodes:
    """The nodes of a whole graph."""
    order, begins = sort_rows(graph.event, graph.granule)
    start = np.flatnonzero(begins)
    if not len(start):
        empty = np.zeros(0, dtype=np.int64)
        none = np.zeros(0, dtype=np.bool_)
        return Nodes(empty, empty, empty, none, none, empty, np.zeros(1, dtype=np.int64))
    return Nodes(
        graph.event[order[start]],
        graph.granule[order[start]],
        np.maximum.reduceat(graph.durable_from[order], start),
        np.logical_and.reduceat(graph.mode[order] == IN_ORDER, start),
        np.logical_and.reduceat(graph.kind[order] == DATA, start),
        order,
        np.append(start, len(order)).astype(np.int64),
    )


@dataclass(frozen=True, slots=True, eq=False)
class AccessColumns:
    """What the trace records of updates or of other accesses: `event` is an index into the array that holds them."""

    event: Ints
    site: Ints
    stack: Ints
    file: Ints
    offset: Ints
    size: Ints
    delta: Ints


class FieldRows(NamedTuple):
    """Memberships: `row`, an update, an access or a node, writes or reads a field of an instance."""

    row: Ints
    instance: Ints
    field: Ints

    def plus(self, more: FieldRows) -> FieldRows:
        return FieldRows(*(np.concatenate(pair) for pair in zip(self, more, strict=True)))


NO_ROWS = FieldRows(*[np.zeros(0, dtype=np.int64)] * 3)


def update_columns(graph: PersistenceGraph, nodes: Nodes) -> AccessColumns:
    """The updates of a graph, in order of their events."""
    event = unique(nodes.event)
    rows = graph.trace.events[event]

    def column(name: str) -> Ints:
        return rows[name].astype(np.int64)

    return AccessColumns(event, *(column(n) for n in ("site", "stack", "file", "offset", "size", "instance_delta")))
