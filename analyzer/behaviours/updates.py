"""Updates, or other accesses, as parallel arrays: what the trace records of each, and which fields they belong to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.behaviours.nodes import Nodes
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints


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
