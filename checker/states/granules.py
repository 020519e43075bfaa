"""What may be lost of one granule at a moment, and of several together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.checker.states.ideals import Ideals, Ids
from crashcheck.interruption import KeepOn, always

_MOST_CHOICES = 1_024  # contents of one granule that are listed; most lines have a dozen


class Choices:
    """What may be lost of one granule's pieces: one choice, of the fewest pieces, for each content that it may have.

    Where there are more than _MOST_CHOICES, several may leave the same content.
    """

    def __init__(self, ideals: Ideals, difference: Callable[[Ids], Hashable]) -> None:
        self.ideals = ideals
        self._difference = difference
        self._by_content: dict[Hashable, Ids] | None = None
        if ideals.count()[0] <= _MOST_CHOICES:
            self._by_content = {}
            for many in range(ideals.size + 1):
                for lost in ideals.lost(many):
                    self._by_content.setdefault(difference(lost), lost)

    def __iter__(self) -> Iterator[Ids]:
        """All but "nothing"."""
        if self._by_content is not None:
            return islice(self._by_content.values(), 1, None)
        return (lost for many in range(1, self.ideals.size + 1) for lost in self.ideals.lost(many))

    @property
    def listed(self) -> bool:
        return self._by_content is not None

    def same(self, lost: Ids) -> Ids:
        """The choice that leaves the same content."""
        return lost if self._by_content is None else self._by_content.get(self._difference(lost), lost)


class Granule:
    """What may be lost of one granule at a moment: whether that is exposed, and whether it is all that is newest there.

    `all`, `alike`, `older`, `older_alike`: how many choices there are, "nothing" among them; those that lose nothing
    exposed; those that hold nothing of the newest; both.
    """

    def __init__(
        self,
        graph: PersistenceGraph,
        choices: Callable[[Ids], Choices],
        ids: Ids,
        exposed: frozenset[int],
        newest: frozenset[int],
    ) -> None:
        self._graph = graph
        self._choices = choices(ids)
        self._exposed = exposed
        self.newest = newest
        if self._choices.listed:
            kinds = [(self.exposes(lost), self.drops(lost)) for lost in self._choices]
            self.all = 1 + len(kinds)
            self.alike = 1 + sum(not exposes for exposes, _ in kinds)
            self.older = sum(drops for _, drops in kinds) if newest else self.all
            self.older_alike = sum(drops and not exposes for exposes, drops in kinds) if newest else self.alike
        else:
            older = frozenset(ids) - newest

            def many(some: frozenset[int]) -> int:
                return choices(tuple(sorted(some))).ideals.count()[0] if some else 1

            self.all = many(frozenset(ids))
            self.alike = many(frozenset(ids) - exposed)
            self.older = many(older)
            self.older_alike = many(older - exposed)

    def __iter__(self) -> Iterator[Ids]:
        return iter(self._choices)

    @property
    def listed(self) -> bool:
        return self._choices.listed

    @cached_property
    def whole(self) -> Ids:
        """All, or the least that leaves the same content."""
        ideals = self._choices.ideals
        return self._choices.same(next(ideals.lost(ideals.size)))

    def exposes(self, lost: Ids) -> bool:
        return any(self._graph.whole(piece) in self._exposed for piece in lost)

    def drops(self, lost: Ids) -> bool:
        return bool(self.newest) and self.newest.issubset(lost)


def together(some: Sequence[Granule], many: int, keep_on: KeepOn = always) -> Iterator[Ids]:
    """What may be lost of exactly so many granules: something exposed, and not all that is newest (if anything is).

    `keep_on` is called for each that is gone through.
    """
    last = max(at for at, each in enumerate(some) if each.all > each.alike)
    newest = sum(bool(each.newest) for each in some)
    return _Together(some, last, newest, keep_on).choose(0, many, False, 0)


@dataclass(frozen=True, slots=True)
class _Together:
    """The choices of `together`. `last`: the last granule that can expose something; `newest`: how many hold some."""

    some: Sequence[Granule]
    last: int
    newest: int
    keep_on: KeepOn

    def choose(self, start: int, left: int, exposing: bool, dropped: int) -> Iterator[Ids]:
        """What `left` granules from `start` on may lose, after others that expose something or not."""
        if not left:
            yield ()
            return
        stop = len(self.some) - left + 1
        for at in range(start, stop if exposing else min(stop, self.last + 1)):
            for lost in self.some[at]:
                self.keep_on()
                exposes = exposing or self.some[at].exposes(lost)
                drops = dropped + self.some[at].drops(lost)
                if self._may_be(at, left, exposes, drops):
                    for others in self.choose(at + 1, left - 1, exposes, drops):
                        yield lost + others

    def _may_be(self, at: int, left: int, exposes: bool, drops: int) -> bool:
        """Whether the rest can still expose something, and some of the newest is held."""
        return (exposes or (left > 1 and at < self.last)) and not (self.newest and drops == self.newest)
