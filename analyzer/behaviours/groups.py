"""Groups of update behaviours: the representative is tested for all members of its group (Pathfinder §3.4)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from crashcheck.analyzer.arrays import distinct_rows, number_rows, sort_rows
from crashcheck.analyzer.behaviours.behaviour import Behaviour, Behaviours
from crashcheck.analyzer.behaviours.represents import Signature, group_represented
from crashcheck.analyzer.behaviours.sites import StaticSite
from crashcheck.analyzer.persistence.pieces import Ints

_WIDE = 16  # granules: beyond so many, a behaviour with more is not preferred as a representative


@dataclass(frozen=True, slots=True)
class BehaviourGroup:
    """`members` counts behaviours (one may belong to several groups); `types` are theirs, the representative's first.

    `sites` are the representative's static sites in the order of its updates; `signatures` is how many different sets
    of sites and orders the group joins. `members_by_pattern` are the members' numbers: those that are equal node by
    node together, in the order in which they would represent, the representative's first.
    """

    number: int
    representative: Behaviour
    sites: tuple[StaticSite, ...]
    members: int
    signatures: int
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

    Among behaviours with equal signatures the one that spans most granules represents (its layout leaves most open), of
    these the one with the fewest nodes, of these the earliest.
    """
    if not len(found):
        return ()
    patterns = _patterns(found)
    by_signature: dict[Signature, list[int]] = {}
    for pattern, behaviour in enumerate(patterns.best.tolist()):
        by_signature.setdefault(signature_of(found, behaviour), []).append(pattern)
    rank = _ranks(found)
    signatures = list(by_signature)
    made = []
    for chosen, members in group_represented(signatures):
        equal = by_signature[signatures[chosen]]
        best = min((int(patterns.best[p]) for p in equal), key=lambda behaviour: int(rank[behaviour]))
        representative = found.behaviour(best)
        within = [p for member in members for p in by_signature[signatures[member]]]
        types = {found.instances.types[t] for p in within for t in patterns.types[p]}
        made.append(
            (
                representative,
                _sites(found, representative),
                int(patterns.many[within].sum()),
                len(members),
                (representative.type, *sorted(types - {representative.type})),
                _first(best, [patterns.members[p] for p in within]),
            )
        )
    made.sort(key=lambda group: (len(group[0].nodes), len(group[0].pieces), group[0].first, group[0].id))
    return tuple(BehaviourGroup(number, *group) for number, group in enumerate(made, 1))


def _first(behaviour: int, patterns: list[Ints]) -> tuple[Ints, ...]:
    """The members by pattern: the representative's own pattern first, and the representative first in it."""
    own = next(at for at, members in enumerate(patterns) if int(members[0]) == behaviour)
    return (patterns[own], *patterns[:own], *patterns[own + 1 :])


def _sites(found: Behaviours, behaviour: Behaviour) -> tuple[StaticSite, ...]:
    labels = dict.fromkeys(found.label[list(behaviour.nodes)].tolist())
    return tuple(found.sites.sites[label] for label in labels)


def signature_of(found: Behaviours, behaviour: int) -> Signature:
    """The behaviour's sites and their order, with one site more: the acknowledgement that follows an update.

    What must have persisted by the acknowledgement precedes that site, so that a behaviour which leaves an
    update unpersisted is not taken to be represented by one that does not. It has the number len(found.sites.sites).
    """
    own = found.nodes_of(behaviour)
    label, event = found.label[own], found.nodes.event[own]
    durable, granule = found.nodes.durable_from[own], found.nodes.granule[own]
    ordered = found.nodes.ordered[own]
    names, local = np.unique(label, return_inverse=True)
    local = local.reshape(-1)
    acknowledged = len(found.sites.sites)
    # a site precedes another if the first to persist of the one does so before the last issued of the other
    soonest = np.full(len(names), 1 << 62, dtype=np.int64)
    np.minimum.at(soonest, local, durable)
    newest = np.full(len(names), -1, dtype=np.int64)
    np.maximum.at(newest, local, event)
    before = soonest[:, None] <= newest[None, :]
    # and so if they meet in a granule
    for each in np.unique(granule[ordered]).tolist():
        mine = ordered & (granule == each)
        if int(mine.sum()) < 2:
            continue
        oldest = np.full(len(names), 1 << 62, dtype=np.int64)
        np.minimum.at(oldest, local[mine], event[mine])
        latest = np.full(len(names), -1, dtype=np.int64)
        np.maximum.at(latest, local[mine], event[mine])
        before |= oldest[:, None] < latest[None, :]
    kept = np.zeros(len(names), dtype=np.bool_)
    kept[local[durable <= found.acknowledged[own]]] = True
    after = []
    for at, name in enumerate(names.tolist()):
        mask = 0
        for behind in names[before[at]].tolist():
            mask |= 1 << behind
        if kept[at]:
            mask |= 1 << acknowledged
        if mask:
            after.append((name, mask))
    sites = 1 << acknowledged
    for name in names.tolist():
        sites |= 1 << name
    return Signature(sites, tuple(after))


def _patterns(found: Behaviours) -> _Patterns:
    """Hashes every behaviour at once: equal hashes (128 bits) are equal patterns."""
    order = found.order
    kept = found.nodes.durable_from[found.row_node] <= found.acknowledged[found.row_node]
    ends = order.same_update * 2 + kept.astype(np.int64)
    of = found.hashes(found.label[found.row_node], order.place, order.reach, order.chain, ends)
    number, heads = number_rows(*of)
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
    spans = np.minimum(np.add.reduceat(fresh, found.start[:-1], dtype=np.int64), _WIDE)
    first = found.nodes.event[found.row_node[found.start[:-1]]]
    rank = np.empty(len(found), dtype=np.int64)
    order, _ = sort_rows(-spans, sizes, first)
    rank[order] = np.arange(len(found))
    return rank


__all__ = ["BehaviourGroup", "find_groups", "signature_of"]
