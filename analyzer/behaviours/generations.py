"""Generations of instances: reused memory holds another instance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.behaviours.nodes import Nodes
from crashcheck.analyzer.behaviours.updates import AccessColumns
from crashcheck.analyzer.persistence.pieces import Ints


def covering_fills(
    node_update: Ints,
    updates: AccessColumns,
    is_fill: NDArray[np.bool_],
    row_instance: Ints,
    row_node: Ints,
    start: Ints,
    extent: Ints,
) -> list[tuple[Ints, Ints]]:
    """(instance, event): fills that cover every known field of an instance.

    `start` and `extent`, by instance: its first byte, and the bytes up to the end of its last known field.
    """
    update = node_update[row_node]
    some = np.flatnonzero(is_fill[update])
    update, instance = update[some], row_instance[some]
    low = start[instance]
    reach = extent[instance]
    covers = (
        (reach > 0) & (updates.offset[update] <= low) & (low + reach <= updates.offset[update] + updates.size[update])
    )
    return [(instance[covers], updates.event[update[covers]])]


def number_generations(
    nodes: Nodes,
    row_instance: Ints,
    row_node: Ints,
    filled: list[tuple[Ints, Ints]],
    taken_over: list[tuple[Ints, Ints]],
) -> Ints:
    """Of each membership, the generation of its instance, from 0.

    A generation begins at a fill, or at the first update of the instance after another object took its memory over.
    """
    span = int(nodes.event.max(initial=0)) + 2
    wanted = row_instance * span + nodes.event[row_node]
    begins = [instance * span + event for instance, event in filled]
    in_order = np.sort(wanted)
    for instance, event in taken_over:
        begins.append(in_order[np.searchsorted(in_order, instance * span + event, side="right")])
    if not begins:
        return np.zeros(len(row_instance), dtype=np.int64)
    key = unique(np.concatenate(begins))
    return np.searchsorted(key, wanted, side="right") - np.searchsorted(key, row_instance * span)
