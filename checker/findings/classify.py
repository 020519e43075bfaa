"""Why a crash state fails: its smallest form, the pair of updates to blame, and the kind, by counterfactual runs.

X is the lost update to blame, Y the one that persisted although X did not (docs/findings.md). Invariants:

1. The state of a cause fails: the check was run on it. Where the budget ends first, kind, X and Y are a guess, and
   `complete` is False.
2. X is the first update that the smallest state lost; Y the last of the later ones that it needs persisted to fail.
   If Y is the size of a file, and the state lost bytes of the same write, X is those bytes.
3. A cause is a `prefix` only if the check fails with no update reordered.
4. Runs are asked for in one fixed order: the same verdicts give the same cause.

Below, "prefix(t)" is the state in which exactly what was
issued before event t has persisted: what `kill -9` at that moment leaves, nothing reordered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.findings import minimise
from crashcheck.checker.findings.minimise import Pieces
from crashcheck.checker.oracles.verdict_cache import OutOfRuns, VerdictCache
from crashcheck.checker.results import FindingKind, Outcome, Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import UPDATES, Subject

_WALK_BACK = 256  # moments tried for the beginning of a failing stretch of the program
_WALK_ON = 4096  # moments within which its end is searched for
_DIED = (Outcome.SIGNAL, Outcome.TIMEOUT)
_ELSEWHERE = 8  # other operations that may show an earlier beginning
_KILLS = 32  # moments tried, spread over an operation, for one at which `kill -9` shows a reordering's harm as well
_STEPS = 4  # updates that it may be earlier
_NEAR = 8  # moments: a stretch that is shorter is gone through
_EXPECTED = 3  # moments of a stretch that are run before the next has passed or failed
CUT_SHORT = "not minimised to the end: the budget was spent"
GIVEN_UP = (
    f"`kill -9` fails at each of {_WALK_BACK} moments before as well, and earlier moments were not tried: "
    "the failing stretch may begin with earlier updates"
)


@dataclass(frozen=True, slots=True)
class Cause:
    """A failing state in its smallest form, and what is to blame."""

    kind: FindingKind
    state: CrashState
    verdict: Verdict
    lost: int | None  # X: the piece that did not persist; of a prefix, the first that was not issued yet
    kept: int | None  # Y: the piece that persisted although X did not; None where none is needed
    prefix: bool = False  # no reordering is needed
    torn: bool = False  # X and Y are pieces of one store or library call
    since: int | None = None  # of `unpersisted`: operations acknowledged before X was issued
    moment: int | None = None  # of a prefix: the event before which the program is killed
    until: int | None = None  # of a prefix: the piece with which the program is right again; None if not known
    complete: bool = True  # False where the budget ended first
    given_up: bool = False  # of a prefix: the beginning of the stretch was searched for, and not found
    killed: int | None = None  # of others: the event before which `kill -9` shows the same, after X was issued
    former: int | None = None  # the first update lost, where X is the bytes of a file that grew without them

    @property
    def no_sync_helps(self) -> bool:
        """Whether something has to be atomic, instead of durable in time."""
        return self.lost is None or self.prefix or self.torn

    @property
    def cut_short(self) -> bool:
        """Whether a state that loses something was not minimised to the end."""
        return not (self.complete or self.prefix)


class Classifier:
    """Finds the cause of a failing state, with runs of the check as evidence."""

    def __init__(self, subject: Subject, verdicts: VerdictCache, known: Callable[[], Iterable[Cause]] = tuple) -> None:
        """`known`: the causes found so far."""
        self._subject = subject
        self._verdicts = verdicts
        self._known = known

    @cached_property
    def _moments(self) -> list[int]:
        """The events just before which the program may be killed."""
        subject = self._subject
        updates = np.flatnonzero(np.isin(subject.trace.events["kind"], np.array(UPDATES, dtype=np.uint8)))
        updates = updates[~subject.within_comparison(updates)]
        found: list[int] = unique(np.concatenate([updates, subject.space.points.event])).tolist()
        return found

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

    def prefix_cause(self, event: int) -> Cause:
        """For a failing prefix(event): the first of the consecutive failing ones, and the updates around it.

        One run of the code may survive by chance what another does not: where the same updates follow each other in
        another operation, and Y is the first update in the failing stretch there, that stretch describes it better.
        """
        try:
            cause = self._begins_as_known(event)
            if cause is not None:
                return cause
        except (OutOfRuns, OutOfTime):
            pass
        cause = self._begins(event)
        try:
            for _ in range(_STEPS):
                sooner = self._sooner(cause)
                if sooner is None:
                    break
                cause = self._begins(sooner)
        except (OutOfRuns, OutOfTime):
            pass
        return cause

    def _sooner(self, cause: Cause) -> int | None:
        """The moment just before X in another operation, in which the update before Y, Y and X come from the same sites
        and stacks, of a failing stretch that begins just before Y. Of each operation the first, of _ELSEWHERE of them.
        """
        if cause.moment is None or cause.kept is None or cause.given_up or cause.verdict.outcome is Outcome.TIMEOUT:
            return None
        subject = self._subject
        events, calls = self._issued
        at = int(np.searchsorted(events, cause.moment))
        if not 2 <= at < len(events) or not subject.trace.events["site"][events[at]]:
            return None
        same = (calls[:-2] == calls[at - 2]) & (calls[1:-1] == calls[at - 1]) & (calls[2:] == calls[at])
        equal = 2 + np.flatnonzero(same)
        points = np.searchsorted(subject.space.points.event, events[equal], side="left")
        operations, firsts = np.unique(subject.space.points.acked[points], return_index=True)
        others = equal[firsts[operations != subject.space.points.acked[subject.point_at(cause.moment)]]]
        tried: list[int] = events[_spread(others, _ELSEWHERE)].tolist()
        for number, event in enumerate(tried, 1):
            self._verdicts.expect(map(subject.prefix, tried[number:]))
            if self._verdicts.verdict(subject.prefix(event)).passed:
                continue
            place = int(events.searchsorted(event))
            since = bisect_left(self._moments, int(events[place - 2]))  # just before what precedes Y
            moment, passing = self.first_of_stretch(event, bisect_left(self._moments, event) - since)
            begun = passing is not None and int(subject.trace.events["kind"][passing]) in UPDATES
            if begun and subject.update_from(moment) == subject.update_from(int(events[place - 1])):
                return event
        return None

    @cached_property
    def _issued(self) -> tuple[Ints, NDArray[np.uint64]]:
        """The events of updates, and of each a number for its site and stack: asked for each failing stretch."""
        events = unique(self._subject.graph.event)
        return events, self._subject.trace.calls(events)

    def _begins_as_known(self, event: int) -> Cause | None:
        """The cause of the failing stretch that ends with `event`, if it begins as that of a known cause does.

        That is: after the same two updates, by their sites and stacks, the nearest of the moments that
        `first_of_stretch` may try; the moment between them fails, the one before it passes, and of those since then
        every one fails that is tried, at distances that double.
        """
        subject, moments = self._subject, self._moments
        at = bisect_left(moments, event)
        nearest = max((self._like_in(known, at) for known in self._known()), default=0)
        if nearest < 1 or at - nearest < _NEAR or self._passes(nearest) or not self._passes(nearest - 1):
            return None
        back = 1
        while at - back > nearest:
            if self._passes(at - back):
                return None
            back *= 2
        state, moment = subject.prefix(moments[nearest]), moments[nearest]
        verdict = self._verdicts.verdict(state)
        kind = FindingKind.RECOVERY_FAILURE if verdict.outcome in _DIED else FindingKind.ATOMICITY
        return Cause(
            *(kind, state, verdict, subject.update_from(moment), subject.update_before(moment), True), moment=moment
        )

    def _like_in(self, known: Cause, at: int) -> int:
        """The last moment before another that follows an update as the stretch of a known cause does; 0: none."""
        if not known.prefix or known.moment is None or known.kept is None or known.given_up or not known.complete:
            return 0
        events, calls = self._issued
        place = int(events.searchsorted(known.moment))
        low, high = events.searchsorted([self._moments[max(0, at - _WALK_BACK)], self._moments[at]]).tolist()
        low = max(low, 1)
        if not 0 < place < len(events) or low >= high:
            return 0
        same = (calls[low - 1 : high - 1] == calls[place - 1]) & (calls[low:high] == calls[place])
        found = np.flatnonzero(same)
        return bisect_right(self._moments, int(events[low - 1 + int(found[-1])])) if len(found) else 0

    def _begins(self, event: int) -> Cause:
        subject = self._subject
        try:
            moment, passing = self.first_of_stretch(event)
            complete = True
        except (OutOfRuns, OutOfTime):
            moment, passing, complete = event, None, False
        given_up = complete and passing is None and moment != self._moments[0]
        state = subject.prefix(moment)
        verdict = self._verdicts.verdict(state)
        lost = subject.update_from(moment)
        if passing is not None and int(subject.trace.events["kind"][passing]) not in UPDATES:
            # Not an update made it fail but an acknowledgement: what was promised had not even been stored.
            since = int(subject.space.points[subject.point_at(passing)].acked)
            return Cause(FindingKind.UNPERSISTED, state, verdict, lost, None, True, since=since, moment=moment)
        kept = subject.update_before(moment)
        kind = FindingKind.RECOVERY_FAILURE if verdict.outcome in _DIED else FindingKind.ATOMICITY
        return Cause(kind, state, verdict, lost, kept, True, moment=moment, complete=complete, given_up=given_up)

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
            event = int(space.points[point].event)
            return space.drop(point, tuple(np.array(lost, dtype=np.int64)[events < event].tolist()))

        def fails(point: int) -> bool:
            candidate = at(point)
            self._verdicts.expect([space.full(point)])
            return not self._verdicts.verdict(candidate).passed and self._by_its_losses(point)(candidate)

        return at(minimise.earliest(min(low, state.point), state.point, fails))

    def _classify(self, state: CrashState) -> Cause:
        subject, space = self._subject, self._subject.space
        verdict = self._verdicts.verdict(state)
        first = subject.first_of(space.lost(state))
        event = subject.event_of(first)
        fails, together = self._like(state)
        if fails(subject.prefix(event, state.point)):
            # Nothing later than X is needed. At the moment itself, before anything further was promised?
            if fails(subject.prefix(event)):
                return self.prefix_cause(event)
            if subject.acknowledged_between(event, state.point):
                since = int(space.points[subject.point_at(event)].acked)
                return Cause(FindingKind.UNPERSISTED, state, verdict, first, None, since=since)
            # Nothing was promised meanwhile: what is needed with the loss is durable already.
            durable = subject.issued_from(event + 1, space.durable(state.point).tolist())
            now = int(space.points[state.point].event)
            known = subject.last_of(durable) if durable else subject.update_before(now)
            return Cause(FindingKind.ORDERING, state, verdict, first, known)
        later = subject.issued_from(event, space.persisted(state))
        _, needed = minimise.fewest_persisted(space, state, later, fails, together, self._verdicts.expect)
        kept = subject.last_of(needed)
        former = None
        if subject.event_of(kept) != event:
            without = self._size_without(state, kept)
            if without is None:
                return Cause(FindingKind.ORDERING, state, verdict, first, kept)
            first, former = without, first
        kind = FindingKind.RECOVERY_FAILURE if verdict.outcome in _DIED else FindingKind.ATOMICITY
        return Cause(kind, state, verdict, first, kept, torn=True, former=former)

    def with_kill(self, cause: Cause) -> Cause:
        """The cause, with a moment of the same operation, from X on, at which the program fails so with nothing
        reordered: what persists X in time leaves that. Of more than _KILLS moments not all are tried."""
        if cause.prefix or cause.torn or cause.lost is None:
            return cause
        subject, points = self._subject, self._subject.space.points
        crash = cause.state.point
        begun = int(points.event[np.searchsorted(points.acked, points.acked[crash], side="left")])
        low = bisect_right(self._moments, max(subject.event_of(cause.lost), begun))
        high = bisect_right(self._moments, int(points.event[crash]))
        try:
            tried = _spread(np.arange(low, high, dtype=np.int64), _KILLS)
            for number, at in enumerate(tried, 1):
                self._expect_moments(tried[number:])
                verdict = self._verdicts.verdict(subject.prefix(self._moments[at]))
                if not verdict.passed and verdict.fails_as(cause.verdict):
                    return replace(cause, killed=self._moments[at])
        except (OutOfRuns, OutOfTime):
            pass
        return cause

    def _size_without(self, state: CrashState, kept: int) -> int | None:
        """Of a size that persisted: the first bytes of the same write that did not. The check reads what nobody wrote.

        The state is a smallest one: with these bytes persisted it passes, as with any other that it lost.
        """
        subject = self._subject
        if subject.graph.piece(kept).kind != "size":
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
            moment = int(space.points[state.point].event)
            kind = FindingKind.RECOVERY_FAILURE if verdict.outcome in _DIED else FindingKind.ATOMICITY
            around = subject.update_from(moment), subject.update_before(moment)
            return Cause(kind, state, verdict, *around, prefix=True, moment=moment, complete=False)
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

    def end_of_stretch(self, moment: int) -> tuple[int | None, int]:
        """The last piece issued in the stretch of failing moments that begins with `moment`, and the last moment of it.

        Looked for up to the end of the operation under way, in steps that double, then by bisection. No piece where
        the stretch continues, or the budget ends: then the moment is the last one that was run.
        """
        space = self._subject.space
        acked = int(space.points.acked[self._subject.point_at(moment)])
        after = int(np.searchsorted(space.points.acked, acked, side="right"))
        end = int(space.points.event[min(after, len(space.points) - 1)])

        at = low = bisect_left(self._moments, moment)
        last = min(bisect_left(self._moments, end), low + _WALK_ON)
        step = 1
        known = moment
        try:
            while not self._passes(at):
                known = self._moments[at]
                if at == last:
                    return None, known
                low, at, step = at + 1, min(at + step, last), 2 * step
            right = minimise.earliest(low, at, self._passes)
            return self._subject.update_before(self._moments[right]), self._moments[right - 1]
        except (OutOfRuns, OutOfTime):
            return None, known

    def first_of_stretch(self, event: int, most: int | None = None) -> tuple[int, int | None]:
        """The first of the consecutive failing moments that end with `event`, and the passing one before it if found.

        It is not found where the very first moment fails, nor beyond `most` (at most _WALK_BACK) runs: then the
        earliest that was run.
        Moments are the events of updates and of crash points; crashing at a moment is prefix(moment). After a
        time-out, which is expensive, the next step back is twice as long, and what it went past is found by bisection.
        """
        at = bisect_left(self._moments, event)
        step = 1
        for _ in range(_WALK_BACK if most is None else min(most, _WALK_BACK)):
            if at == 0:
                return self._moments[0], None
            before = max(0, at - step)
            self._expect_moments(range(before - 1, before - 1 - _EXPECTED, -1))
            verdict = self._verdicts.verdict(self._subject.prefix(self._moments[before]))
            if verdict.passed:
                at = minimise.earliest(before + 1, at, lambda index: not self._passes(index))
                return self._moments[at], self._moments[at - 1]
            step = 2 * step if verdict.outcome is Outcome.TIMEOUT else 1
            at = before
        return self._moments[at], None

    def _expect_moments(self, indices: Iterable[int]) -> None:
        self._verdicts.expect(self._subject.prefix(self._moments[index]) for index in indices if index >= 0)

    def _passes(self, index: int) -> bool:
        """Whether the program may be killed at the moment with this index."""
        return self._verdicts.verdict(self._subject.prefix(self._moments[index])).passed


def _spread(rows: Ints, most: int) -> list[int]:
    """At most `most` of the rows, evenly spread."""
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64)
    out: list[int] = rows[chosen].tolist()
    return out
