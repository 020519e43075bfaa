"""Groups of update behaviours: the representative is tested for all members of its group (Pathfinder §3.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from crashcheck.analyzer.arrays import distinct_rows, number_rows, sort_rows
from crashcheck.analyzer.behaviours.behaviour import Behaviour, Behaviours
from crashcheck.analyzer.behaviours.numbers import WIDE
from crashcheck.analyzer.behaviours.represents import BehaviourOrder, group_represented
from crashcheck.analyzer.behaviours.sites import StaticSite
from crashcheck.analyzer.persistence.pieces import Ints


@dataclass(frozen=True, slots=True)
class BehaviourGroup:
    """`members` counts behaviours (one may belong to several groups); `types` are theirs, the representative's first.

    `sites` are the representative's static sites in the order of its updates; `patterns` is how many different shapes
    the group joins. `members_by_pattern` are the members' numbers: those that are equal node by node together, in the
    order in which they would represent, the representative's first.
    """

    number: int
    representative: Behaviour
    sites: tuple[StaticSite, ...]
    members: int
    patterns: int
    types: tuple[str, ...]
    members_by_pattern: tuple[Ints, ...] = field(default=(), compare=False, repr=False)

    @property
    def size(self) -> int:
        """Nodes of the representative."""
        return len(self.representative.nodes)


@dataclass(frozen=True, slots=True, eq=False)
class _Patterns:
    """Behaviours that are equal node by node: the same sites in the same order with the same persist relation."""

    of: Ints  # of each behaviour
    best: Ints  # of each pattern, the behaviour that would represent it
    many: Ints
    types: list[tuple[int, ...]]
    members: list[Ints]  # of each pattern, in the order in which they would represent it


def find_groups(found: Behaviours) -> tuple[BehaviourGroup, ...]:
    """The groups of a run, from the smallest representative to the largest: the order in which they are tested.

    Of behaviours that represent each other the one that spans most granules represents (its layout leaves most open),
    of these the one with the fewest nodes, of these the earliest.
    """
    if not len(found):
        return ()
    patterns = _patterns(found)
    rank = _ranks(found)[patterns.best].tolist()
    shapes = [shape_of(found, behaviour) for behaviour in patterns.best.tolist()]
    made = []
    for chosen, members in _by_level(found, patterns, shapes, rank):
        representative = found.behaviour(int(patterns.best[chosen]))
        types = {found.instances.types[t] for p in members for t in patterns.types[p]}
        made.append(
            (
                representative,
                _sites(found, representative),
                int(patterns.many[members].sum()),
                len(members),
                (representative.type, *sorted(types - {representative.type})),
                tuple(patterns.members[p] for p in members),
            )
        )
    made.sort(key=lambda group: (len(group[0].nodes), len(group[0].pieces), group[0].first, group[0].id))
    return tuple(BehaviourGroup(number, *group) for number, group in enumerate(made, 1))


def _by_level(
    found: Behaviours, patterns: _Patterns, shapes: list[BehaviourOrder], rank: list[int]
) -> Iterator[tuple[int, list[int]]]:
    """The groups of each level, the representative first among its members: what functions merge would represent, and
    delay, all that each of them does."""
    level = np.zeros(len(shapes), dtype=np.int64) if found.level is None else found.level[patterns.best]
    for own in range(int(level.max(initial=0)) + 1):
        places = np.flatnonzero(level == own).tolist()
        for chosen, members in group_represented([shapes[at] for at in places], [rank[at] for at in places]):
            yield places[chosen], [places[member] for member in members]


def _sites(found: Behaviours, behaviour: Behaviour) -> tuple[StaticSite, ...]:
    labels = dict.fromkeys(found.label[list(behaviour.nodes)].tolist())
    return tuple(found.sites.sites[label] for label in labels)


def shape_of(found: Behaviours, behaviour: int) -> BehaviourOrder:
    """What the represents relation sees of a behaviour.

    An update is kept if it has persisted when its operation is acknowledged: a behaviour that
    leaves one unpersisted is not represented by one that persists it.
    """
    own = found.nodes_of(behaviour)
    alone = -1 - np.arange(len(own))
    durable = found.nodes.durable_from[own]
    return BehaviourOrder(
        found.label[own],
        found.nodes.event[own],
        durable,
        np.where(found.nodes.ordered[own], found.nodes.granule[own], alone),
        durable <= found.acknowledged[own],
    )


def _patterns(found: Behaviours) -> _Patterns:
    """Hashes every behaviour at once: equal hashes (128 bits) are equal patterns."""
    order = found.order
    kept = found.nodes.durable_from[found.row_node] <= found.acknowledged[found.row_node]
    ends = order.same_update * 2 + kept.astype(np.int64)
    of = found.hashes(found.label[found.row_node], order.place, order.reach, order.chain, ends)
    level = np.zeros(len(found), dtype=np.int64) if found.level is None else found.level
    number, heads = number_rows(*of, level)
    many = np.bincount(number, minlength=len(heads))
    rank = _ranks(found)
    best, _ = sort_rows(number, rank)
    begins = np.concatenate([[0], np.cumsum(many)[:-1]])
    kinds = distinct_rows(number, found.instances.type[found.instance])
    types: list[tuple[int, ...]] = [() for _ in many]
    for pattern, type_ in zip(*(column.tolist() for column in kinds), strict=True):
        types[pattern] = (*types[pattern], type_)
    return _Patterns(number, best[begins], many.astype(np.int64), types, np.split(best, begins[1:]))


def _ranks(found: Behaviours) -> Ints:
    """The place of each behaviour in the order in which behaviours of one signature are preferred."""
    sizes = np.diff(found.start)
    owner = np.repeat(np.arange(len(found)), sizes)
    granule = found.nodes.granule[found.row_node]
    _, fresh = sort_rows(owner, granule)
    spans = np.minimum(np.add.reduceat(fresh, found.start[:-1], dtype=np.int64), WIDE)
    first = found.nodes.event[found.row_node[found.start[:-1]]]
    rank = np.empty(len(found), dtype=np.int64)
    order, _ = sort_rows(-spans, sizes, first)
    rank[order] = np.arange(len(found))
    return rank
