"""Order ideals of any partial order of one granule's pieces, by bit masks: quadratic, and counted within a budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.checker.states.ideals import Ids

# Sub-problems that counting the ideals of one granule may take before it settles for a bound.
COUNT_BUDGET = 50_000


class Order:
    """Any partial order, given by what must persist just before each piece. Ids ascend along it.

    Parts of extensions: where `graph` is given, a piece with parts may be kept in part, if nothing kept needs
    the whole.
    """

    __slots__ = ("_masks", "before", "graph", "ids", "size")

    def __init__(self, ids: Ids, before: Sequence[Ids], graph: PersistenceGraph | None = None) -> None:
        self.ids = ids
        self.size = len(ids)
        self.before = before
        self.graph = graph if graph is not None and any(int(graph.parts[i]) for i in ids) else None
        self._masks: tuple[list[int], list[int]] | None = None

    def _related(self) -> tuple[list[int], list[int]]:
        """Bitmasks over the pieces: each with what it needs, and each with what needs it, itself included.

        They are made when they are first needed.
        """
        if self._masks is None:
            place = {id_: at for at, id_ in enumerate(self.ids)}
            below: list[int] = []
            for at, befores in enumerate(self.before):
                mask = 1 << at
                for id_ in befores:
                    mask |= below[place[id_]]
                below.append(mask)
            above = [1 << at for at in range(self.size)]
            for at in range(self.size - 1, -1, -1):
                for id_ in self.before[at]:
                    above[place[id_]] |= above[at]
            self._masks = below, above
        return self._masks

    @property
    def _below(self) -> list[int]:
        return self._related()[0]

    @property
    def _above(self) -> list[int]:
        return self._related()[1]

    @property
    def parted(self) -> bool:
        return self.graph is not None

    def count(self) -> tuple[int, bool]:
        if self.graph is not None:
            return self._count_parts()
        try:
            return _Counter(self._below, self._above).count((1 << self.size) - 1), True
        except _TooMany:
            return self._chain_bound(), False

    def _count_parts(self) -> tuple[int, bool]:
        # A part is one more ideal between "without the piece" and "with it": a chain of new elements below it.
        assert self.graph is not None
        ids: list[int] = []
        before: list[Ids] = []
        for id_, befores in zip(self.ids, self.before, strict=True):
            previous = tuple(-1 - b for b in befores)
            for index in range(int(self.graph.parts[id_])):
                ids.append(self.graph.part(id_, index))
                before.append(previous)
                previous = (ids[-1],)
            ids.append(-1 - id_)
            before.append(previous)
        return Order(tuple(ids), before).count()

    def _chain_bound(self) -> int:
        """Product over a greedy chain cover: an ideal is fixed by how far it reaches up each chain."""
        tops: list[int] = []
        lengths: list[int] = []
        for at in range(self.size):
            for chain, top in enumerate(tops):
                if self._below[at] >> top & 1:
                    tops[chain] = at
                    lengths[chain] += 1
                    break
            else:
                tops.append(at)
                lengths.append(1)
        bound = 1
        for length in lengths:
            bound *= length + 1
        return bound

    def _names(self, mask: int) -> Ids:
        out = []
        while mask:
            low = mask & -mask
            out.append(self.ids[low.bit_length() - 1])
            mask ^= low
        return tuple(out)

    def _down(self, d: int) -> Iterator[int]:
        """Ideals of exactly d pieces, as masks; no branch of the search is a dead end."""

        def search(chosen: int, free: int, need: int) -> Iterator[int]:
            # free: pieces that may still join, each needing only chosen and free ones; all of higher rank
            if not need:
                yield chosen
                return
            while free.bit_count() >= need:
                low = free & -free
                free ^= low
                yield from search(chosen | low, free, need - 1)
                free &= ~self._above[low.bit_length() - 1]

        yield from search(0, (1 << self.size) - 1, d)

    def _up(self, d: int) -> Iterator[int]:
        """The complements of ideals, of exactly d pieces."""

        def search(chosen: int, free: int, need: int) -> Iterator[int]:
            if not need:
                yield chosen
                return
            while free.bit_count() >= need:
                at = free.bit_length() - 1
                free ^= 1 << at
                yield from search(chosen | 1 << at, free, need - 1)
                free &= ~self._below[at]

        yield from search(0, (1 << self.size) - 1, d)

    def lost(self, d: int) -> Iterator[Ids]:
        for mask in self._up(d):
            names = self._names(mask)
            if self.graph is None:
                yield names
            else:
                yield from self._with_parts(names, mask, lost=True)

    def kept(self, d: int) -> Iterator[Ids]:
        for mask in self._down(d):
            names = self._names(mask)
            if self.graph is None:
                yield names
            else:
                yield from self._with_parts(names, mask, lost=False)

    def _with_parts(self, names: Ids, mask: int, lost: bool) -> Iterator[Ids]:
        """The ideal itself, and those that hold a part of some of its border pieces instead of none or all."""
        assert self.graph is not None
        border = []
        for id_ in names:
            at = self.ids.index(id_)
            rest = (self._below if lost else self._above)[at] & ~(1 << at)
            if self.graph.parts[id_] and not rest & mask:
                border.append(id_)

        def search(at: int, chosen: Ids) -> Iterator[Ids]:
            if at == len(border):
                swapped = {self.graph.whole(part) for part in chosen}  # type: ignore[union-attr]
                yield tuple(id_ for id_ in names if id_ not in swapped) + tuple(sorted(chosen))
                return
            yield from search(at + 1, chosen)
            for index in range(int(self.graph.parts[border[at]])):  # type: ignore[union-attr]
                yield from search(at + 1, (*chosen, self.graph.part(border[at], index)))  # type: ignore[union-attr]

        yield from search(0, ())

    def newer(self, since: int) -> Ids:
        return tuple(id_ for id_ in self.ids if id_ >= since)

    def older(self, since: int) -> Order:
        ids = tuple(id_ for id_ in self.ids if id_ < since)
        return Order(ids, self.before[: len(ids)], self.graph)


class _TooMany(Exception):
    pass


class _Counter:
    """Counts ideals by deciding one piece at a time; independent parts multiply, equal sub-orders count once."""

    def __init__(self, below: Sequence[int], above: Sequence[int]) -> None:
        self.below = below
        self.above = above
        self.known: dict[int, int] = {0: 1}

    def count(self, mask: int) -> int:
        known = self.known.get(mask)
        if known is not None:
            return known
        if len(self.known) > COUNT_BUDGET:
            raise _TooMany
        product = 1
        for part in self._split(mask):
            inside = self.known.get(part)
            if inside is None:
                # the piece that decides most: out takes all above it out, in takes all below it in
                pivot = max(
                    _bits(part),
                    key=lambda at: ((self.below[at] & part).bit_count() * (self.above[at] & part).bit_count(), -at),
                )
                try:
                    inside = self.count(part & ~self.above[pivot]) + self.count(part & ~self.below[pivot])
                except RecursionError:
                    raise _TooMany from None
                self.known[part] = inside
            product *= inside
        self.known[mask] = product
        return product

    def _split(self, mask: int) -> Iterator[int]:
        """Connected parts of the order restricted to `mask`."""
        while mask:
            part = mask & -mask
            border = part
            while border:
                reach = 0
                for at in _bits(border):
                    reach |= self.below[at] | self.above[at]
                border = reach & mask & ~part
                part |= border
            yield part
            mask &= ~part


def _bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
