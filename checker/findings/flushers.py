"""Finds the flush that usually writes a place's stores back: causes that lack the same flush are one bug."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among
from crashcheck.analyzer.persistence.pieces import LINE_BYTES
from crashcheck.checker.findings.call_chains import storing_functions
from crashcheck.checker.results import Location, SourceFunction, SourcePoint
from crashcheck.checker.subject import UPDATES, Subject
from crashcheck.runtime.trace_format import Kind

FlushSite = tuple[SourcePoint, str]  # where a flush is called for, and in which function

_MOST_INSTANCES = 64  # of one place, evenly spread over the run
_MOST_EVENTS = 20_000  # from a store to its flush


class UsualFlushes:
    """Of one recorded run."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._known: dict[int, frozenset[FlushSite]] = {}

    def missed(self, piece: int, until: int) -> frozenset[FlushSite]:
        """Places of the flushes that persist other stores of a piece's instruction in the operation that made them, and
        that ran between this store and event `until` without covering it."""
        event = self._subject.event_of(piece)
        usual = self._usual(int(self._subject.trace.events["site"][event]))
        if not usual:
            return usual
        rows = self._subject.trace.one_of_each_call(self._rows(event + 1, until))
        return usual & {place for row in rows if (place := self._place(row)) is not None}

    def _usual(self, site: int) -> frozenset[FlushSite]:
        if site not in self._known:
            events = self._subject.trace.events
            rows = np.flatnonzero((events["site"] == site) & among(events["kind"], UPDATES))
            some = rows[np.linspace(0, len(rows) - 1, min(len(rows), _MOST_INSTANCES)).astype(np.int64)]
            found = (self._flush_of(row) for row in some.tolist()) if site else ()
            self._known[site] = frozenset(place for place in found if place is not None)
        return self._known[site]

    def _flush_of(self, row: int) -> FlushSite | None:
        """The place of the first flush of a store's line before its operation ends."""
        events = self._subject.trace.events
        end = int(np.searchsorted(self._ends, row))
        until = int(self._ends[end]) if end < len(self._ends) else len(events)
        line = int(events["offset"][row]) // LINE_BYTES
        flushes = self._rows(row + 1, min(until, row + _MOST_EVENTS))
        offset = events["offset"][flushes].astype(np.int64)
        last = (offset + np.maximum(events["size"][flushes].astype(np.int64), 1) - 1) // LINE_BYTES
        covers = (events["file"][flushes] == events["file"][row]) & (offset // LINE_BYTES <= line) & (line <= last)
        return self._place(int(flushes[np.argmax(covers)])) if np.any(covers) else None

    def _rows(self, low: int, high: int) -> NDArray[np.int64]:
        first, last = np.searchsorted(self._flushes, [low, high])
        return self._flushes[first:last]

    @cached_property
    def _flushes(self) -> NDArray[np.int64]:
        return self._subject.trace.rows(Kind.FLUSH)

    @cached_property
    def _ends(self) -> NDArray[np.int64]:
        return self._subject.trace.rows(Kind.MARK_END)

    def _place(self, row: int) -> FlushSite | None:
        """Where a flush is called for, outside of helpers that only flush and fence."""
        for at in self._chain(row):
            if at.owner in self._storing:
                return at.point, at.function
        return None

    @cached_property
    def _storing(self) -> frozenset[SourceFunction]:
        return storing_functions(self._subject.trace, self._chain)

    def _chain(self, row: int) -> tuple[Location, ...]:
        """An event's place and its callers, innermost first."""
        here = self._subject.provenance.of(row)
        if here is None:
            return ()
        return (here, *(frame.location for frame in here.stack))
