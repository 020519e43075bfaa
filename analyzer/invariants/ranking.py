"""The order in which groups of update behaviours are tested: a score for each, with the reasons for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice

import numpy as np

from crashcheck.analyzer.arrays import distinct_rows, ranges, sort_rows
from crashcheck.analyzer.behaviours import BehaviourGroup, Behaviours, StaticSite
from crashcheck.analyzer.invariants.numbers import QUERIES, QUERY_PIECES
from crashcheck.analyzer.invariants.queries import StateQuery
from crashcheck.analyzer.invariants.rules import LikelyInvariant
from crashcheck.analyzer.persistence.pieces import Ints


@dataclass(frozen=True, slots=True)
class Scores:
    """How much each part of a group's score weighs."""

    changed: float = 4.0
    violates: float = 2.0
    small: float = 1.0


SCORES = Scores()


@dataclass(frozen=True, slots=True)
class RankedGroup:
    """`score`: the higher, the earlier it is tested. `because`: the reasons, the weightiest first."""

    group: BehaviourGroup
    score: float
    because: tuple[str, ...]


def rank_groups(
    found: Behaviours,
    made: Sequence[BehaviourGroup],
    *,
    invariants: Iterable[LikelyInvariant] = (),
    queries: Iterable[StateQuery] = (),
    changed: Callable[[StaticSite], bool] | None = None,
    scores: Scores = SCORES,
) -> tuple[RankedGroup, ...]:
    """`made` from the most likely to fail to the least likely, numbered again from 1.

    The score is 4 c + 2 v + s, or as `scores` weigh them, each in [0, 1]:
    c: the part of the representative's sites that are new by `changed`;
    v: 1 - the product of (1 - w / 2) over the likely invariants that a feasible state of a member violates, where w is
       how often the run held the invariant, of all times that it met it;
    s: 1 / the number of the representative's updates: the paper tests the small ones first.
    Equal scores keep the order of `made`.
    """
    violated = _violated(found, made, invariants, queries)
    scored = []
    for at, group in enumerate(made):
        reasons = [
            _weighed(scores.changed, _changed(group, changed) if changed is not None else _NONE),
            _weighed(scores.violates, _violates(violated[at])),
            _weighed(scores.small, _small(group)),
        ]
        reasons.sort(key=lambda reason: -reason[0])
        score = round(sum(weight for weight, _ in reasons), 6)
        scored.append((score, at, tuple(text for _, text in reasons if text)))
    scored.sort(key=lambda entry: (-entry[0], entry[1]))
    return tuple(
        RankedGroup(replace(made[at], number=number), score, because)
        for number, (score, at, because) in enumerate(scored, 1)
    )


_Reason = tuple[float, str]  # in [0, 1], and the reason in words; "" where there is none
_NONE: _Reason = (0.0, "")


def _weighed(weight: float, reason: _Reason) -> _Reason:
    value, text = reason
    return (weight * value, text) if weight else _NONE


def _changed(group: BehaviourGroup, changed: Callable[[StaticSite], bool]) -> _Reason:
    new = sum(changed(site) for site in group.sites)
    return (new / len(group.sites), f"{new} of {len(group.sites)} sites changed") if new else _NONE


def _violates(broken: Sequence[LikelyInvariant]) -> _Reason:
    if not broken:
        return _NONE
    left = 1.0
    for each in broken:
        left *= 1 - _trust(each) / 2
    most = max(broken, key=lambda each: (_trust(each), each.held, -each.number))
    more = f" and {len(broken) - 1} more" if len(broken) > 1 else ""
    return 1 - left, f"may violate {most.text}{more}"


def _small(group: BehaviourGroup) -> _Reason:
    size = max(1, group.size)
    return 1 / size, f"{size} update{'s' * (size != 1)}"


def _members(group: BehaviourGroup) -> Ints:
    return np.concatenate(group.members_by_pattern) if group.members_by_pattern else np.array([group.representative.id])


def _trust(invariant: LikelyInvariant) -> float:
    """How likely the next update is to hold it (Laplace): one that is violated each time is doubted, not dismissed."""
    return (invariant.held + 1) / (invariant.held + invariant.violated + 2)


def _violated(
    found: Behaviours,
    made: Sequence[BehaviourGroup],
    invariants: Iterable[LikelyInvariant],
    queries: Iterable[StateQuery],
) -> list[list[LikelyInvariant]]:
    """For each group the invariants that a query touching one of its members violates."""
    out: list[list[LikelyInvariant]] = [[] for _ in made]
    known: Mapping[int, LikelyInvariant] = {each.number: each for each in invariants}
    asked, many, left = [], [], QUERY_PIECES
    for query in islice(queries, QUERIES):
        if query.invariant in known:
            asked.append(query)
            many.append(len(query.persisted) + len(query.unpersisted))
            left -= many[-1]
        if left <= 0:
            break
    if not asked:
        return out
    number = np.repeat(np.array([query.invariant for query in asked], dtype=np.int64), many)
    pieces = chain.from_iterable(chain(query.persisted, query.unpersisted) for query in asked)
    number, piece = distinct_rows(number, np.fromiter(pieces, dtype=np.int64, count=len(number)))
    member, behaviour = _behaviours(found, piece)
    number, behaviour = distinct_rows(number[member], behaviour)
    members = [_members(group) for group in made]
    belongs, group_of = distinct_rows(
        np.concatenate(members), np.repeat(np.arange(len(made)), [len(m) for m in members])
    )
    low = np.searchsorted(belongs, behaviour)
    each = np.searchsorted(belongs, behaviour, side="right") - low
    at, number = distinct_rows(group_of[ranges(low, each)], np.repeat(number, each))
    for group, invariant in zip(at.tolist(), number.tolist(), strict=True):
        out[group].append(known[invariant])
    return out


def _behaviours(found: Behaviours, piece: Ints) -> tuple[Ints, Ints]:
    """(place in `piece`, behaviour): which behaviours the pieces belong to."""
    nodes = found.nodes
    node = nodes.of_pieces(np.arange(len(nodes)))[piece]
    order, _ = sort_rows(found.row_node)
    sorted_node = found.row_node[order]
    low = np.searchsorted(sorted_node, node)
    many = np.searchsorted(sorted_node, node, side="right") - low
    row = order[ranges(low, many)]
    return np.repeat(np.arange(len(piece)), many), np.searchsorted(found.start, row, side="right") - 1
