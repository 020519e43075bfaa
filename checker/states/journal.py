"""Order ideals of a journal: names and sizes in one order, beside it the sizes that writes leave, which join it late.

A size that a write leaves needs what the journal held before it, and the earlier ones of its file; nothing needs it.
It may persist up to a block boundary (parts, see PersistenceGraph).
"""

from __future__ import annotations

from collections.abc import Sequence

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import IN_ORDER
from crashcheck.checker.states.ideals import Ids, Rooted, Sizes


class Journal(Rooted):
    """The pending pieces of a journal: names and sizes are the layers, sizes that writes leave the chains."""

    __slots__ = ("graph", "ids")

    def __init__(self, graph: PersistenceGraph, ids: Ids) -> None:
        layers: list[tuple[int, Ids]] = []
        sizes: dict[int, list[tuple[int, int]]] = {}
        rows = list(ids)
        columns = (graph.event, graph.mode, graph.file)
        for id_, event, mode, file in zip(ids, *(column[rows].tolist() for column in columns), strict=True):
            if mode == IN_ORDER:
                layers.append((event, (id_,)))
            else:
                sizes.setdefault(file, []).append((event, id_))
        super().__init__(layers, list(sizes.values()))
        self.graph = graph
        self.ids = ids

    @property
    def parted(self) -> bool:
        return True

    def _open(self, reach: int) -> Sequence[Sizes]:
        prefixes = (tuple(id_ for event, id_ in chain if event <= reach) for chain in self.chains)
        return [Sizes(self.graph, ids) for ids in prefixes if ids]

    def count(self) -> tuple[int, bool]:
        parts = self.graph.parts
        events = sorted((event, at, id_) for at, chain in enumerate(self.chains) for event, id_ in chain)
        options = [1] * len(self.chains)
        total, choices, done = 0, 1, 0
        for event, _ in [*self.layers, (1 << 62, ())]:
            while done < len(events) and events[done][0] <= event:
                _, at, id_ = events[done]
                more = options[at] + 1 + int(parts[id_])
                choices = choices // options[at] * more
                options[at] = more
                done += 1
            total += choices
        return total, True

    def older(self, since: int) -> Journal:
        return Journal(self.graph, tuple(id_ for id_ in self.ids if id_ < since))
