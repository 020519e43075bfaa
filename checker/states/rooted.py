"""Order ideals where all pieces need one sequence: `Rooted` (eADR's fences), and `Journal` (a file system's).

A journal holds names and sizes in one order, beside it the sizes that writes leave, which join it late. A size that a
write leaves needs what the journal held before it, and the earlier ones of its file; nothing needs it. It may persist
up to a block boundary (parts, see PersistenceGraph).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from itertools import accumulate, product

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import IN_ORDER
from crashcheck.checker.states.ideals import Chain, Ids, Layers, Sizes


class Rooted:
    """Layers, and chains of loose pieces each of which needs all layers of earlier events, whole (eADR).

    `layers` and `chains` hold (event, ids) and (event, id). A piece of a chain needs the one before it, too. Nothing
    here is quadratic in the number of pieces, as the masks of Order are.
    """

    __slots__ = ("_events", "_whole", "chains", "layers", "size", "spine")

    @property
    def parted(self) -> bool:
        return False

    def __init__(self, layers: Sequence[tuple[int, Ids]], chains: Sequence[Sequence[tuple[int, int]]]) -> None:
        self.layers = layers
        self._whole = [*accumulate(len(ids) for _, ids in layers)]  # pieces up to each layer
        self.spine = Layers([ids for _, ids in layers])
        self.chains = chains
        self._events = sorted(event for chain in chains for event, _ in chain)
        self.size = self.spine.size + len(self._events)

    def _reach(self, kept: int) -> int:
        """The event up to which loose pieces may have persisted, where `kept` pieces of the layers have."""
        at = bisect_right(self._whole, kept)
        return self.layers[at][0] if at < len(self.layers) else 1 << 62

    def _free(self, reach: int) -> int:
        """How many loose pieces may have persisted."""
        return bisect_right(self._events, reach)

    def _open(self, reach: int) -> Sequence[Chain | Sizes]:
        """The loose pieces that may have persisted, of each chain that has some."""
        prefixes = (dict.fromkeys(id_ for event, id_ in chain if event <= reach) for chain in self.chains)
        return [Chain(ids) for ids in prefixes if ids]

    def count(self) -> tuple[int, bool]:
        # by how many layers are whole; of the next one any part but the whole may be there
        events = sorted((event, at) for at, chain in enumerate(self.chains) for event, _ in chain)
        lengths = [0] * len(self.chains)
        total, choices, done = 0, 1, 0
        for event, ids in [*self.layers, (1 << 62, ())]:
            while done < len(events) and events[done][0] <= event:
                at = events[done][1]
                # shifts are cheap even where the number has a bit for each loose piece
                choices = choices << 1 if not lengths[at] else choices // (lengths[at] + 1) * (lengths[at] + 2)
                lengths[at] += 1
                done += 1
            total += choices * ((1 << len(ids)) - 1 if ids else 1)
        return total, True

    def kept(self, d: int) -> Iterator[Ids]:
        for of_layers in range(min(d, self.spine.size) + 1):
            reach = self._reach(of_layers)
            loose = d - of_layers
            if loose > self._free(reach):
                continue
            chains = self._open(reach)
            for layers in self.spine.kept(of_layers):
                for others in _products(chains, loose, Side.KEPT):
                    yield layers + others

    def lost(self, d: int) -> Iterator[Ids]:
        for of_layers in range(min(d, self.spine.size) + 1):
            reach = self._reach(self.spine.size - of_layers)
            free = self._free(reach)
            loose = d - of_layers - (len(self._events) - free)  # lost ones among those that may have persisted
            if loose < 0:
                return
            if loose > free:
                continue
            chains = self._open(reach)
            beyond = tuple(id_ for chain in self.chains for event, id_ in chain if event > reach)
            for layers in self.spine.lost(of_layers):
                for others in _products(chains, loose, Side.LOST):
                    yield layers + beyond + others

    def newer(self, since: int) -> Ids:
        return self.spine.newer(since) + tuple(id_ for chain in self.chains for _, id_ in chain if id_ >= since)

    def older(self, since: int) -> Rooted:
        chains = [[pair for pair in chain if pair[1] < since] for chain in self.chains]
        return Rooted([pair for pair in self.layers if pair[1][0] < since], [chain for chain in chains if chain])


class Side(Enum):
    """Which pieces of a state are enumerated: those that persisted, or those that were lost."""

    KEPT = auto()
    LOST = auto()


def _products(chains: Sequence[Chain | Sizes], d: int, side: Side) -> Iterator[Ids]:
    """One ideal of each chain, with exactly d pieces of that side in all."""
    return _Products(chains, side).of(d)


class _Products:
    """Combinations of ideals, one of each chain."""

    def __init__(self, chains: Sequence[Chain | Sizes], side: Side) -> None:
        self.chains = chains
        self.side = side
        self.pieces_from = [*accumulate((chain.size for chain in reversed(chains)), initial=0)][::-1]  # each chain on

    def of(self, d: int) -> Iterator[Ids]:
        """Those with exactly d pieces of the side in all."""
        # a stack, as there may be more chains than calls may nest
        open_steps: list[Iterator[tuple[int, int, Ids]]] = [iter([(0, d, ())])]
        chosen: list[Ids] = []
        while open_steps:
            step = next(open_steps[-1], None)
            if step is None:
                open_steps.pop()
                del chosen[-1:]
                continue
            start, missing, ideal = step
            if missing in (0, self.pieces_from[start]):
                for others in self._rest(start, missing):
                    yield tuple(id_ for ids in (*chosen, ideal, *others) for id_ in ids)
            else:
                chosen.append(ideal)
                open_steps.append(self._steps(start, missing))

    def _steps(self, start: int, missing: int) -> Iterator[tuple[int, int, Ids]]:
        """(the next chain, how many pieces later chains must give, an ideal of this one), for each choice of both."""
        for at in range(start, len(self.chains)):
            if self.pieces_from[at] < missing:
                return
            later = self.pieces_from[at + 1]
            for size in range(max(1, missing - later), min(missing, self.chains[at].size) + 1):
                for ideal in self._ideals(at, size):
                    yield at + 1, missing - size, ideal

    def _rest(self, start: int, missing: int) -> Iterator[tuple[Ids, ...]]:
        """Of the chains from `start` on: nothing more, or everything. Found without a step for each chain."""
        chains = range(start, len(self.chains)) if missing else ()
        return product(*(tuple(self._ideals(at, self.chains[at].size)) for at in chains))

    def _ideals(self, at: int, size: int) -> Iterator[Ids]:
        return self.chains[at].kept(size) if self.side is Side.KEPT else self.chains[at].lost(size)


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
