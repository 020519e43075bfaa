"""What a function had stored to an object when another update of it could persist first.

A fix for one field alone is too small: the next run lays the object out over cache lines in another way, and another
field is lost. So all of them must be persisted, over all recorded instances of the two updates of a finding.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.behaviours.types.program_types import enclosing_structs
from crashcheck.analyzer.persistence.pieces import DATA, LINE_BYTES
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.fixes.updates import UpdatesByPlace
from crashcheck.checker.results import SourceFunction
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import Kind

_MOST_BYTES = 4096  # of an object: a pool, or a table, is none
_MOST_INSTANCES = 64  # of a finding, evenly spread over the run


@dataclass(frozen=True, slots=True)
class Extent:
    """The bytes [low, high) of a file that hold an object of a type."""

    type: str
    file: int
    low: int
    high: int

    def holds(self, file: int, offset: int) -> bool:
        return file == self.file and self.low <= offset < self.high


@dataclass(frozen=True, slots=True)
class Stored:
    """An object, what its function had stored to it and not persisted yet, and the event by which that is needed.

    `torn`: another object of the type may be spread otherwise over cache lines: to flush one part may leave out
    another.
    """

    object: Extent
    pieces: tuple[int, ...]
    until: int
    torn: bool
    elsewhere: tuple[int, ...] = ()  # what other functions stored to it in the same operation, and did not persist


class Objects:
    """Of one recorded run. Without `facts` no object is known."""

    def __init__(self, subject: Subject, facts: Facts | None, updates: UpdatesByPlace) -> None:
        self._subject = subject
        self._facts = facts
        self._updates = updates
        self._layouts: dict[int, tuple[dict[str, int], frozenset[str]]] = {}  # by unit: sizes, and types in arrays

    def stored_before(self, cause: Cause, functions: frozenset[SourceFunction]) -> list[Stored]:
        """At the instances of a cause: what `functions` had stored to the object that the lost update is a part of."""
        out = []
        instances = list(self._instances(cause))
        several = self._is_one_of_several([lost for lost, _, _ in instances])
        for lost, kept, until in instances:
            object_ = self._common(lost, kept, several)
            if object_ is not None:
                out.append((object_, kept, until))
        torn = self._lies_over_lines(cause, [object_ for object_, _, _ in out])
        return [self._stored(object_, kept, until, functions, torn, several) for object_, kept, until in out]

    def around(self, row: int, type_: str) -> Extent | None:
        """The object of a type that an update is a part of; None if that is not known."""
        return next((extent for extent in self._around(row) if extent.type == type_), None)

    def _instances(self, cause: Cause) -> Iterator[tuple[int, int | None, int]]:
        """Rows of the lost and of the other update, and the event by which the first must be durable."""
        subject = self._subject
        assert cause.lost is not None
        threads = subject.trace.events["thread"]
        rows = self._updates.of_piece(cause.lost)
        own = subject.event_of(cause.lost)
        if cause.kept is not None:
            kept = subject.event_of(cause.kept)
            yield own, kept, kept
            for row in _spread(self._updates.of_piece(cause.kept)):
                at = bisect_left(rows, row) - 1
                if row == kept or at < 0 or threads[rows[at]] != threads[row]:
                    continue
                if not subject.acknowledged_between(rows[at], subject.point_at(row)):
                    yield rows[at], row, row
            return
        yield own, None, subject.space.moment(cause.state.point)
        ends = subject.trace.rows(Kind.MARK_END)
        for row in _spread(rows):
            mine = ends[np.searchsorted(ends, row) :]
            mine = mine[threads[mine] == threads[row]]
            if row != own and len(mine):
                yield row, None, int(mine[0])

    def _stored(
        self,
        object_: Extent,
        kept: int | None,
        until: int,
        functions: frozenset[SourceFunction],
        torn: bool,
        several: bool,
    ) -> Stored:
        subject, graph = self._subject, self._subject.graph
        point = subject.point_at(until)
        found, elsewhere = [], []
        for piece in subject.space.pending(point):
            event = subject.event_of(piece)
            here = subject.provenance.of(event)
            if event >= until or here is None or int(graph.kind[piece]) != DATA:
                continue
            if not object_.holds(int(graph.file[piece]), int(graph.offset[piece])):
                continue
            if here.owner not in functions:
                # Of an object that there is once, such as the root of a file, other parts may be nobody's concern.
                if several and not subject.acknowledged_between(event, point):
                    elsewhere.append(piece)
                continue
            # Of the other update's line, it persists first in any case, as long as they share one.
            if torn or kept is None or self._line(piece) != self._line_of_row(kept):
                found.append(piece)
        return Stored(object_, tuple(found), until, torn, tuple(elsewhere))

    def _line(self, piece: int) -> tuple[int, int]:
        return int(self._subject.graph.file[piece]), int(self._subject.graph.offset[piece]) // LINE_BYTES

    def _line_of_row(self, row: int) -> tuple[int, int]:
        event = self._subject.trace.events[row]
        return int(event["file"]), int(event["offset"]) // LINE_BYTES

    def _lies_over_lines(self, cause: Cause, objects: Sequence[Extent]) -> bool:
        """Whether cache lines may divide an object of the type in another way elsewhere.

        Where it may begin in a line follows from where those recorded began and, in an array, from its size.
        """
        if not objects:
            return False
        assert cause.lost is not None
        _, in_arrays = self._layout(self._subject.event_of(cause.lost))
        first, size = objects[0].low, max(one.high - one.low for one in objects)
        steps = [abs(one.low - first) for one in objects]
        step = math.gcd(LINE_BYTES, *steps, size if objects[0].type in in_arrays else 0)
        if step == LINE_BYTES:
            return False
        return any(begin + size > LINE_BYTES for begin in range(first % step, LINE_BYTES, step))

    # -- objects

    def _is_one_of_several(self, rows: Sequence[int]) -> bool:
        """Whether updates at one place are parts of an object that there may be several of."""
        outermost = [around[-1] for around in map(self._around, rows) if around]
        if not outermost:
            return False
        return outermost[0].type in self._layout(rows[0])[1] or len({one.low for one in outermost}) > 1

    def _common(self, lost: int, kept: int | None, several: bool) -> Extent | None:
        """The innermost object that holds both updates; else the one that the lost one is a part of.

        One of `several` objects is a whole of its own where the other update is outside of it, as a count beside an
        array is: the next one is in other cache lines.
        """
        events = self._subject.trace.events
        own = self._around(lost)
        if kept is None:
            return next(iter(own), None)
        element = own[-1] if own and several else None
        for extents, other in ((self._around(kept), lost), (own, kept)):
            for extent in extents:
                if extent.holds(int(events["file"][other]), int(events["offset"][other])):
                    return extent if element is None or extent in own else element
        return element or next(iter(own), None)

    def _around(self, row: int) -> list[Extent]:
        """The objects that an update is a part of, innermost first, as far out as where they begin is known."""
        events = self._subject.trace.events
        site = self._subject.trace.site(int(events["site"][row]), self._facts)
        if site is None:
            return []
        sizes, _ = self._layout(row)
        out = []
        low = int(events["offset"][row])
        for level in enclosing_structs(site):
            if level.array:
                break
            low -= level.offset
            size = sizes.get(level.type, 0)
            if 0 < size <= _MOST_BYTES:
                out.append(Extent(level.type, int(events["file"][row]), low, low + size))
        return out

    def _layout(self, row: int) -> tuple[dict[str, int], frozenset[str]]:
        """The sizes of the types that the unit of an update knows, and which of them are elements of arrays."""
        trace = self._subject.trace
        unit = trace.unit_of(int(trace.events["site"][row]))
        facts = self._facts.unit(unit.key) if unit is not None and self._facts is not None else None
        if unit is None or facts is None:
            return {}, frozenset()
        if unit.key not in self._layouts:
            sizes = {layout.name: layout.size for layout in facts.layouts}
            arrays = frozenset(one.type for layout in facts.layouts for one in layout.fields if one.count)
            self._layouts[unit.key] = sizes, arrays
        return self._layouts[unit.key]


def _spread(rows: Sequence[int]) -> list[int]:
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), _MOST_INSTANCES)).astype(np.int64)
    return [rows[at] for at in dict.fromkeys(chosen.tolist())]
