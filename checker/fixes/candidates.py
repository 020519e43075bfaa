"""Edits that may fix a finding: flushes, fences and syncs at places of the source that the recorded run passed."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.pieces import DATA, LINE_BYTES
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.findings.call_chains import CallChains, outside_helpers, storing_functions
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.fixes.edited_trace import Edited, Insertion, lines_of
from crashcheck.checker.fixes.objects import Objects, Stored
from crashcheck.checker.fixes.updates import UpdatesByPlace
from crashcheck.checker.results import FindingKind, Location, SourceFunction, SourcePoint
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import Kind as Event
from crashcheck.runtime.trace_format import SyncKind
from crashcheck.source import spoken_line

_MOST_TOGETHER = 8  # stores of one function that are flushed one by one
_MOST_NAMED = 3  # of more, flushed at once


@dataclass(frozen=True, slots=True)
class Step:
    """One place of an edit, and what is put in there each time that it runs. `rows`: the events that are its anchor.

    `after_loop`: after the last of several that follow one another: of one statement, or of a loop that does nothing
    else; `runs`: which they are. `together`: the stores to parts of one object that is flushed as a whole, of
    `object_bytes`; `runs`: their rows.
    """

    place: Location
    rows: tuple[int, ...]
    before: bool = False
    flush: bool = False  # what the anchor stored
    fence: bool = False
    sync: SyncKind | None = None
    after_loop: bool = False
    runs: tuple[tuple[int, ...], ...] = ()
    together: tuple[Location, ...] = ()
    object_bytes: int = 0

    @property
    def fence_only(self) -> bool:
        return not self.flush and self.sync is None


@dataclass(frozen=True, slots=True)
class CandidateFix:
    """An edit. `kind` and `words` as in result.Fix."""

    kind: str
    words: str
    steps: tuple[Step, ...]

    @property
    def parts(self) -> int:
        """How many flushes, fences and syncs the edit adds to the source."""
        return sum(step.flush + step.fence + (step.sync is not None) for step in self.steps)

    def insertions(self) -> Iterator[Insertion]:
        for step in self.steps:
            for row, run in zip(step.rows, step.runs or ((row,) for row in step.rows), strict=True):
                yield Insertion(row, step.before, run if step.flush else (), step.fence, step.sync, run)


@dataclass(frozen=True, slots=True)
class Whole:
    """All that a function had stored to the object of a lost update by when another one could persist.

    `places`: of the stores, in program order; `stored`: the same at each instance of the finding.
    """

    places: tuple[Location, ...]
    stored: tuple[Stored, ...]


class Candidates:
    """For the findings of one search. `chain`: an event's places in the source, innermost first."""

    def __init__(self, subject: Subject, chain: CallChains, facts: Facts | None = None) -> None:
        self._subject = subject
        self._chain = chain
        self.updates = UpdatesByPlace(subject)
        self._objects = Objects(subject, facts, self.updates)
        self._storing: frozenset[SourceFunction] | None = None

    def of(self, causes: Sequence[Cause]) -> Iterator[CandidateFix]:
        """For causes that are one bug; those that lack nothing a flush, fence or sync could give have none."""
        causes = [cause for cause in causes if lacks_persist(cause)]
        lost = self._places(piece for cause in causes for piece in self._lost(cause))
        kept = self._places(cause.kept for cause in causes if cause.kept is not None)
        if not causes or not lost:
            return
        all_kept = all(cause.kept is not None for cause in causes)
        whole = self.whole(causes)
        if whole is not None and self._subject.graph.family.by_sync:
            yield from self._syncs(list(whole.places))
        elif whole is not None:
            yield from self._at_once(whole, kept if all_kept else [])
            if len(whole.places) <= _MOST_TOGETHER:
                yield from self._flushes((), list(whole.places), kept if all_kept else [])
        if self._subject.graph.family.by_sync:
            yield from self._syncs(lost)
        else:
            yield from self._flushes(causes, lost, kept if all_kept else [])
        wider = self._together(causes[0], lost)
        if wider == lost:
            return
        if self._subject.graph.family.by_sync:
            yield from self._syncs(wider)
        else:
            yield from self._flushes((), wider, kept if all_kept else [])

    def whole(self, causes: Sequence[Cause]) -> Whole | None:
        """What should be persisted with the lost updates; None if that is nothing else."""
        causes = [cause for cause in causes if lacks_persist(cause)]
        pieces = [piece for cause in causes for piece in self._lost(cause)]
        lost = self._places(pieces)
        kept = {place.point for place in self._places(cause.kept for cause in causes if cause.kept is not None)}
        functions = frozenset(place.owner for place in lost)
        stored = [one for cause in causes for one in self._objects.stored_before(cause, functions)]
        places = self._places([*pieces, *(piece for one in stored for piece in one.pieces)])
        places = [place for place in places if place.point not in kept]
        if {place.point for place in places} <= {place.point for place in lost}:
            return None
        return Whole(tuple(places), tuple(stored))

    def still_open(self, whole: Whole, candidate: CandidateFix, edit: Edited) -> list[int]:
        """The pieces of the `whole` that are still not durable in time with a candidate."""
        pieces = ((one, piece) for one in whole.stored for piece in one.pieces)
        return self._not_durable(pieces, candidate, edit)

    def open_elsewhere(self, causes: Sequence[Cause], candidate: CandidateFix, edit: Edited) -> list[int]:
        """The same of what other functions had stored to the objects of the lost updates."""
        causes = [cause for cause in causes if lacks_persist(cause)]
        functions = frozenset(place.owner for cause in causes for place in self._places(self._lost(cause)))
        stored = (one for cause in causes for one in self._objects.stored_before(cause, functions))
        return self._not_durable(((one, piece) for one in stored for piece in one.elsewhere), candidate, edit)

    def _not_durable(self, pieces: Iterable[tuple[Stored, int]], candidate: CandidateFix, edit: Edited) -> list[int]:
        """Those that are not durable in time, or only by the layout of this run: where a flush of one part covers
        another one that elsewhere is in another cache line."""
        at, durable, subject = edit.at, edit.graph.durable_from, self._subject
        flushed = {place.point for step in candidate.steps if step.flush for place in (step.place, *step.together)}
        by_line = candidate.kind in ("flush", "flush-fence")
        found = []
        for one, piece in pieces:
            until = int(at[one.until]) if one.until < len(at) else len(edit.graph.trace.events)
            here = subject.place(piece)
            by_luck = one.torn and by_line and here is not None and here.point not in flushed
            if by_luck or int(durable[piece]) > until:
                found.append(piece)
        return found

    # -- with caches

    def _at_once(self, whole: Whole, kept: list[Location]) -> Iterator[CandidateFix]:
        """One flush of the whole object, where it has hardly more cache lines than what is stored to it."""
        places = list(whole.places)
        functions = {place.owner for place in places}
        objects = [one.object for one in whole.stored]
        if len(functions) > 1 or len({object_.type for object_ in objects}) > 1:
            return
        for one in whole.stored:
            lines = one.object.high // LINE_BYTES - one.object.low // LINE_BYTES
            if one.pieces and lines > len({int(self._subject.graph.offset[p]) // LINE_BYTES for p in one.pieces}) + 1:
                return
        before = len(kept) == 1 and kept[0].owner in functions
        anchor = kept[0] if before else places[-1]
        rows = self.updates.of(anchor)
        step = Step(
            anchor,
            tuple(rows),
            before,
            flush=True,
            fence=True,
            runs=tuple(self._parts(rows, places, objects[0].type, before)),
            together=whole.places,
            object_bytes=objects[0].high - objects[0].low,
        )
        where = f"before {in_words(kept)}" if before else "once each is stored"
        names = in_words(places)
        if len(places) > _MOST_TOGETHER:
            names = f"{in_words(places[:_MOST_NAMED])} and {len(places) - _MOST_NAMED} more stores"
        if not before:
            words = f"one flush of {names}, in one object, {where}: a fence follows already"
            yield CandidateFix("flush", words, (replace(step, fence=False),))
        yield CandidateFix("flush-fence", f"one flush of {names}, in one object, {where}, with a fence", (step,))

    def _parts(self, anchors: list[int], places: list[Location], type_: str, before: bool) -> Iterator[tuple[int, ...]]:
        """For each anchor what was stored at some places to the object of a type around it since the anchor before."""
        events = self._subject.trace.events
        last: dict[int, int] = {}  # by thread
        for anchor in anchors:
            thread = int(events["thread"][anchor])
            run: list[int] = []
            for rows in map(self.updates.of, places):
                low, high = bisect_right(rows, last.get(thread, -1)), bisect_left(rows, anchor + (not before))
                run += [row for row in rows[low:high] if int(events["thread"][row]) == thread]
            known = (self._objects.around(row, type_) for row in (anchor, *sorted(run, reverse=True)))
            object_ = next((one for one in known if one is not None), None)
            run = [
                row
                for row in sorted(run)
                if object_ is not None and object_.holds(int(events["file"][row]), int(events["offset"][row]))
            ]
            last[thread] = anchor
            yield tuple(run)

    def _flushes(self, causes: Sequence[Cause], lost: list[Location], kept: list[Location]) -> Iterator[CandidateFix]:
        needed = self._needed(lost)
        if needed != lost:
            yield from self._flushes((), needed, kept)
        for candidate in self._flushes_at(causes, lost, kept):
            yield candidate
            together = self._after_loops(candidate.steps)
            if together:
                words = candidate.words.replace(f"right after {each_stored(lost)}", once_stored(lost))
                yield replace(candidate, words=words, steps=together)

    def _flushes_at(
        self, causes: Sequence[Cause], lost: list[Location], kept: list[Location]
    ) -> Iterator[CandidateFix]:
        names, before = in_words(lost), in_words(kept)
        fences = tuple(self._step(place, before=True, fence=True) for place in kept)
        if causes:
            if fences:
                yield CandidateFix("fence", f"a fence before {before}", fences)
            flushed = self._flushed(causes)
            if flushed:
                where = " and ".join(spoken_line(step.place.file, step.place.line) for step in flushed)
                yield CandidateFix("fence", f"a fence after the flush at {where}", flushed)
            yield CandidateFix(
                "fence", f"a fence after {names}", tuple(self._step(place, fence=True) for place in lost)
            )
        flushes = tuple(self._step(place, flush=True) for place in lost)
        yield CandidateFix(
            "flush", f"a flush of {names} right after {each_stored(lost)}: a fence follows already", flushes
        )
        if fences:
            yield CandidateFix(
                "flush-fence",
                f"a flush of {names} right after {each_stored(lost)}, and a fence before {before}",
                flushes + fences,
            )
        last = self._step(lost[-1], flush=True, fence=True)
        words = f"a flush of {names} right after {each_stored(lost)}, with a fence"
        if len(lost) > 1:
            yield CandidateFix("flush-fence", words + " after the last", (*flushes[:-1], last))
        each = tuple(self._step(place, flush=True, fence=True) for place in lost)
        yield CandidateFix("flush-fence", words + (" after each" if len(lost) > 1 else ""), each)

    def _flushed(self, causes: Sequence[Cause]) -> tuple[Step, ...]:
        """A fence after each flush that covered a lost update and had no fence in time; () if one had none."""
        found: dict[SourcePoint, tuple[Location, list[int]]] = {}
        for cause in causes:
            at = self._flush_of(cause)
            if at is None:
                return ()
            found[at.point] = (at, [])
        events = self._subject.trace.events
        for row in np.flatnonzero(events["kind"] == Event.FLUSH).tolist():
            here = self._caller(row)
            if here is not None and here.point in found:
                found[here.point][1].append(row)
        # One call flushes several lines, and a loop may make the calls: a fence is needed only after the last.
        runs = [(at, self._runs(rows)) for at, rows in found.values()]
        return tuple(Step(at, tuple(run[-1] for run in each), fence=True, after_loop=True) for at, each in runs)

    def _flush_of(self, cause: Cause) -> Location | None:
        subject = self._subject
        assert cause.lost is not None
        piece = subject.graph.whole(cause.lost)
        low = subject.event_of(piece) + 1
        high = subject.event_of(cause.kept) if cause.kept is not None else subject.space.moment(cause.state.point)
        line = int(subject.graph.offset[piece]) // LINE_BYTES
        events = subject.trace.events
        for row in range(low, high):
            event = events[row]
            if int(event["kind"]) != Event.FLUSH or int(event["file"]) != int(subject.graph.file[piece]):
                continue
            offset, size = int(event["offset"]), max(1, int(event["size"]))
            if offset // LINE_BYTES <= line <= (offset + size - 1) // LINE_BYTES:
                return self._caller(row)
        return None

    def _runs(self, rows: list[int]) -> list[tuple[int, ...]]:
        """Those between which their thread did nothing else, together."""
        threads = self._subject.trace.events["thread"]
        runs: list[list[int]] = []
        for row in rows:
            before = runs[-1][-1] if runs else -1
            if runs and threads[before] == threads[row] and not np.any(threads[before + 1 : row] == threads[row]):
                runs[-1].append(row)
            else:
                runs.append([row])
        return [tuple(run) for run in runs]

    def _needed(self, places: list[Location]) -> list[Location]:
        """Without those whose lines a flush at a later one always flushes as well, before any fence."""
        events = self._subject.trace.events
        is_end = among(events["kind"], (Event.FENCE, Event.MARK_BEGIN, Event.MARK_END))
        ends = {thread: np.cumsum(is_end & (events["thread"] == thread)) for thread in np.unique(events["thread"])}

        def flushes(place: Location) -> Iterator[tuple[int, tuple[object, ...]]]:
            """(event, what it flushes: a line, between two fences of a thread)"""
            for row in self.updates.of(place):
                thread = int(events["thread"][row])
                for line in lines_of(events, [row]):
                    yield row, (thread, int(ends[thread][row]), *line)

        last_flush: dict[tuple[object, ...], int] = {}  # at the places after this one
        needed: list[Location] = []
        for place in reversed(places):
            flushed = list(flushes(place))
            if not needed or any(last_flush.get(line, -1) < row for row, line in flushed):
                needed.append(place)
                for row, line in flushed:
                    last_flush[line] = max(row, last_flush.get(line, -1))
        return needed[::-1]

    def _after_loops(self, steps: tuple[Step, ...]) -> tuple[Step, ...]:
        """The same where stores that follow one another are flushed together, after the last; () if none do."""
        out = []
        for step in steps:
            runs = self._runs(list(step.rows)) if not step.fence_only and not step.before else []
            looped = len(runs) < len(step.rows) and bool(runs) and (step.flush or all(map(self._in_one_file, runs)))
            ends = tuple(run[-1] for run in runs)
            out.append(replace(step, rows=ends, runs=tuple(runs), after_loop=True) if looped else step)
        return tuple(out) if any(step.after_loop for step in out) else ()

    def _in_one_file(self, rows: Sequence[int]) -> bool:
        return len(np.unique(self._subject.trace.events["file"][list(rows)])) == 1

    def _caller(self, row: int) -> Location | None:
        """Where a flush is called for, outside of helpers that only flush and fence."""
        if self._storing is None:
            self._storing = storing_functions(self._subject.trace, self._chain)
        places = self._chain(row)
        at = outside_helpers(places, self._storing)
        return places[at] if at >= 0 else None

    # -- with a page cache

    def _syncs(self, lost: list[Location]) -> Iterator[CandidateFix]:
        steps = tuple(self._step(place, sync=self._sync_kind(place)) for place in lost)
        written = all(step.sync != SyncKind.MSYNC for step in steps)
        where = f"the file right after {in_words(lost)}"
        yield CandidateFix(
            "sync", f"a sync of {where if written else f'{in_words(lost)} right after {each_stored(lost)}'}", steps
        )
        together = self._after_loops(steps)
        if together:
            yield CandidateFix("sync", f"a sync of {in_words(lost)} {once_stored(lost)}", together)
        if len(lost) > 1:
            last = tuple(self._step(place, sync=self._sync_kind(place)) for place in lost[-1:])
            yield CandidateFix("sync", f"a sync right after {in_words(lost[-1:])}", last)

    def _sync_kind(self, place: Location) -> SyncKind:
        """msync for what was stored to a mapping, else fsync of the file."""
        kinds = self._subject.trace.events["kind"]
        rows = self.updates.of(place)
        return SyncKind.MSYNC if int(kinds[rows[0]]) == Event.STORE else SyncKind.FSYNC

    # -- places

    def _step(
        self,
        place: Location,
        *,
        before: bool = False,
        flush: bool = False,
        fence: bool = False,
        sync: SyncKind | None = None,
    ) -> Step:
        return Step(place, tuple(self.updates.of(place)), before, flush, fence, sync)

    def _lost(self, cause: Cause) -> list[int]:
        """X, and what else the smallest state lost; of one line the first, which the others needed."""
        graph = self._subject.graph
        until = None if cause.kept is None else self._subject.event_of(cause.kept)
        first: dict[int, int] = {}
        for piece in sorted({graph.whole(piece) for piece in self._subject.space.lost(cause.state)}):
            if until is None or int(graph.event[piece]) < until:
                first.setdefault(int(graph.granule[piece]), piece)
        return [*first.values(), *([] if cause.lost is None else [cause.lost])]

    def _places(self, pieces: Iterable[int]) -> list[Location]:
        """In program order, each once."""
        found: dict[SourcePoint, tuple[int, Location]] = {}
        for piece in pieces:
            event = self._subject.event_of(piece)
            here = self._subject.provenance.of(event)
            if here is not None and here.line and (here.point not in found or found[here.point][0] > event):
                found[here.point] = (event, here)
        return [here for _, here in sorted(found.values(), key=lambda one: one[0])]

    def _together(self, cause: Cause, lost: list[Location]) -> list[Location]:
        """With what the same function stored by then and had not persisted either."""
        subject = self._subject
        crash = subject.space.moment(cause.state.point)
        until = crash if cause.kept is None else subject.event_of(cause.kept)
        functions = {place.owner for place in lost}
        near = []
        pending = subject.space.pending_rows(cause.state.point)
        pending = pending[subject.graph.kind[pending] == DATA]
        for piece in pending[np.unique(subject.graph.event[pending], return_index=True)[1]].tolist():
            here = subject.place(piece)
            if here is not None and here.owner in functions and subject.event_of(piece) < until:
                near.append(piece)
        wider = self._places([*near, *(piece for piece in self._lost(cause))])
        known = {place.point for place in wider}
        wider += [place for place in lost if place.point not in known]
        return wider if len(wider) <= _MOST_TOGETHER else lost


def lacks_persist(cause: Cause) -> bool:
    """Whether something could have made the lost update durable in time."""
    return cause.kind in (FindingKind.ORDERING, FindingKind.UNPERSISTED) and not cause.prefix and cause.lost is not None


def in_words(places: Sequence[Location]) -> str:
    """ "`entry.key` at hash.c:40 and `entry.value` at hash.c:41"."""
    return " and ".join(
        (f"`{place.name}`" if place.name else "the store") + f" at {spoken_line(place.file, place.line)}"
        for place in places
    )


def each_stored(places: Sequence[Location]) -> str:
    return "it is stored" if len(places) == 1 else "each is stored"


def once_stored(places: Sequence[Location]) -> str:
    return f"once all of {'it' if len(places) == 1 else 'each'} is stored"
