"""Sets of atoms that are defined by each other, loops included: solved to what they hold in the end."""

from __future__ import annotations

from crashcheck.analyzer.compile.dependence.summaries import Atoms


class Equations:
    """Sets are integers, a bit for each of `atoms`; an `inner` bit stands for the set that its equation gives."""

    def __init__(self, atoms: list[int], equations: dict[int, int], inner: int) -> None:
        self.atoms = atoms
        self.inner = inner
        self.known: dict[int, Atoms] = {}
        changed = True
        while changed:
            changed = False
            for made, meaning in equations.items():
                grown = meaning
                rest = meaning & inner & ~made
                while rest:
                    low = rest & -rest
                    grown |= equations[low]
                    rest ^= low
                if grown != meaning:
                    equations[made] = grown
                    changed = True
        self.equations = equations

    def resolve(self, bits: int) -> Atoms:
        """The atoms of a set, those of its inner bits among them, in order."""
        known = self.known.get(bits)
        if known is None:
            whole = bits
            rest = bits & self.inner
            while rest:
                low = rest & -rest
                whole |= self.equations[low]
                rest ^= low
            whole &= ~self.inner
            found = []
            while whole:
                low = whole & -whole
                found.append(self.atoms[low.bit_length() - 1])
                whole ^= low
            known = self.known[bits] = tuple(sorted(found))
        return known
