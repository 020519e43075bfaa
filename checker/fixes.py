"""What would mend a finding, tried on the recorded run: the cheapest edit that suffices (docs/fixes.md)."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from crashcheck.checker import explain
from crashcheck.checker.edited import Counterparts, Edited, edited
from crashcheck.checker.executor import Executor
from crashcheck.checker.explore import Tried
from crashcheck.checker.findings import Bug, Register
from crashcheck.checker.mutation import Place
from crashcheck.checker.remedies import Remedies, Remedy, Spot, Step, missing, spot
from crashcheck.checker.result import Edit, Fix, Kind
from crashcheck.checker.states import CrashState, StateSpace
from crashcheck.checker.strategies import Strategy
from crashcheck.checker.subject import Subject

_MOST_EXPLORED = 4  # remedies whose edited traces are explored; the others only meet the failing states
_MOST_SWAPPED = 32
_LOOK_EVERY = 16  # states between two looks at the clock, where none is run

Write = Callable[[Sequence[Step]], tuple[tuple[Edit, ...], str]]  # edits of the source, or why there are none


@dataclass(frozen=True, slots=True)
class _Explored:
    """What exploring an edited trace gave. `others`: failing states that are not the finding's."""

    failing: int
    others: int
    states: int
    whole: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Rated:
    remedy: Remedy
    edit: Edited
    counterparts: Counterparts
    left: int  # failing states of the finding that the edited trace still has
    edits: tuple[Edit, ...]
    no_edit: str


def _rank(one: _Rated) -> tuple[int, bool, int, int]:
    return one.left, not one.edits, one.edit.cost, len(one.remedy.steps)


