"""The represents relation: which update behaviour can be tested instead of which other one (Pathfinder §3.4).

A represents B if B's updates can be matched to updates of A, one to one and at equal static sites, so that A orders no
two of the matched updates that B leaves unordered. Then each crash state of B has a counterpart among A's: the matched
updates lost and kept in the same way. Without a match of single updates a short, correct run of a loop would represent
a longer one that forgets a flush in its last turn.

1. The relation is sound: what is reported as represented is. The converse does not hold. Of all matches two are tried
   (the oldest updates of each site, and the newest), and behaviours above `MATCHED` updates are compared by their sites
   alone; what is missed by that founds a group of its own, and costs states, not bugs.
2. A behaviour represents itself.
3. What represents a behaviour precedes it in `group_represented`: representatives are maximal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.behaviours.numbers import MATCHED
from crashcheck.analyzer.persistence.pieces import Ints


@dataclass(frozen=True, eq=False)
class BehaviourOrder:
    """What the relation sees of a behaviour: its updates, and which of them must persist before which.

    Parallel arrays, one row per update, oldest first: `site` numbers its static site, `issued` and `durable` are the
    events at which it was stored and from which it has persisted, `line` is the granule that keeps its order (a number
    of its own where none does), and `kept` shows whether it has persisted when its operation is acknowledged.
    """

    site: Ints
    issued: Ints
    durable: Ints
    line: Ints
    kept: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.site)

    @cached_property
    def sites(self) -> dict[int, int]:
        """How many updates each site has here."""
        names, counts = np.unique(self.site, return_counts=True)
        return dict(zip(names.tolist(), counts.tolist(), strict=True))

    @cached_property
    def orders(self) -> int:
        """How many pairs of updates are ordered, and updates kept: the fewer, the more crash states."""
        if len(self) <= MATCHED:
            return int(self.precedes(np.arange(len(self))).sum() + self.kept.sum())
        return int((len(self) - np.searchsorted(self.issued, self.durable)).sum() + self.kept.sum())

    def precedes(self, rows: Ints) -> NDArray[np.bool_]:
        """Among `rows`: whether the first must have persisted before the second may."""
        issued, line = self.issued[rows], self.line[rows]
        by_fence = self.durable[rows][:, None] <= issued[None, :]
        by_line = (line[:, None] == line[None, :]) & (issued[:, None] < issued[None, :])
        before: NDArray[np.bool_] = by_fence | by_line
        return before

    def represents(self, other: BehaviourOrder) -> bool:
        """Definition 3.5, update by update: N2 ⊆~ N1 with |N1~(N2)| = |N2|, and E(N1 image) ⊆~ E(N2)."""
        if any(count > self.sites.get(site, 0) for site, count in other.sites.items()):
            return False
        if len(other) > MATCHED:
            return self._surely_freer(other)
        wanted = other.precedes(np.arange(len(other)))
        oldest = self._matched(other, newest=False)
        matches = [oldest]
        if any(count < self.sites[site] for site, count in other.sites.items()):
            matches.append(self._matched(other, newest=True))
        return any(
            not (self.kept[match] & ~other.kept).any() and not (self.precedes(match) & ~wanted).any()
            for match in matches
        )

    def _matched(self, other: BehaviourOrder, *, newest: bool) -> Ints:
        """The row here that represents each of other's rows: the i-th of a site for the i-th, from one end."""
        mine, theirs = np.argsort(self.site, kind="stable"), np.argsort(other.site, kind="stable")
        match = np.empty(len(other), dtype=np.int64)
        at = 0
        starts = np.searchsorted(self.site[mine], list(other.sites))
        for start, (site, count) in zip(starts.tolist(), other.sites.items(), strict=True):
            first = start + (self.sites[site] - count if newest else 0)
            match[theirs[at : at + count]] = mine[first : first + count]
            at += count
        return match

    def _surely_freer(self, other: BehaviourOrder) -> bool:
        """Whether nothing is ordered here, and nothing kept, at other's sites: then any match will do."""
        rows = np.flatnonzero(np.isin(self.site, list(other.sites)))
        if self.kept[rows].any() or int(self.durable[rows].min()) <= int(self.issued[rows].max()):
            return False
        return len(np.unique(self.line[rows])) == len(rows)


def group_represented(shapes: Sequence[BehaviourOrder], rank: Sequence[int] = ()) -> list[tuple[int, list[int]]]:
    """Groups of behaviours: (the place of the representative, the places of all members, its own first), in the paper's
    way.

    From the largest to the smallest, each joins every group whose representative represents it; one that none
    represents founds a group. "Largest" is by updates, and among equally many by how little is ordered; `rank` decides
    between equals, lower first.
    """
    rank = rank or range(len(shapes))
    order = sorted(range(len(shapes)), key=lambda at: (-len(shapes[at]), shapes[at].orders, rank[at]))
    groups: list[tuple[int, list[int]]] = []
    by_site: dict[int, list[int]] = {}  # groups with that site, so that not all are asked
    for at in order:
        shape = shapes[at]
        candidates = min((by_site.get(site, []) for site in shape.sites), key=len, default=[])
        found = False
        for group in candidates:
            representative, members = groups[group]
            if shapes[representative].represents(shape):
                members.append(at)
                found = True
        if not found:
            for site in shape.sites:
                by_site.setdefault(site, []).append(len(groups))
            groups.append((at, [at]))
    return groups
