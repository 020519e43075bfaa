"""Order ideals of a journal: names and sizes in one order, beside it the sizes that writes leave, which join it late.

A size that a write leaves needs what the journal held before it, and the earlier ones of its file; nothing needs it.
It may persist up to a block boundary (parts, see PersistenceGraph).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import IN_ORDER
from crashcheck.checker.states.ideals import Ids, Rooted, Sizes


class Journal(Rooted):
    """The pending pieces of a journal; `count`, `lost` and `kept` as all classes of ideals.py have them."""

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

    def _sizes(self, reach: int) -> list[Sizes]:
        """Of each file the sizes that may have persisted."""
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

    def kept(self, d: int) -> Iterator[Ids]:
        for spine in range(min(d, self.spine.size) + 1):
            reach = self._reach(spine)
            if d - spine > self._free(reach):
                continue
            chains = self._sizes(reach)
            for own in self.spine.kept(spine):
                for others in _products(chains, 0, _room(chains), d - spine, lost=False):
                    yield own + others

    def lost(self, d: int) -> Iterator[Ids]:
        for spine in range(min(d, self.spine.size) + 1):
            reach = self._reach(self.spine.size - spine)
            free = self._free(reach)
            need = d - spine - (len(self._events) - free)
            if need < 0:
                return
            if need > free:
                continue
            chains = self._sizes(reach)
            beyond = tuple(id_ for chain in self.chains for event, id_ in chain if event > reach)
            for own in self.spine.lost(spine):
                for others in _products(chains, 0, _room(chains), need, lost=True):
                    yield own + beyond + others

    def older(self, since: int) -> Journal:
        return Journal(self.graph, tuple(id_ for id_ in self.ids if id_ < since))


def _room(chains: Sequence[Sizes]) -> list[int]:
    """For each place, how many pieces the chains from there on have."""
    room = [0] * (len(chains) + 1)
    for at in range(len(chains) - 1, -1, -1):
        room[at] = room[at + 1] + chains[at].size
    return room


def _products(chains: Sequence[Sizes], start: int, room: list[int], d: int, *, lost: bool) -> Iterator[Ids]:
    """One ideal of each chain from `start` on, with exactly d pieces lost (kept) in all."""
    if not d:
        yield ()
        return
    for at in range(start, len(chains)):
        if room[at] < d:
            return
        chain = chains[at]
        for here in range(min(d, chain.size), max(1, d - room[at + 1]) - 1, -1):
            for own in chain.lost(here) if lost else chain.kept(here):
                for others in _products(chains, at + 1, room, d - here, lost=lost):
                    yield own + others
