"""The edited trace explored again: the groups that hold what the edit is about first, then as the strategy does.

Each crash state of the edited trace is one of the recorded trace. So the strategy is not asked again for each edit: its
order for the recorded trace, without the states that the edit makes impossible, is one for the edited trace.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np

from crashcheck.analyzer.behaviours import Behaviour, find_behaviours, find_groups
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.findings.register import Bug, Register
from crashcheck.checker.fixes.edited_trace import Counterparts, Rows
from crashcheck.checker.results import SourceFunction
from crashcheck.checker.search.crash_states import TriedImages
from crashcheck.checker.search.timeouts import Patience, raise_timeout
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies.representative import Representative
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts.executor import Executor

MOST_STATES = 500  # with different images, of one edit: bounded so and not by time, it is the same on every machine
_MOST_PLANNED = 5000  # states of the strategy's order
_OF_A_GROUP = 64  # of its representative's cheap states, before the next group has its turn
_SOON = 1024  # crash points after an update at which its loss is tried
_AHEAD = 8  # states submitted before the first of them is asked for
_CLOCK_EVERY = 16  # states between two readings of the clock, where none is run


@dataclass(slots=True)
class Reexplored:
    """What exploring the edited trace gave: its states by the check's verdicts, each image once.

    States of the finding that failed already are in none of `passing`, `failing` and `others`.
    """

    groups: int  # that hold the edited places
    states: int = 0  # with different images
    passing: int = 0
    failing: int = 0  # states of the finding that had not been met before
    others: int = 0  # failing states of other causes
    whole: bool = True  # every state that the strategy plans was covered
    in_time: bool = True  # False: the time for it was spent first


@dataclass(frozen=True, slots=True)
class _Submitted:
    state: CrashState
    fingerprint: bytes
    ticket: int | None  # None: the check has seen this image


class PlannedStates:
    """The states that a strategy chooses of the recorded trace, asked for once however often they are gone through.

    Where the strategy ran out of time, going through them ends with OutOfTime, each time.
    """

    def __init__(self, states: Iterator[CrashState]) -> None:
        self._more = states
        self._known: list[CrashState] = []
        self._spent = False

    def __iter__(self) -> Iterator[CrashState]:
        at = 0
        while True:
            if at == len(self._known):
                following = self._next()
                if following is None:
                    return
                self._known.append(following)
            yield self._known[at]
            at += 1

    def _next(self) -> CrashState | None:
        if self._spent:
            raise OutOfTime
        try:
            return next(self._more, None)
        except OutOfTime:
            self._spent = True
            raise


@dataclass(slots=True, eq=False)
class Reexploration:
    """Explores the edited traces of one finding's candidate fixes, one after the other.

    The check is not run again on states that are known to fail, nor on images that the search has seen.
    """

    subject: Subject
    executor: Executor
    patience: Patience
    planned: PlannedStates  # by the strategy, for the recorded trace
    register: Register
    tried: TriedImages  # what the search and earlier edits ran
    facts: Facts | None
    bug: Bug

    cases: dict[bytes, CrashState]  # the finding's failing states by fingerprint; those found with one edit stay

    def explore(self, counterparts: Counterparts, lost: Rows, about: Rows, ends: float) -> Reexplored:
        """`lost`: all updates at the places whose loss fails; `about`: those at all places of the finding and the edit.

        `ends`: by the monotonic clock.
        """
        if time.monotonic() > ends:
            return Reexplored(0, whole=False, in_time=False)
        space = StateSpace(counterparts.edit.graph)
        at = counterparts.edit.at
        holding = self._holding(space, at[about])
        near = self._near(space, at[lost], holding)
        states = chain((counterparts.recorded(state, space) for state in near), self._far(counterparts))
        found = Reexplored(len(holding))
        submitted: deque[_Submitted] = deque()
        for one in self._submit(states, ends, found):
            submitted.append(one)
            if len(submitted) > _AHEAD:
                self._count(submitted.popleft(), ends, found)
        while submitted:
            self._count(submitted.popleft(), ends, found)
        return found

    def _submit(self, states: Iterator[CrashState | None], ends: float, found: Reexplored) -> Iterator[_Submitted]:
        """Begin the check on each image once; where that ends early, `found` records it."""
        seen: set[bytes] = set()
        ran = False
        for number, state in enumerate(_until_out_of_time(states, found)):
            if (ran or number % _CLOCK_EVERY == 0) and time.monotonic() > ends:
                found.whole = found.in_time = False
                return
            if state is None:
                found.whole = False
                return
            fingerprint = self.subject.content.fingerprint(state)
            if fingerprint in seen:
                continue
            if len(seen) == MOST_STATES:
                found.whole = False
                return
            seen.add(fingerprint)
            found.states += 1
            ran = not any(fingerprint in known for known in (self.tried.passed, self.tried.failed, self.cases))
            yield _Submitted(state, fingerprint, self.executor.submit(state) if ran else None)

    def _count(self, one: _Submitted, ends: float, found: Reexplored) -> None:
        """Wait for the check of an image and count its verdict; a state of the finding joins its `cases`."""
        if one.fingerprint in self.cases:
            return
        try:
            fails = self._fails(one, ends)
            mine = fails and self._is_mine(one)
        except OutOfTime:
            found.whole = found.in_time = False
            return
        if not fails:
            found.passing += 1
        elif mine:
            self.cases[one.fingerprint] = one.state
            found.failing += 1
        else:
            found.others += 1

    def _holding(self, space: StateSpace, events: Rows) -> list[Behaviour]:
        """The representatives of the groups that have one of these updates, from the smallest to the largest."""
        found = find_behaviours(space.graph, self.facts)
        sites = set(found.label[np.isin(found.nodes.event, events)].tolist())
        made = find_groups(found)
        return [group.representative for group in made if any(site.number in sites for site in group.sites)]

    def _near(self, space: StateSpace, lost: Rows, holding: list[Behaviour]) -> Iterator[CrashState]:
        """Of the edited trace."""
        canonical = CanonicalStates(space)
        for state in _losses(space, lost):
            yield canonical.first(state)
        for behaviour in holding:
            for _, state in islice(Representative(canonical, behaviour).cheap(), _OF_A_GROUP):
                yield state

    def _far(self, counterparts: Counterparts) -> Iterator[CrashState | None]:
        """Of the recorded trace; None, last, where the limit on their number ends them."""
        for number, state in enumerate(self.planned):
            if number == _MOST_PLANNED:
                yield None
            if counterparts.feasible(state):
                yield state

    def _fails(self, one: _Submitted, ends: float) -> bool:
        """Fails twice, if it had not been met. Raises OutOfTime where no time is left to find that out."""
        if one.ticket is None:
            return one.fingerprint in self.tried.failed
        verdict = self.executor.result(one.ticket, _left(ends))
        if verdict is None:
            raise OutOfTime
        if verdict.passed:
            raise_timeout(self.executor, verdict)
        elif self.patience.cut_short(one.state, verdict):
            if time.monotonic() > ends:
                raise OutOfTime
            verdict = self.patience.again(one.state)
        else:
            return not self.patience.run(one.state).passed
        if verdict.passed:
            self.tried.passed.add(one.fingerprint)
        return not verdict.passed

    def _is_mine(self, one: _Submitted) -> bool:
        """Whether a failing state is due to the finding: one that the search had not met lost an update of a function
        that it blames, passes with everything persisted, but fails with all that other findings blame persisted."""
        if one.fingerprint in self.tried.failed:
            return False
        subject, bug = self.subject, self.bug
        lost = (subject.place(piece) for piece in subject.space.lost(one.state))
        mine = self._lost_in()
        if not any(place is not None and place.owner in mine for place in lost):
            return False
        if not self.patience.run(subject.space.full(one.state.point)).passed:
            return False
        blamed = [
            piece
            for draft, pieces in self.register.applicable(one.state)
            if not any(draft is own for own in bug.drafts)
            for piece in pieces
        ]
        return not blamed or not self.patience.run(self.register.with_persisted(one.state, blamed)).passed

    def _lost_in(self) -> set[SourceFunction]:
        pieces = [draft.cause.lost for draft in self.bug.drafts if draft.cause.lost is not None]
        places = (self.subject.place(piece) for piece in pieces)
        return {place.owner for place in places if place is not None}


def _left(ends: float) -> float | None:
    return None if math.isinf(ends) else max(0.0, ends - time.monotonic())


def _until_out_of_time(states: Iterator[CrashState | None], found: Reexplored) -> Iterator[CrashState | None]:
    try:
        yield from states
    except OutOfTime:
        found.whole = found.in_time = False


def _losses(space: StateSpace, events: Rows) -> Iterator[CrashState]:
    """Everything persisted but one of these updates, or all of them that may be lost.

    Wherever another update may be durable before they are: each such pair of places once, and once more where an
    operation has ended meanwhile.
    """
    graph, points = space.graph, space.points
    place = graph.trace.calls(slice(None))
    updates = np.unique(graph.event)
    last = np.searchsorted(updates, points.event, side="left") - 1
    mine = np.flatnonzero(np.isin(graph.event, events))
    first = np.searchsorted(points.event, graph.event[mine], side="right")
    end = np.minimum(np.searchsorted(points.event, graph.durable_from[mine], side="left"), first + _SOON)
    seen: set[tuple[int, int, bool]] = set()
    common = np.stack([place[graph.event[mine]].view(np.int64), first, end])  # to the pieces of a large store
    for row in np.sort(np.unique(common, axis=1, return_index=True)[1]).tolist():
        piece, low, high = int(mine[row]), int(first[row]), int(end[row])
        own = int(place[int(graph.event[piece])])
        ended = points.acked[low:high] > (points.acked[low] if low < high else 0)
        keys = np.stack([place[updates[last[low:high]]], ended.astype(np.uint64)], axis=1)
        _, firsts = np.unique(keys, axis=0, return_index=True)
        for at in sorted(firsts.tolist()):
            key = own, int(keys[at, 0]), bool(keys[at, 1])
            if key in seen:
                continue
            seen.add(key)
            point = low + at
            yield space.drop(point, (piece,))
            yield space.drop(point, tuple(np.intersect1d(space.pending_rows(point), mine).tolist()))
