"""Order ideals of one granule's pending pieces: how many there are, and which drop or keep exactly d pieces.

Every class here has
    size                 number of pieces
    count() -> (n, exact)  number of ideals; an upper bound where `exact` is false
    lost(d), kept(d)     the ideals with exactly d pieces lost (kept), as tuples of the lost (kept) piece ids;
                         neither is empty for 0 <= d <= size
    older(since)         the same for the pieces with ids below `since` (they are an ideal)
    parted               whether an ideal may hold a part of a piece (see PersistenceGraph)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, combinations, islice, product
from typing import Protocol

from crashcheck.analyzer.persistence.graph import PersistenceGraph

Ids = tuple[int, ...]

# Sub-problems that counting the ideals of one granule may take before it settles for a bound.
COUNT_BUDGET = 50_000


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
        for spine in range(min(d, self.spine.size) + 1):
            reach = self._reach(spine)
            if d - spine > self._free(reach):
                continue
            chains = self._open(reach)
            for own in self.spine.kept(spine):
                for others in _products(chains, d - spine, lost=False):
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
            chains = self._open(reach)
            beyond = tuple(id_ for chain in self.chains for event, id_ in chain if event > reach)
            for own in self.spine.lost(spine):
                for others in _products(chains, need, lost=True):
                    yield own + beyond + others

    def newer(self, since: int) -> Ids:
        return self.spine.newer(since) + tuple(id_ for chain in self.chains for _, id_ in chain if id_ >= since)

    def older(self, since: int) -> Rooted:
        chains = [[pair for pair in chain if pair[1] < since] for chain in self.chains]
        return Rooted([pair for pair in self.layers if pair[1][0] < since], [chain for chain in chains if chain])


def _products(chains: Sequence[Chain | Sizes], d: int, *, lost: bool) -> Iterator[Ids]:
    """One ideal of each chain, with exactly d pieces lost (kept) in all."""
    return _Products(chains, lost).of(d)


class _Products:
    """Combinations of ideals, one of each chain."""

    def __init__(self, chains: Sequence[Chain | Sizes], lost: bool) -> None:
        self.chains = chains
        self.lost = lost
        self.room = [*accumulate((chain.size for chain in reversed(chains)), initial=0)][::-1]  # from each chain on

    def of(self, d: int) -> Iterator[Ids]:
        """Those with exactly d pieces lost (kept) in all."""
        # a stack, as there may be more chains than calls may nest
        open_steps: list[Iterator[tuple[int, int, Ids]]] = [iter([(0, d, ())])]
        chosen: list[Ids] = []
        while open_steps:
            step = next(open_steps[-1], None)
            if step is None:
                open_steps.pop()
                del chosen[-1:]
                continue
            start, need, own = step
            if need in (0, self.room[start]):
                for others in self._rest(start, need):
                    yield tuple(id_ for ids in (*chosen, own, *others) for id_ in ids)
            else:
                chosen.append(own)
                open_steps.append(self._steps(start, need))

    def _steps(self, start: int, need: int) -> Iterator[tuple[int, int, Ids]]:
        """An ideal of one more chain, what is needed beside it, and from which chain on."""
        for at in range(start, len(self.chains)):
            if self.room[at] < need:
                return
            for size in range(max(1, need - self.room[at + 1]), min(need, self.chains[at].size) + 1):
                for own in self._ideals(at, size):
                    yield at + 1, need - size, own

    def _rest(self, start: int, need: int) -> Iterator[tuple[Ids, ...]]:
        """Of the chains from `start` on: nothing more, or everything. Found without a step for each chain."""
        chains = range(start, len(self.chains)) if need else ()
        return product(*(tuple(self._ideals(at, self.chains[at].size)) for at in chains))

    def _ideals(self, at: int, size: int) -> Iterator[Ids]:
        return self.chains[at].lost(size) if self.lost else self.chains[at].kept(size)


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
                swapped = {self.graph.whole(part)[0] for part in chosen}  # type: ignore[union-attr]
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
