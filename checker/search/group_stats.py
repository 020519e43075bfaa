"""The results of each group's states: counted while a search runs, listed in rows at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.behaviours import Behaviour
from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.results import GraphEdge, GraphNode, GroupRow, GroupVerdict, Location, Outcome
from crashcheck.checker.strategies.plan import Choice, Planned
from crashcheck.checker.subject import Subject
from crashcheck.interruption import KeepOn, always

MOST_ROWS = 500
_MOST_NODES = 40
_MOST_STEPS = 4_000_000  # of counting the sets of all representatives (Representative.feasible)
_MOST_PICTURES = 100  # of the first groups
_MOST_EVENTS = 200_000  # a behaviour that lasts longer is drawn without edges


class GroupStats:
    """Verdicts by group. Choices are named by their place in the order in which the plan made them."""

    def __init__(self) -> None:
        self._executed: Counter[int] = Counter()
        self._failing: Counter[int] = Counter()
        self._hanging: Counter[int] = Counter()
        self._failed: dict[int, Outcome] = {}
        self._same: dict[int, int] = {}
        self._left: dict[int, int] = {}
        self._group: dict[int, int] = {}  # of each place that was executed for one
        self._shared: dict[int, set[int]] = {}  # places of equal images that others asked for

    def executed(self, place: int, choice: Choice) -> None:
        self._executed[choice.group] += 1
        if choice.group:
            self._group[place] = choice.group

    def failed(self, place: int, choice: Choice, outcome: Outcome) -> None:
        """A choice that was executed failed, and failed again."""
        self._failed[place] = outcome
        self._failing[choice.group] += 1
        self._hanging[choice.group] += outcome is Outcome.TIMEOUT

    def same(self, place: int, choice: Choice, as_place: int) -> None:
        """A choice was not executed, because its image is that of an earlier one."""
        self._same[place] = as_place
        if choice.group and self._group.get(as_place) != choice.group:
            self._shared.setdefault(choice.group, set()).add(as_place)

    def left(self, place: int, choice: Choice) -> None:
        """A choice that the search came to, but did not execute."""
        self._left[place] = choice.group

    def rows(
        self, subject: Subject, groups: Sequence[Planned], keep_on: KeepOn = always
    ) -> tuple[tuple[GroupRow, ...], int]:
        """One row for each of the first MOST_ROWS groups; and how many of them are complete.

        Once `keep_on` raises OutOfTime, a row has no picture, and an upper bound instead of the number of its states.
        """
        cut_off = set(self._left.values())
        shown = groups[:MOST_ROWS]
        most_steps = _MOST_STEPS // max(20, len(shown))
        rows = []
        complete = len(shown)
        for at, planned in enumerate(shown):
            if complete == len(shown):
                try:
                    keep_on()
                except OutOfTime:
                    complete = at
            in_full = complete == len(shown)
            rows.append(self._row(subject, planned, planned.number in cut_off, most_steps if in_full else 0, in_full))
        return tuple(rows), complete

    def _row(self, subject: Subject, planned: Planned, cut_off: bool, most_steps: int, drawn: bool) -> GroupRow:
        number, group = planned.number, planned.ranked.group
        shared = {self._same.get(place, place) for place in planned.shared} | self._shared.get(number, set())
        shared = {place for place in shared if self._group.get(place) != number}
        unseen = shared & self._left.keys()
        failed = [self._failed[place] for place in shared if place in self._failed]
        executed = self._executed[number] + len(shared - unseen)
        failing = self._failing[number] + len(failed)
        hanging = self._hanging[number] + sum(outcome is Outcome.TIMEOUT for outcome in failed)
        if not executed:
            verdict = GroupVerdict.UNTESTED
        elif not failing:
            verdict = GroupVerdict.CLEAN
        else:
            verdict = GroupVerdict.HANGS if hanging == failing else GroupVerdict.FAILING
        behaviour = group.representative
        feasible, exact = planned.representative.feasible(most_steps)
        nodes, edges = picture(subject, behaviour) if drawn and number <= _MOST_PICTURES else ((), ())
        return GroupRow(
            rank=number,
            types=group.types,
            instance=behaviour.instance,
            operation=behaviour.operation,
            members=group.members,
            updates=group.size,
            sites=_sites(subject, behaviour),
            score=planned.ranked.score,
            because=planned.ranked.because,
            feasible=feasible,
            feasible_exact=exact,
            executed=executed,
            failing=failing,
            complete=planned.complete and not cut_off and not unseen,
            verdict=verdict,
            nodes=nodes,
            edges=edges,
        )


def _sites(subject: Subject, behaviour: Behaviour) -> tuple[Location, ...]:
    events = unique(subject.graph.event[np.array(behaviour.pieces, dtype=np.int64)])
    places = (subject.provenance.of(event) for event in sorted(subject.trace.one_of_each_call(events)))
    return tuple(dict.fromkeys(place for place in places if place is not None))


def picture(subject: Subject, behaviour: Behaviour) -> tuple[tuple[GraphNode, ...], tuple[GraphEdge, ...]]:
    """A behaviour's first updates and what orders them; no edges if it lasts very long."""
    graph = subject.graph
    wanted = behaviour.pieces[:_MOST_NODES]
    low, high = int(graph.event[wanted[0]]), int(graph.event[wanted[-1]]) + 1
    edges: tuple[GraphEdge, ...] = ()
    if high - low <= _MOST_EVENTS:
        _, reasons = graph.order(wanted)
        edges = tuple(GraphEdge(before, after, reason) for (before, after), reason in sorted(reasons.items()))
    nodes = []
    for id_ in wanted:
        piece, place = graph.piece(id_), subject.provenance.of(int(graph.event[id_]))
        where = f"{subject.path_of(id_)}[{piece.offset:#x}]"
        label = place.variable if place is not None and place.variable else where
        granule = piece.offset // graph.granule_bytes if piece.kind == "data" else -1
        nodes.append(GraphNode(id_, label, "", granule, place))
    return tuple(nodes), edges
