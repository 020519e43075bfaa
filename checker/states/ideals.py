"""Order ideals of one granule's pending pieces: how many there are, and which drop or keep exactly d pieces.

Here are the orders of most granules; rooted.py has those that all hang on one sequence, partial_order.py any other.
Every class has
    size                 number of pieces
    count() -> (n, exact)  number of ideals; an upper bound where `exact` is false
    lost(d), kept(d)     the ideals with exactly d pieces lost (kept), as tuples of the lost (kept) piece ids;
                         neither is empty for 0 <= d <= size
    older(since)         the same for the pieces with ids below `since` (they are an ideal)
    parted               whether an ideal may hold a part of a piece (see PersistenceGraph)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice
from typing import Protocol

from crashcheck.analyzer.persistence.graph import PersistenceGraph

Ids = tuple[int, ...]


class Ideals(Protocol):
    @property
    def size(self) -> int: ...
    @property
    def parted(self) -> bool: ...
    def count(self) -> tuple[int, bool]: ...
    def lost(self, d: int) -> Iterator[Ids]: ...
    def kept(self, d: int) -> Iterator[Ids]: ...
    def older(self, since: int) -> Ideals: ...
    def newer(self, since: int) -> Ids: ...


class Chain:
    """Pieces that persist one after the other: the first `size` keys of `ids`, which is never copied."""

    __slots__ = ("ids", "size")
    parted = False

    def __init__(self, ids: dict[int, None], size: int | None = None) -> None:
        self.ids = ids
        self.size = len(ids) if size is None else size

    def count(self) -> tuple[int, bool]:
        return self.size + 1, True

    def lost(self, d: int) -> Iterator[Ids]:
        skip = len(self.ids) - self.size
        yield tuple(islice(reversed(self.ids), skip, skip + d))[::-1]

    def kept(self, d: int) -> Iterator[Ids]:
        yield tuple(islice(self.ids, d))

    def newer(self, since: int) -> Ids:
        out = []
        for id_ in islice(reversed(self.ids), len(self.ids) - self.size, None):
            if id_ < since:
                break
            out.append(id_)
        return tuple(reversed(out))

    def older(self, since: int) -> Chain:
        return Chain(self.ids, self.size - len(self.newer(since)))


class Layers:
    """Antichains stacked on each other: wide stores to one line, each after all earlier ones."""

    __slots__ = ("layers", "size")
    parted = False

    def __init__(self, layers: Sequence[Ids]) -> None:
        self.layers = layers
        self.size = sum(map(len, layers))

    def count(self) -> tuple[int, bool]:
        return 1 + sum((1 << len(layer)) - 1 for layer in self.layers), True

    def lost(self, d: int) -> Iterator[Ids]:
        above: Ids = ()
        for layer in reversed(self.layers):
            if d <= len(above) + len(layer):
                for some in combinations(layer, d - len(above)):
                    yield some + above
                return
            above = layer + above
        if d == 0:
            yield ()

    def kept(self, d: int) -> Iterator[Ids]:
        below: Ids = ()
        for layer in self.layers:
            if d <= len(below) + len(layer):
                for some in combinations(layer, d - len(below)):
                    yield below + some
                return
            below += layer
        if d == 0:
            yield ()

    def newer(self, since: int) -> Ids:
        return tuple(id_ for layer in self.layers for id_ in layer if id_ >= since)

    def older(self, since: int) -> Layers:
        # a layer is one event, so that it is new as a whole
        return Layers([layer for layer in self.layers if layer[0] < since])


class Sizes:
    """The steps of one file's size: a chain, in which an extension may persist up to a block boundary."""

    __slots__ = ("graph", "ids", "size")
    parted = True

    def __init__(self, graph: PersistenceGraph, ids: Ids) -> None:
        self.graph = graph
        self.ids = ids
        self.size = len(ids)

    def count(self) -> tuple[int, bool]:
        return 1 + sum(1 + int(self.graph.parts[id_]) for id_ in self.ids), True

    def _parts(self, id_: int) -> Iterator[int]:
        return (self.graph.part(id_, index) for index in range(int(self.graph.parts[id_])))

    def lost(self, d: int) -> Iterator[Ids]:
        at = self.size - d
        yield self.ids[at:]
        if d:
            for part in self._parts(self.ids[at]):
                yield (*self.ids[at + 1 :], part)

    def kept(self, d: int) -> Iterator[Ids]:
        yield self.ids[:d]
        if d:
            for part in self._parts(self.ids[d - 1]):
                yield (*self.ids[: d - 1], part)

    def newer(self, since: int) -> Ids:
        return tuple(id_ for id_ in self.ids if id_ >= since)

    def older(self, since: int) -> Sizes:
        return Sizes(self.graph, tuple(id_ for id_ in self.ids if id_ < since))
