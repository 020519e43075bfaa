"""The updates of a run as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.behaviours.nodes import Nodes
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints


@dataclass(frozen=True, slots=True, eq=False)
class AccessColumns:
    """The updates of a graph: their events, and what the trace says of them."""

    event: Ints
    site: Ints
    stack: Ints
    file: Ints
    offset: Ints
    size: Ints
    delta: Ints


def update_columns(graph: PersistenceGraph, nodes: Nodes) -> AccessColumns:
    event = unique(nodes.event)
    rows = graph.trace.events[event]

    def column(name: str) -> Ints:
        return rows[name].astype(np.int64)

    return AccessColumns(event, *(column(n) for n in ("site", "stack", "file", "offset", "size", "instance_delta")))
