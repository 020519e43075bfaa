"""The represents relation: which update behaviour can be tested on behalf of another (Pathfinder §3.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class Signature:
    """What the relation sees of a behaviour: its static sites, and which of them it orders.

    `sites` is a bitmask over site numbers: the nodes up to equivalence (definition 3.3). `order` holds, for each
    site that precedes any, (site, bitmask of the sites that it precedes), ascending: the edges of the transitive
    persist order restricted to the behaviour, up to equivalence (definition 3.4). A site may precede itself.
    """

    sites: int
    order: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, labels: Sequence[int], edges: Iterable[tuple[int, int]]) -> Signature:
        """Of nodes with the site numbers `labels`, and edges as pairs of places in `labels`."""
        sites = 0
        for label in labels:
            sites |= 1 << label
        after: dict[int, int] = {}
        for before, behind in edges:
            after[labels[before]] = after.get(labels[before], 0) | 1 << labels[behind]
        return cls(sites, tuple(sorted(after.items())))

    @cached_property
    def _after(self) -> dict[int, int]:
        return dict(self.order)

    def represents(self, other: Signature) -> bool:
        """Definition 3.5: other's sites are among these, and on them this orders nothing that other does not.

        That is N2 ⊆~ N1 and E(N1 image) ⊆~ E(N2), the image being this behaviour's nodes at other's sites.
        """
        if other.sites & ~self.sites:
            return False
        behind = other._after
        return all(
            not mask & other.sites & ~behind.get(site, 0) for site, mask in self.order if other.sites >> site & 1
        )

    @property
    def many_sites(self) -> int:
        return self.sites.bit_count()

    @property
    def many_orders(self) -> int:
        return sum(mask.bit_count() for _, mask in self.order)


def set_bits(mask: int) -> tuple[int, ...]:
    """The site numbers in a bitmask, ascending."""
    out = []
    while mask:
        low = mask & -mask
        out.append(low.bit_length() - 1)
        mask ^= low
    return tuple(out)


def group_represented(signatures: Sequence[Signature]) -> list[tuple[int, list[int]]]:
    """Groups of signatures: (the place of the representative, the places of all members), in the paper's way.

    From the largest to the smallest, each joins every group whose representative represents it; one that none
    represents begins a group. "Largest" is by sites, and among equally many by how little is ordered: whatever
    represents a signature comes before it, so that representatives are the maximal elements of the relation.
    """
    order = sorted(range(len(signatures)), key=lambda at: (-signatures[at].many_sites, signatures[at].many_orders, at))
    groups: list[tuple[int, list[int]]] = []
    by_site: dict[int, list[int]] = {}  # groups with that site, so that not all are asked
    for at in order:
        own = set_bits(signatures[at].sites)
        candidates = min((by_site.get(site, []) for site in own), key=len, default=[])
        found = False
        for group in candidates:
            representative, members = groups[group]
            if signatures[representative].represents(signatures[at]):
                members.append(at)
                found = True
        if not found:
            for site in own:
                by_site.setdefault(site, []).append(len(groups))
            groups.append((at, [at]))
    return groups
