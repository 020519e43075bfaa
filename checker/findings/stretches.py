"""Where the program fails with nothing reordered: stretches of consecutive moments, and the updates around them.

Below, "prefix(t)" is the state in which exactly what was issued before event t has persisted: what `kill -9` at that
moment leaves. *Moments* are the events of updates and of crash points.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.checker.budget import OutOfTime
from crashcheck.checker.findings import minimise
from crashcheck.checker.findings.cause import Cause, kind_of_part
from crashcheck.checker.results import FindingKind, Outcome, Verdict
from crashcheck.checker.subject import UPDATES, Subject
from crashcheck.checker.verdicts.verdict_cache import OutOfRuns, VerdictCache

_WALK_BACK = 256  # moments tried for the beginning of a failing stretch of the program
_WALK_ON = 4096  # moments within which its end is searched for
_ELSEWHERE = 8  # other operations that may show an earlier beginning
_STEPS = 4  # updates that it may be earlier
_NEAR = 8  # moments: a stretch that is shorter is gone through, for it may fail again soon by another cause
_EXPECTED = 3  # moments of a stretch that are run before the next has passed or failed
GIVEN_UP = (
    f"`kill -9` fails at each of {_WALK_BACK} moments before as well, and earlier moments were not tried: "
    "the failing stretch may begin with earlier updates"
)


class FailingStretches:
    """Finds where failing stretches begin and end, with runs of the check as evidence."""

    def __init__(self, subject: Subject, verdicts: VerdictCache, known: Callable[[], Iterable[Cause]]) -> None:
        """`known`: the causes found so far."""
        self._subject = subject
        self._verdicts = verdicts
        self._known = known

    @cached_property
    def moments(self) -> list[int]:
        """The events just before which the program may be killed."""
        subject = self._subject
        updates = subject.trace.rows(*UPDATES)
        updates = updates[~subject.within_comparison(updates)]
        found: list[int] = unique(np.concatenate([updates, subject.space.points.event])).tolist()
        return found

    def cause(self, event: int) -> Cause:
        """For a failing prefix(event): the first of the consecutive failing ones, and the updates around it.

        One run of the code may survive by chance what another does not: where the same updates follow each other in
        another operation, and Y is the first update in the failing stretch there, that stretch describes it better.
        """
        with suppress(OutOfRuns, OutOfTime):
            known = self._begins_as_known(event)
            if known is not None:
                return known
        cause = self._begins(event)
        with suppress(OutOfRuns, OutOfTime):
            for _ in range(_STEPS):
                sooner = self._sooner(cause)
                if sooner is None:
                    break
                cause = self._begins(sooner)
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
        tried: list[int] = events[spread(others, _ELSEWHERE)].tolist()
        for number, event in enumerate(tried, 1):
            self._verdicts.expect(map(subject.prefix, tried[number:]))
            if self._verdicts.verdict(subject.prefix(event)).passed:
                continue
            place = int(events.searchsorted(event))
            since = bisect_left(self.moments, int(events[place - 2]))  # just before what precedes Y
            moment, passing = self._first_of_stretch(event, bisect_left(self.moments, event) - since)
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
        `_first_of_stretch` may try; the moment between them fails, the one before it passes, and of those since then
        every one fails that is tried, at distances that double.
        """
        at = bisect_left(self.moments, event)
        nearest = max((self._like_in(known, at) for known in self._known()), default=0)
        if nearest < 1 or at - nearest < _NEAR or self._passes(nearest) or not self._passes(nearest - 1):
            return None
        back = 1
        while at - back > nearest:
            if self._passes(at - back):
                return None
            back *= 2
        return self._beginning(self.moments[nearest])

    def _like_in(self, known: Cause, at: int) -> int:
        """The last moment before another that follows an update as the stretch of a known cause does; 0: none."""
        if not known.prefix or known.moment is None or known.kept is None or known.given_up or not known.complete:
            return 0
        events, calls = self._issued
        place = int(events.searchsorted(known.moment))
        low, high = events.searchsorted([self.moments[max(0, at - _WALK_BACK)], self.moments[at]]).tolist()
        low = max(low, 1)
        if not 0 < place < len(events) or low >= high:
            return 0
        same = (calls[low - 1 : high - 1] == calls[place - 1]) & (calls[low:high] == calls[place])
        found = np.flatnonzero(same)
        return bisect_right(self.moments, int(events[low - 1 + int(found[-1])])) if len(found) else 0

    def _begins(self, event: int) -> Cause:
        subject = self._subject
        try:
            moment, passing = self._first_of_stretch(event)
            complete = True
        except (OutOfRuns, OutOfTime):
            moment, passing, complete = event, None, False
        cause = self._beginning(moment)
        if passing is not None and int(subject.trace.events["kind"][passing]) not in UPDATES:
            # Not an update made it fail but an acknowledgement: what was promised had not even been stored.
            since = int(subject.space.points[subject.point_at(passing)].acked)
            return replace(cause, kind=FindingKind.UNPERSISTED, kept=None, since=since)
        given_up = complete and passing is None and moment != self.moments[0]
        return replace(cause, complete=complete, given_up=given_up)

    def _beginning(self, moment: int) -> Cause:
        """The cause of a stretch that begins at a moment."""
        subject, state = self._subject, self._subject.prefix(moment)
        verdict = self._verdicts.verdict(state)
        around = subject.next_of_thread(moment), subject.update_before(moment)
        return Cause(kind_of_part(verdict), state, verdict, *around, prefix=True, moment=moment)

    def end(self, moment: int) -> tuple[int | None, int]:
        """The last piece issued in the stretch of failing moments that begins with `moment`, and the last moment of it.

        Looked for up to the end of the operation under way, at each of the next moments unless they time out, then in
        steps that double and by bisection. No piece where the stretch continues, or the budget ends: then the moment is
        the last one that was run.
        """
        space = self._subject.space
        acked = int(space.points.acked[self._subject.point_at(moment)])
        after = int(np.searchsorted(space.points.acked, acked, side="right"))
        end = int(space.points.event[min(after, len(space.points) - 1)])

        at = low = first = bisect_left(self.moments, moment)
        last = min(bisect_left(self.moments, end), low + _WALK_ON)
        step = 1
        known = moment
        try:
            while not self._passes(at):
                known = self.moments[at]
                if at == last:
                    return None, known
                is_near = at < first + _NEAR and self._verdict(at).outcome is not Outcome.TIMEOUT
                low, at, step = at + 1, min(at + step, last), step if is_near else 2 * step
            right = minimise.earliest(low, at, self._passes)
            return self._subject.update_before(self.moments[right]), self.moments[right - 1]
        except (OutOfRuns, OutOfTime):
            return None, known

    def _first_of_stretch(self, event: int, most: int | None = None) -> tuple[int, int | None]:
        """The first of the consecutive failing moments that end with `event`, and the passing one before it if found.

        It is not found where the very first moment fails, nor beyond `most` (at most _WALK_BACK) runs: then the
        earliest that was run.
        Moments are the events of updates and of crash points; crashing at a moment is prefix(moment). After a
        time-out, which is expensive, the next step back is twice as long, and what it went past is found by bisection.
        """
        at = bisect_left(self.moments, event)
        step = 1
        for _ in range(_WALK_BACK if most is None else min(most, _WALK_BACK)):
            if at == 0:
                return self.moments[0], None
            before = max(0, at - step)
            self.expect(range(before - 1, before - 1 - _EXPECTED, -1))
            verdict = self._verdicts.verdict(self._subject.prefix(self.moments[before]))
            if verdict.passed:
                at = minimise.earliest(before + 1, at, lambda index: not self._passes(index))
                return self.moments[at], self.moments[at - 1]
            step = 2 * step if verdict.outcome is Outcome.TIMEOUT else 1
            at = before
        return self.moments[at], None

    def expect(self, indices: Iterable[int]) -> None:
        """The verdicts at these moments, by their indices, are likely to be asked for next."""
        self._verdicts.expect(self._subject.prefix(self.moments[index]) for index in indices if index >= 0)

    def _passes(self, index: int) -> bool:
        """Whether the program may be killed at the moment with this index."""
        return self._verdict(index).passed

    def _verdict(self, index: int) -> Verdict:
        return self._verdicts.verdict(self._subject.prefix(self.moments[index]))


def spread(rows: Ints, most: int) -> list[int]:
    """At most `most` of the rows, evenly spread."""
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), most)).astype(np.int64)
    out: list[int] = rows[chosen].tolist()
    return out
