"""Solves equations between sets of atoms that are defined by each other, also in cycles."""

from __future__ import annotations

from collections.abc import Iterator

from crashcheck.analyzer.compile.dependence.summaries import Atoms


class Equations:
    """Sets are integers, a bit for each of `atoms`; an `inner` bit represents the set that its equation gives.

    Sets that are defined by each other hold the same: the equations are solved component by component (Tarjan,
    Depth-first search and linear graph algorithms, 1972), so that the costs of a function grow with its text.
    """

    def __init__(self, atoms: list[int], equations: dict[int, int], inner: int) -> None:
        self.atoms = atoms
        self.inner = inner
        self.known: dict[int, Atoms] = {}
        self._leads_to = {_place(made): list(_places(meaning & inner)) for made, meaning in equations.items()}
        self._holds = {_place(made): meaning & ~inner for made, meaning in equations.items()}  # without inner bits
        self._solved: dict[int, int] = {}
        self._number: dict[int, int] = {}  # in order of discovery
        self._lowest: dict[int, int] = {}  # number that a place leads back to
        self._open: list[int] = []  # discovered, component not complete
        for place in self._leads_to:
            if place not in self._number:
                self._explore(place)

    def _explore(self, root: int) -> None:
        way = [self._discover(root)]
        while way:
            place, left = way[-1]
            following = next(left, None)
            if following is None:
                way.pop()
                if way:
                    before = way[-1][0]
                    self._lowest[before] = min(self._lowest[before], self._lowest[place])
                if self._lowest[place] == self._number[place]:
                    self._complete(place)
            elif following not in self._number:
                way.append(self._discover(following))
            elif following not in self._solved:
                self._lowest[place] = min(self._lowest[place], self._number[following])

    def _discover(self, place: int) -> tuple[int, Iterator[int]]:
        self._number[place] = self._lowest[place] = len(self._number)
        self._open.append(place)
        return place, iter(self._leads_to[place])

    def _complete(self, first: int) -> None:
        """The component whose first discovered place is `first`: all that it leads to outside is solved."""
        at = len(self._open) - 1
        while self._open[at] != first:
            at -= 1
        component = self._open[at:]
        del self._open[at:]
        whole = 0
        for place in component:
            whole |= self._holds[place]
            for following in self._leads_to[place]:
                whole |= self._solved.get(following, 0)
        self._solved.update(dict.fromkeys(component, whole))

    def resolve(self, bits: int) -> Atoms:
        """The atoms of a set, those of its inner bits among them, in order."""
        known = self.known.get(bits)
        if known is None:
            whole = bits & ~self.inner
            for place in _places(bits & self.inner):
                whole |= self._solved[place]
            known = self.known[bits] = tuple(sorted(self.atoms[place] for place in _places(whole)))
        return known


def _place(bit: int) -> int:
    return bit.bit_length() - 1


def _places(bits: int) -> Iterator[int]:
    """The places of all ones, lowest first."""
    while bits:
        low = bits & -bits
        yield _place(low)
        bits ^= low
