"""Why a crash state fails: its smallest form, the pair of updates to blame, and the kind, by counterfactual runs.

X is the lost update to blame, Y the one that persisted although X did not (docs/findings.md). Invariants:

1. The state of a cause fails: the check was run on it. Where the budget ends first, kind, X and Y are a guess, and
   `complete` is False.
2. X is the first update that the smallest state lost, of those with which it passes; Y the last of the later ones
   that it needs persisted to fail. Of stores that one comparison of mappings found all others are later. If Y is the
   size of a file, and the state lost bytes of the same write, X is those bytes.
3. A cause is a `prefix` only if the check fails with no update reordered.
4. Runs are asked for in one fixed order: the same verdicts give the same cause.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.findings import minimise
from crashcheck.checker.findings.cause import Cause, kind_of_part
from crashcheck.checker.findings.minimise import Pieces
from crashcheck.checker.findings.stretches import FailingStretches, spread
from crashcheck.checker.results import FindingKind, Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject
from crashcheck.checker.verdicts.verdict_cache import OutOfRuns, VerdictCache

_KILLS = 32  # moments tried, spread over an operation, for one at which `kill -9` shows a reordering's harm as well


class Classifier:
    """Finds the cause of a failing state, with runs of the check as evidence."""

    def __init__(self, subject: Subject, verdicts: VerdictCache, known: Callable[[], Iterable[Cause]] = tuple) -> None:
        """`known`: the causes found so far."""
        self._subject = subject
        self._verdicts = verdicts
        self.stretches = FailingStretches(subject, verdicts, known)

    def whole_fails(self, point: int) -> Verdict | None:
        """The verdict on "everything persisted" at a point if that fails, else None."""
        verdict = self._verdicts.verdict(self._subject.space.full(point))
        return None if verdict.passed else verdict

    def decide(self, state: CrashState, verdict: Verdict) -> Cause:
        """For a state that loses something, and fails otherwise than its point's "everything persisted"."""
        smallest = state
        try:
            smallest = self._smallest(self._with_whole_stores(state))
            whole = self._with_whole_stores(smallest)
            if whole != smallest:
                smallest = self._smallest(whole)
            return self._classify(smallest)
        except (OutOfRuns, OutOfTime):
            return self.guess(smallest, verdict if smallest == state else self._prober_verdict(smallest, verdict))

    # -- the steps

    def _by_its_losses(self, point: int) -> Callable[[CrashState], bool]:
        """Whether a state fails, and otherwise than the point's "everything persisted"."""
        return self._verdicts.failing_unlike(self.whole_fails(point))

    def _smallest(self, state: CrashState) -> CrashState:
        return self._fewest_lost(self._earliest(self._fewest_lost(state)))

    def _fewest_lost(self, state: CrashState) -> CrashState:
        fails, together = self._like(state)
        return minimise.fewest_lost(self._subject.space, state, fails, together, self._verdicts.expect)

    def _like(self, state: CrashState) -> tuple[Callable[[CrashState], bool], Callable[[Pieces], Pieces]]:
        """What fails by its losses, for minimising a state: if that tears no misaligned store, nothing that tears one
        does, and the halves of each share their fate."""
        fails = self._by_its_losses(state.point)
        subject, halves = self._subject, self._subject.graph.halves
        if not halves or subject.torn(state):
            return fails, minimise.alone
        return (
            lambda candidate: not subject.torn(candidate) and fails(candidate),
            lambda pieces: tuple(sorted({*pieces, *(halves[piece] for piece in pieces if piece in halves)})),
        )

    def _with_whole_stores(self, state: CrashState) -> CrashState:
        """The state with its torn misaligned stores lost whole, or else persisted whole, if that fails too; else the
        state: it needs the tear."""
        subject, space = self._subject, self._subject.space
        torn = subject.torn(state)
        if not torn:
            return state
        fails = self._by_its_losses(state.point)
        others = (subject.graph.halves[piece] for piece in torn)
        for whole in (
            space.drop(state.point, (*space.lost(state), *others)),
            space.keep(state.point, (*space.persisted(state), *torn)),
        ):
            if space.lost(whole) and not subject.torn(whole) and fails(whole):
                return whole
        return state

    def _earliest(self, state: CrashState) -> CrashState:
        """The same losses at the earliest point that shows them: there, what is needed with them is still pending."""
        subject, space = self._subject, self._subject.space
        lost = space.lost(state)
        events = subject.events_of(lost)
        low = subject.point_at(int(events.min()) + 1)

        def at(point: int) -> CrashState:
            event = space.moment(point)
            return space.drop(point, tuple(np.array(lost, dtype=np.int64)[events < event].tolist()))

        def fails(point: int) -> bool:
            candidate = at(point)
            self._verdicts.expect([space.full(point)])
            return not self._verdicts.verdict(candidate).passed and self._by_its_losses(point)(candidate)

        return at(minimise.earliest(min(low, state.point), state.point, fails))

    def _classify(self, state: CrashState) -> Cause:
        subject, space = self._subject, self._subject.space
        verdict = self._verdicts.verdict(state)
        first = subject.first_of(self._to_blame(state))
        event = subject.event_of(first)
        begins = subject.found_since(event)
        fails, together = self._like(state)
        if fails(subject.prefix(begins, state.point)):
            # Nothing later than X is needed. At the moment itself, before anything further was promised?
            if fails(subject.prefix(begins)):
                return self.stretches.cause(begins)
            if subject.acknowledged_between(event, state.point):
                since = int(space.points[subject.point_at(event)].acked)
                return Cause(FindingKind.UNPERSISTED, state, verdict, first, None, since=since)
            # Nothing was promised meanwhile: what is needed with the loss is durable already.
            durable = subject.issued_from(event + 1, space.durable(state.point).tolist())
            now = space.moment(state.point)
            known = subject.last_of(durable) if durable else subject.update_before(now)
            return Cause(FindingKind.ORDERING, state, verdict, first, known)
        later = subject.issued_from(begins, space.persisted(state))
        _, needed = minimise.fewest_persisted(space, state, later, fails, together, self._verdicts.expect)
        kept = subject.last_of(needed)
        former = None
        if subject.event_of(kept) != event:
            without = self._size_without(state, kept)
            if without is None:
                return Cause(FindingKind.ORDERING, state, verdict, first, kept)
            first, former = without, first
        return Cause(kind_of_part(verdict), state, verdict, first, kept, torn=True, former=former)

    def _to_blame(self, state: CrashState) -> Pieces:
        """What a smallest state lost, without what hides the failure where it persists: "everything persisted" fails
        as well, because of that."""
        lost = self._subject.space.lost(state)
        if len(lost) == 1 or self.whole_fails(state.point) is None:
            return lost
        others = {piece: tuple(other for other in lost if other != piece) for piece in lost}
        drop, verdict = self._subject.space.drop, self._verdicts.verdict
        return tuple(piece for piece in lost if verdict(drop(state.point, others[piece])).passed) or lost

    def with_kill(self, cause: Cause) -> Cause:
        """The cause, with a moment of X's operation, from X on, at which the program fails so with nothing reordered:
        what persists X in time leaves that. Of more than _KILLS moments not all are tried. In a later operation than
        X's, that would be another bug."""
        if cause.prefix or cause.torn or cause.lost is None:
            return cause
        subject, points = self._subject, self._subject.space.points
        crash = cause.state.point
        begun = int(points.event[np.searchsorted(points.acked, points.acked[crash], side="left")])
        if subject.event_of(cause.lost) < begun:
            return cause
        low = bisect_right(self.stretches.moments, subject.event_of(cause.lost))
        high = bisect_right(self.stretches.moments, int(points.event[crash]))
        try:
            tried = spread(np.arange(low, high, dtype=np.int64), _KILLS)
            for number, at in enumerate(tried, 1):
                self.stretches.expect(tried[number:])
                verdict = self._verdicts.verdict(subject.prefix(self.stretches.moments[at]))
                if not verdict.passed and verdict.fails_as(cause.verdict):
                    return replace(cause, killed=self.stretches.moments[at])
        except (OutOfRuns, OutOfTime):
            pass
        return cause

    def _size_without(self, state: CrashState, kept: int) -> int | None:
        """Of a size that persisted: the first bytes of the same write that did not. The check reads what nobody wrote.

        Of a file that was cut there are none to read: its zeros are behind the end. The state is a smallest one: with
        these bytes persisted it passes, as with any other that it lost.
        """
        subject = self._subject
        graph, row = subject.graph, subject.graph.whole(kept)
        if graph.piece(kept).kind != "size" or graph.offset[row] < graph.old_size[row]:
            return None
        event = subject.event_of(kept)
        lost = (piece for piece in subject.space.lost(state) if subject.event_of(piece) == event)
        return min((piece for piece in lost if subject.graph.piece(piece).kind == "data"), default=None)

    def guess(self, state: CrashState, verdict: Verdict) -> Cause:
        """Without runs: X is the first lost update, Y the last one that persisted after it.

        Where nothing is lost, they are the updates around the moment.
        """
        subject, space = self._subject, self._subject.space
        if not space.lost(state):
            moment = space.moment(state.point)
            around = subject.next_of_thread(moment), subject.update_before(moment)
            return Cause(kind_of_part(verdict), state, verdict, *around, prefix=True, moment=moment, complete=False)
        first = subject.first_of(space.lost(state))
        later = subject.issued_from(subject.event_of(first), space.persisted(state))
        kept = subject.last_of(later) if later else None
        kind = FindingKind.UNPERSISTED if kept is None else FindingKind.ORDERING
        torn = kept is not None and subject.event_of(kept) == subject.event_of(first)
        cause = Cause(kind, state, verdict, first, kept, complete=False)
        return replace(cause, kind=FindingKind.ATOMICITY, torn=True) if torn else cause

    def _prober_verdict(self, state: CrashState, otherwise: Verdict) -> Verdict:
        known = self._verdicts.known(self._subject.content.fingerprint(state))
        return known if known is not None else otherwise
