"""Suggests a fix for a finding: the cheapest edit that is enough on the recorded run (docs/fixes.md).

1. A fix is tried on the edited trace (edited_trace.py): nothing is built or recorded again.
2. Candidates are tried in one order: writable before not, then by price. The first after which no state of the
   finding fails wins.
3. `after_failing` counts the failing states that the edited trace still allows, and those found by exploring it.
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Left, OutOfTime, endless
from crashcheck.checker.findings import describe
from crashcheck.checker.findings.call_chains import CallChains
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.register import Bug, Register
from crashcheck.checker.findings.undo_logs import UndoLogs
from crashcheck.checker.fixes import held_locks
from crashcheck.checker.fixes.candidates import CandidateFix, Candidates, Step, Whole, lacks_persist
from crashcheck.checker.fixes.edited_trace import Cost, Counterparts, Rows, cost, edited
from crashcheck.checker.fixes.reexplore import PlannedStates, Reexploration, Reexplored
from crashcheck.checker.results import Edit, FindingKind, Fix
from crashcheck.checker.search.crash_states import TriedImages
from crashcheck.checker.search.timeouts import KnownTimeouts, Patience
from crashcheck.checker.states.signature import by_call
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Plan, Strategy
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.checker.verdicts.other_files import run_changed
from crashcheck.wording import listed

_MOST_EXPLORED = 4  # candidates whose edited traces are explored; the others only meet the failing states
_MOST_SWAPPED = 32
_MOST_NAMED = 3
_PARTIAL = "none that is enough; the nearest: "

Write = Callable[[Sequence[Step]], tuple[tuple[Edit, ...], str]]  # edits of the source, or why there are none


@dataclass(frozen=True, slots=True)
class _Offer:
    """A candidate, what it costs, and how it is written."""

    candidate: CandidateFix
    cost: Cost
    edits: tuple[Edit, ...]
    no_edit: str

    @property
    def price(self) -> tuple[bool, int, int, int]:
        """Edits that can be written sort first; twice as many insertions are worth it if they run half as often.

        Of equals the one of fewest lines: where the program's flush has a fence in it, no other is written.
        """
        return (
            not self.edits,
            self.cost.all * self.candidate.parts,
            self.cost.all,
            sum(edit.text.count("\n") + 1 for edit in self.edits),
        )


@dataclass(slots=True, eq=False)
class FixProposer:
    """Proposes and tries, for the findings of one search, while its executor is open.

    `left`: of the seconds for all of them; what the strategy prepares is bounded by it.
    `write` gives the edits of some steps; `compiled` those with which the program compiles, asked of what is proposed.
    """

    subject: Subject
    executor: Executor
    strategy: Strategy
    register: Register
    tried: TriedImages
    chain: CallChains
    write: Write
    facts: Facts | None = None
    left: Left = endless
    compiled: Write | None = None
    _plan: Plan = field(init=False)
    _candidates: Candidates = field(init=False)
    _planned: PlannedStates = field(init=False)
    _patience: Patience = field(init=False)
    _logs: UndoLogs = field(init=False)

    def __post_init__(self) -> None:
        self._plan = self.strategy.plan(self.subject.space, self.left)
        self._planned = PlannedStates(choice.state for choice in self._plan.choices())
        self._candidates = Candidates(self.subject, self.chain, self.facts)
        self._logs = UndoLogs(self.subject)
        self._patience = Patience(self.executor, KnownTimeouts(by_call(self.subject.space)), self.left)

    @property
    def notes(self) -> tuple[str, ...]:
        """What could not be done as the strategy means it."""
        return self._plan.notes

    def propose(self, bug: Bug, seconds: float) -> Fix:
        """The cheapest sufficient edit, tried within `seconds`; or the nearest to one; or why no flush can help.

        Edits that can be written into the source precede others, then those with fewer flushes, fences and syncs
        a run.
        """
        ends = time.monotonic() + seconds
        if not any(lacks_persist(draft.cause) for draft in bug.drafts):
            return self._beyond_flushing(bug)
        alone = next((draft.cause for draft in bug.drafts if self._harms_alone(draft.cause)), None)
        if alone is not None and alone.lost is not None:
            return self._in_part(alone.lost)
        cases = self._cases(bug)
        reexploration = Reexploration(
            self.subject,
            self.executor,
            self._patience,
            self._planned,
            self.register,
            self.tried,
            self.facts,
            bug,
            cases,
        )
        whole = self._candidates.whole([draft.cause for draft in bug.drafts])
        best: Fix | None = None
        for number, (left, offer, counterparts) in enumerate(self._nearest(bug, cases, whole, ends)):
            if best is not None and (number == _MOST_EXPLORED or left >= best.after_failing):
                break
            lost, about = self._about(bug, offer.candidate, whole)
            found = reexploration.explore(counterparts, lost, about, ends)
            causes = [draft.cause for draft in bug.drafts]
            fix = self._fix(offer, left + found.failing, cases, counterparts, found, whole, causes)
            if best is None or fix.after_failing < best.after_failing:
                best = fix
            if not best.after_failing or time.monotonic() > ends:
                break
        if best is None:
            return Fix("atomic", "no place in the source is known where a flush or a fence could be added")
        if best.after_failing >= best.before_failing:
            in_time = " in time" if time.monotonic() > ends else ""
            return Fix("atomic", f"no flush, fence or sync was found{in_time} with which fewer crash states fail")
        return best

    def _nearest(
        self, bug: Bug, cases: dict[bytes, CrashState], whole: Whole | None, ends: float
    ) -> Iterator[tuple[int, _Offer, Counterparts]]:
        """Candidates by how many of the failing states they leave, and then by price; with that number.

        Those that leave none come as soon as they are met: the edited trace of what costs more need not be made. But
        those that persist the `whole` object precede those that persist a part of it. Once `ends` is over, no further
        trace is edited.
        """
        events = self.subject.trace.events
        candidates = self._candidates.of([draft.cause for draft in bug.drafts])
        offers = sorted(
            (
                _Offer(candidate, cost(events, candidate.insertions()), *self.write(candidate.steps))
                for candidate in candidates
            ),
            key=lambda offer: offer.price,
        )
        short: list[tuple[int, _Offer]] = []
        partial: list[_Offer] = []
        while offers and (time.monotonic() <= ends or not (short or partial)):
            offer = offers.pop(0)
            if not offer.edits:
                yield from self._parts(partial)
            counterparts = self._counterparts(offer)
            left = sum(map(counterparts.feasible, cases.values()))
            if left:
                short.append((left, offer))
                continue
            if whole is not None and self._open(whole, offer, counterparts) and time.monotonic() <= ends:
                partial.append(offer)
                continue
            written = self._compiled(offer)
            if written.price > offer.price:
                insort(offers, written, key=lambda other: other.price)
            else:
                yield 0, written, counterparts
        yield from self._parts(partial)
        for _, offer in sorted(short, key=lambda pair: pair[0]):
            counterparts = self._counterparts(offer)
            yield sum(map(counterparts.feasible, cases.values())), self._compiled(offer), counterparts

    def _parts(self, partial: list[_Offer]) -> Iterator[tuple[int, _Offer, Counterparts]]:
        """Those that leave no failing state, but persist only a part of the object; none is left to appear again."""
        while partial:
            offer = self._compiled(partial.pop(0))
            yield 0, offer, self._counterparts(offer)

    def _open(self, whole: Whole, offer: _Offer, counterparts: Counterparts) -> list[int]:
        return self._candidates.still_open(whole, offer.candidate, counterparts.edit)

    def _compiled(self, offer: _Offer) -> _Offer:
        """The offer as it is written so that the program compiles; without edits if nothing does."""
        if not offer.edits or self.compiled is None:
            return offer
        edits, why = self.compiled(offer.candidate.steps)
        return replace(offer, edits=edits, no_edit=why)

    def _counterparts(self, offer: _Offer) -> Counterparts:
        return Counterparts(self.subject.space, edited(self.subject.graph, offer.candidate.insertions()))

    def _about(self, bug: Bug, candidate: CandidateFix, whole: Whole | None) -> tuple[Rows, Rows]:
        """The updates at the places of what a finding loses, or should persist with it; and at all its places, and
        those of an edit."""

        def rows(pieces: Iterable[int | None]) -> list[int]:
            return [row for piece in pieces if piece is not None for row in self._candidates.updates.of_piece(piece)]

        lost = rows(draft.cause.lost for draft in bug.drafts)
        lost += rows(piece for one in whole.stored for piece in one.pieces) if whole is not None else []
        kept = rows(draft.cause.kept for draft in bug.drafts)
        edited_ = [row for step in candidate.steps for row in step.rows]
        return np.unique(np.array(lost, dtype=np.int64)), np.unique(np.array([*lost, *kept, *edited_], dtype=np.int64))

    def _fix(
        self,
        offer: _Offer,
        failing: int,
        cases: dict[bytes, CrashState],
        counterparts: Counterparts,
        found: Reexplored,
        whole: Whole | None,
        causes: Sequence[Cause],
    ) -> Fix:
        remaining = self._remaining(cases, counterparts) if failing else ""
        verified = _verified(failing, len(cases), found, self.strategy.name, remaining)
        if not failing:
            still = self._open(whole, offer, counterparts) if whole is not None else []
            still += self._candidates.open_elsewhere(causes, offer.candidate, counterparts.edit)
            if still:
                verified += f"; {self._names(still)}, stored to the same object, can still be lost before that"
        return Fix(
            kind=offer.candidate.kind,
            words=_PARTIAL + offer.candidate.words if failing else offer.candidate.words,
            edits=offer.edits,
            before_failing=len(cases),
            after_failing=failing,
            verified=verified,
            extra_flushes=offer.cost.flushes,
            extra_fences=offer.cost.fences,
            extra_syncs=offer.cost.syncs,
            no_edit=offer.no_edit,
        )

    def _remaining(self, cases: dict[bytes, CrashState], counterparts: Counterparts) -> str:
        """What the failing states that an edit leaves have lost."""
        lost = [self.subject.space.lost(state) for state in cases.values() if counterparts.feasible(state)]
        names = self._names(min(pieces) for pieces in lost if pieces)
        return f" (the others lose {names})" if names else ""

    def _names(self, pieces: Iterable[int]) -> str:
        names = list(dict.fromkeys(describe.named(self.subject, piece) for piece in pieces))
        return listed(names, _MOST_NAMED, between=" and ")

    def _cases(self, bug: Bug) -> dict[bytes, CrashState]:
        """The finding's failing states by fingerprint, in the order in which they were met."""
        found: dict[bytes, CrashState] = {}
        for draft in bug.drafts:
            killed = draft.cause.killed
            shown = () if killed is None else (self.subject.prefix(killed),)
            for state in (draft.cause.state, *shown, *draft.cases):
                found.setdefault(self.subject.content.fingerprint(state), state)
        return found

    # -- where no flush can help

    def _beyond_flushing(self, bug: Bug) -> Fix:
        cause = bug.drafts[0].cause
        subject = self.subject
        lock = self._held_lock(partial(held_locks.advice, subject, cause), partial(held_locks.untested, subject, cause))
        if lock is not None:
            return lock
        lost = describe.named(subject, cause.lost) if cause.lost is not None else "what follows"
        kept = describe.named(subject, cause.kept) if cause.kept is not None else "the statements above"
        if cause.kind is FindingKind.UNPERSISTED:
            return Fix(
                "atomic",
                f"no flush can help: {lost} is stored only after the acknowledgement; acknowledge later",
            )
        if cause.torn and subject.torn(cause.state):
            return Fix(
                "atomic", f"no flush can help: {kept} crosses an 8-byte boundary; align it, so that it persists whole"
            )
        if cause.torn:
            pages = subject.graph.family.by_sync
            pieces = "page by page, and the file's size apart" if pages else "in pieces of 8 bytes"
            switch = "one store" if pages else "one 8-byte store"
            return Fix(
                "atomic",
                f"no flush can help: {kept} persists {pieces}; write a copy beside the old one, switch "
                f"to it by {switch}, or put it into a log first",
            )
        swapped = self._swapped(bug, kept, lost) if len(bug.drafts) == 1 else None
        if swapped is not None:
            return swapped
        unlogged = [self._not_logged(piece) for piece in (cause.kept, cause.lost) if piece is not None]
        if any(unlogged):
            return Fix("atomic", f"no flush can help: {next(filter(None, unlogged))}")
        end = describe.section_end(subject, cause)
        together = f"{kept} and {lost}"
        if end is not None and end != cause.lost:
            together = f"all that is stored from {kept} to {describe.named(subject, end)}"
        return Fix("atomic", f"no flush can help: {together} must persist together; {self._at_once(cause, end)}")

    def _at_once(self, cause: Cause, end: int | None) -> str:
        """How to make a section, which `end` completes, seem to persist at once."""
        graph, events = self.subject.graph, self.subject.trace.events
        if cause.kept is not None and graph.piece(cause.kept).kind != "data":
            path = self.subject.path_of(cause.kept)
            return f"make {path} under another name and rename it, or let recovery accept it unfinished"
        both = [self.subject.event_of(piece) for piece in (cause.kept, end) if piece is not None]
        if end == cause.lost and all(int(events["size"][event]) <= 8 for event in both):
            return "put both into one 8-byte store, or into a log"
        return "log the old bytes first, or write a copy elsewhere and switch to it by one store"

    def _held_lock(
        self,
        advise: Callable[[held_locks.RunChanged], Fix | None],
        untested: Callable[[], Fix | None] = lambda: None,
    ) -> Fix | None:
        """What to do about a lock that the crash leaves held, if there is time to run the check with it released."""
        left_s = self.left()
        if left_s is not None and left_s <= 0:
            return untested()
        return advise(partial(run_changed, self.executor, limit_s=left_s))

    def _harms_alone(self, cause: Cause) -> bool:
        """Whether an update that can be lost must not persist before what completes it either.

        Everything issued up to it, as `kill -9` leaves it, fails the check, and passes without it: a flush would only
        make that last longer.
        """
        if cause.lost is None or not lacks_persist(cause):
            return False
        subject = self.subject
        event = subject.event_of(cause.lost)
        after = subject.prefix(event + 1)
        without = subject.prefix(event, after.point)
        if without.point != after.point or subject.space.lost(after) == subject.space.lost(without):
            return False
        try:
            return not self._patience.run(after).passed and self._patience.run(without).passed
        except OutOfTime:
            return False

    def _in_part(self, lost: int) -> Fix:
        """For an update that fails the check both when it is lost and when a crash right after it keeps it."""
        subject = self.subject
        after = subject.event_of(lost) + 1
        lock = self._held_lock(partial(held_locks.advice_at, subject, subject.prefix(after), after, False))
        if lock is not None:
            return lock
        name = describe.named(subject, lost)
        why = self._not_logged(lost) or f"put {name} and what completes it into one 8-byte store, or into a log"
        return Fix(
            "atomic",
            f"no flush can help: {why}",
            verified=f"the check fails on what `kill -9` leaves right after {name}, and passes right before",
        )

    def _not_logged(self, piece: int) -> str:
        """What an update lacks whose operation logs the old bytes of others; "" if it lacks nothing, or none does."""
        subject = self.subject
        missing = self._logs.missing(subject.event_of(piece))
        if missing is None:
            return ""
        other = subject.update_from(missing.logged)
        named = describe.named(subject, other) if other is not None else "another update"
        return unlogged_words(describe.named(subject, piece), named, describe.at_line(missing.copied))

    def _swapped(self, bug: Bug, kept: str, lost: str) -> Fix | None:
        """Of two updates in one cache line: what if the program stored them in the other order? None if that fails too.

        The image of a crash between the two, had they been swapped, holds the later one and not the earlier one.
        """
        subject, cause = self.subject, bug.drafts[0].cause
        if cause.lost is None or cause.kept is None or subject.graph.family.by_sync:
            return None
        first, second = self._candidates.updates.of_piece(cause.kept), self._candidates.updates.of_piece(cause.lost)
        states = [state for state in (self._between(row, second) for row in first) if state is not None][:_MOST_SWAPPED]
        if not states or int(subject.graph.granule[cause.lost]) != int(subject.graph.granule[cause.kept]):
            return None
        try:
            if not all(self._patience.run(state).passed for state in states):
                return None
        except OutOfTime:
            return None
        return Fix(
            "atomic",
            f"no flush is needed: store {kept} last, after {lost}; they are in one cache line, "
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
        points = self.subject.space.points
        if points[point].acked != points[subject.point_at(row + 1)].acked:
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


def unlogged_words(lost: str, logged: str, where: str) -> str:
    """What to do about an update that is not logged where `logged` is, perhaps by the same statement."""
    if lost == logged:
        return f"{lost} is not logged each time: its old bytes are copied{where} before some of its stores, not all"
    return (
        f"{lost} is not logged; the old bytes of {logged} are copied{where} before it is stored: copy those of this "
        "range, too"
    )


def _verified(failing: int, cases: int, found: Reexplored, strategy: str, remaining: str) -> str:
    """What the recorded run shows of a fix: its `cases` failing states, `failing` of them still, and related ones."""
    if failing:
        what = f"{cases - failing} of {cases} failing crash states pass with this change on the recorded run{remaining}"
    elif cases == 1:
        what = "The failing crash state passes with this change on the recorded run"
    else:
        what = f"All {cases} failing crash states pass with this change on the recorded run"
    if found.passing:
        what += f", and so {'does' if found.passing == 1 else 'do'} {describe.count(found.passing, 'related one')}"
    if found.others:
        fail = "fails" if found.others == 1 else "fail"
        what += f"; {describe.count(found.others, 'related one')} {fail} for another reason"
    if found.whole:
        what += f"; strategy {strategy} plans no other state"
    elif not found.in_time:
        what += f"; the time for more states of strategy {strategy} was spent"
    return what