@dataclass(slots=True, eq=False)
class Fixes:
    """Proposes and tries, for the findings of one search, while its executor is open."""

    subject: Subject
    executor: Executor
    strategy: Strategy
    register: Register
    tried: Tried
    chain: Place
    write: Write
    _remedies: Remedies = field(init=False)

    def __post_init__(self) -> None:
        self._remedies = Remedies(self.subject, self.chain)

    def propose(self, bug: Bug, seconds: float) -> Fix:
        """The cheapest sufficient edit, tried within `seconds`; or the nearest to one; or why no flush can help.

        Edits that can be written into the source come before others, then those with fewer flushes, fences and syncs
        a run.
        """
        ends = time.monotonic() + seconds
        if not any(missing(draft.cause) for draft in bug.drafts):
            return self._hopeless(bug)
        cases = self._cases(bug)
        rated = sorted(self._rate(bug, cases, ends), key=_rank)
        if not rated:
            return Fix("atomic", "no place in the source is known where a flush or a fence could be added")
        best: Fix | None = None
        for one in rated[:_MOST_EXPLORED]:
            if best is not None and one.left >= best.after_failing:
                break
            fix = self._fix(one, len(cases), self._explore(bug, cases, one.counterparts, ends))
            if best is None or fix.after_failing < best.after_failing:
                best = fix
            if not best.after_failing:
                break
        assert best is not None
        return best

    def _rate(self, bug: Bug, cases: dict[bytes, CrashState], ends: float) -> Iterable[_Rated]:
        for remedy in self._remedies.of([draft.cause for draft in bug.drafts]):
            edit = edited(self.subject.graph, remedy.insertions())
            counterparts = Counterparts(self.subject.space, edit)
            left = sum(counterparts.feasible(state) for state in cases.values())
            yield _Rated(remedy, edit, counterparts, left, *self.write(remedy.steps))
            if time.monotonic() > ends and not left:
                return

    def _fix(self, one: _Rated, many: int, explored: _Explored) -> Fix:
        failing = max(one.left, explored.failing)
        verified = f"with this edit: {failing} of {many} failing state{'s' * (many != 1)} fail on this trace"
        extent = "to its end" if explored.whole else "until the time for it was spent"
        verified += f"; explored again by {self.strategy.name} {extent}, {explain.count(explored.states, 'state')}"
        if explored.others:
            verified += f", {explored.others} of which fail for another reason"
        return Fix(
            kind=one.remedy.kind,
            words=one.remedy.words,
            edits=one.edits,
            before_failing=many,
            after_failing=failing,
            verified=verified,
            extra_flushes=one.edit.flushes,
            extra_fences=one.edit.fences,
            extra_syncs=one.edit.syncs,
            no_edit=one.no_edit,
        )

    def _cases(self, bug: Bug) -> dict[bytes, CrashState]:
        """The finding's failing states by fingerprint, in the order in which they were met."""
        found: dict[bytes, CrashState] = {}
        for draft in bug.drafts:
            for state in (draft.cause.state, *draft.cases):
                found.setdefault(self.subject.content.fingerprint(state), state)
        return found

    # -- exploring again

    def _explore(self, bug: Bug, cases: dict[bytes, CrashState], counterparts: Counterparts, ends: float) -> _Explored:
        """The edited trace by the search's strategy; the check is not asked again about images that it has seen."""
        space = StateSpace(counterparts.edit.graph)
        seen: set[bytes] = set()
        failing = others = 0
        mine = self._lost_spots(bug)
        ran = False
        for number, choice in enumerate(self.strategy.plan(space).choices()):
            if (ran or number % _LOOK_EVERY == 0) and time.monotonic() > ends:
                return _Explored(failing, others, len(seen), False)
            state = counterparts.recorded(choice.state, space)
            fingerprint = self.subject.content.fingerprint(state)
            if fingerprint in seen:
                continue
            seen.add(fingerprint)
            ran = fingerprint not in self.tried.passed and fingerprint not in self.tried.failed
            if not self._fails(state, fingerprint):
                continue
            if fingerprint in cases or (fingerprint not in self.tried.failed and self._is_of(bug, state, mine)):
                failing += 1
            else:
                others += 1
        return _Explored(failing, others, len(seen), True)

    def _fails(self, state: CrashState, fingerprint: bytes) -> bool:
        if fingerprint in self.tried.failed:
            return True
        if fingerprint not in self.tried.passed and not self.executor.run(state).passed:
            return not self.executor.run(state).passed
        self.tried.passed.add(fingerprint)
        return False

    def _is_of(self, bug: Bug, state: CrashState, mine: set[Spot]) -> bool:
        """Whether a failing state that the search had not met is due to this finding: it lost an update of its places,
        does not fail with everything persisted, and no other finding explains it."""
        lost = (self.subject.places.of(self.subject.event_of(piece)) for piece in self.subject.space.lost(state))
        if not any(place is not None and spot(place) in mine for place in lost):
            return False
        if not self.executor.run(self.subject.space.full(state.point)).passed:
            return False
        others = [pair for pair in self.register.applicable(state) if not any(pair[0] is own for own in bug.drafts)]
        return not any(self.executor.run(self.register.with_persisted(state, pieces)).passed for _, pieces in others)

    def _lost_spots(self, bug: Bug) -> set[Spot]:
        pieces = [draft.cause.lost for draft in bug.drafts if draft.cause.lost is not None]
        places = (self.subject.places.of(self.subject.event_of(piece)) for piece in pieces)
        return {spot(place) for place in places if place is not None}

    # -- where no flush can help

    def _hopeless(self, bug: Bug) -> Fix:
        cause = bug.drafts[0].cause
        subject = self.subject
        lost = explain.named(subject, cause.lost) if cause.lost is not None else "what follows"
        kept = explain.named(subject, cause.kept) if cause.kept is not None else "what came before"
        if cause.kind is Kind.UNPERSISTED:
            return Fix(
                "atomic", f"no flush can help: {lost} is stored only after the acknowledgement; acknowledge later"
            )
        if cause.torn:
            return Fix(
                "atomic",
                f"no flush can help: {kept} persists in pieces of 8 bytes; write it beside the old one and change over "
                "by one 8-byte store, or put it into a log first",
            )
        swapped = self._swapped(bug, kept, lost) if len(bug.drafts) == 1 else None
        return swapped or Fix(
            "atomic",
            f"no flush can help: {kept} and {lost} must persist together; "
            "put both into one 8-byte store, or into a log",
        )

    def _swapped(self, bug: Bug, kept: str, lost: str) -> Fix | None:
        """Of two updates in one cache line: what if the program stored them in the other order? None if that fails too.

        The image of a crash between the two, had they been swapped, holds the later one and not the earlier one.
        """
        subject, cause = self.subject, bug.drafts[0].cause
        if cause.lost is None or cause.kept is None or subject.graph.model == "page-cache":
            return None
        first, second = self._remedies.rows_of(cause.kept), self._remedies.rows_of(cause.lost)
        states = [state for state in (self._between(row, second) for row in first) if state is not None][:_MOST_SWAPPED]
        if not states or int(subject.graph.granule[cause.lost]) != int(subject.graph.granule[cause.kept]):
            return None
        if not all(self.executor.run(state).passed for state in states):
            return None
        return Fix(
            "atomic",
            f"no flush is needed: store {kept} last, after {lost}; they lie in one cache line, "
            "and stores to one cache line persist in program order",
            verified=f"with the two swapped, the check passes on {len(states)} of {len(states)} crashes between them",
        )

    def _between(self, row: int, others: list[int]) -> CrashState | None:
        """At an instance of the two: all before them has persisted, and the later one without the earlier."""
        subject = self.subject
        events = subject.trace.events
        at = bisect_right(others, row)
        if at == len(others) or events["thread"][others[at]] != events["thread"][row]:
            return None
        point = subject.point_at(others[at] + 1)
        told = self.subject.space.points
        if told[point].acked != told[subject.point_at(row + 1)].acked:
            return None
        pending = subject.space.pending(point)
        events_of = {piece: subject.event_of(piece) for piece in pending}
        if not {row, others[at]} <= set(events_of.values()):
            return None
        words = [int(subject.graph.offset[p]) // 8 for p, event in events_of.items() if event in (row, others[at])]
        if len(set(words)) < len(words):
            return None  # a word's own updates cannot change places
        kept = [piece for piece, event in events_of.items() if event < row or event == others[at]]
        return subject.space.with_(point, tuple(kept))
