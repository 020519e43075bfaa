"""Which updates a program logs: those whose old bytes it copies to another place of the files before it stores.

A log is recognised by what it does, not by names: the same thread, in the same operation, stores bytes elsewhere that
are what the range and its neighbourhood held at that moment (`TX_ADD`, an undo log, a journal of old pages). One store
may hold a whole entry of a log: the range's offset or address, and behind it the old bytes.

What the log itself consists of is not logged, and need not be: a length or a checksum in a copy's cache line, or stored
by the function that writes the copies and none of what they are copies of, or by one that it calls. What is copied into
the same field of another object is no log either: it moves, as when a node of a tree is split. What one statement
stores to several places of an operation is no copy: objects begin with the same bytes. One or two words that may be a
link (an offset in a file, an address in a mapping, the identifier of a pool) show no log: a list is linked and unlinked
by the same copies.
"""

from __future__ import annotations

import re
import struct
from collections import deque
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.results import Frame, Location, SourceFunction, SourcePoint
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import Kind

_FEWEST_BYTES = 8  # that a copy holds; shorter ones are equal by chance
_MOST_BYTES = 4096  # of a copy
_MOST_EVENTS = 5000  # from the begin of an operation to an update
_MOST_PLACES = 24  # of an operation
_LINE_BYTES = 64
_OFFSET = np.uint64((1 << 48) - 1)  # of a word with the place where a copy belongs; logs keep flags in the bits above

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Missing:
    """An update that is not logged, one of the same operation that is, and where its old bytes are copied."""

    row: int
    logged: int
    copied: Location | None


class UndoLogs:
    """Of one recorded run."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def missing(self, row: int) -> Missing | None:
        """What a store lacks that others of its operation have; None where it is logged too, is a part of the log, or
        nothing is logged."""
        if self._copy_of(row, zeros=True) is not None:
            return None
        for other in self._others(row):
            copy = self._copy_of(other)
            if copy is not None and not self._moves(copy, other) and not self._links(copy, other):
                place = self._subject.provenance.of(copy)
                return None if self._in_log(row, copy, other) else Missing(row, other, place)
        return None

    def _moves(self, copy: int, stored: int) -> bool:
        """Whether a copy is of the field that is stored over, or of an object around it, in another object."""
        here, there = self._subject.provenance.of(copy), self._subject.provenance.of(stored)
        if here is None or there is None or not here.variable:
            return False
        return re.match(rf"{re.escape(here.variable)}(?![\w])", there.variable) is not None

    def _links(self, copy: int, stored: int) -> bool:
        """Whether what is copied may be a link of a list or a tree, perhaps with flags in its lowest bits, or half of
        one: persistent pointers of two words repeat the identifier of their pool."""
        data = self._subject.trace.data(copy)
        if len(data) not in (8, 16):
            return False
        words = [int.from_bytes(data[at : at + 8], "little") for at in range(0, len(data), 8)]
        if any(low <= word < high for word in words for low, high in self._link_ranges):
            return True
        return len(words) == 1 and words[0] > int(_OFFSET) and self._repeats(copy, stored, data)

    def _repeats(self, copy: int, stored: int, data: bytes) -> bool:
        """Whether a word was also stored as a part of something else, not of what is copied, before it was copied."""
        trace = self._subject.trace
        row, rows = trace.events[stored], self._updates[: np.searchsorted(self._updates, copy)]
        events = trace.events[rows]
        begins, sizes = events["offset"].astype(np.int64), events["size"].astype(np.int64)
        low, high = int(row["offset"]), int(row["offset"]) + int(row["size"])
        elsewhere = (events["file"] != row["file"]) | (begins >= high) | (begins + sizes <= low)
        return any(data in trace.data(other) for other in rows[elsewhere & (sizes > len(data))].tolist())

    @cached_property
    def _link_ranges(self) -> list[tuple[int, int]]:
        """What offsets in the files and addresses in their mappings are."""
        events = self._subject.trace.events
        ends = events["offset"][self._updates].astype(np.int64) + events["size"][self._updates]
        return [(1, int(ends.max(initial=0))), *((address, address + size) for _, _, address, size in self._mapped)]

    @cached_property
    def _mapped(self) -> list[tuple[int, int, int, int]]:
        """File, offset, address and size of each mapping."""
        trace = self._subject.trace
        rows = trace.rows(Kind.MAP).tolist()
        places = ((int(trace.events["file"][row]), int(trace.events["offset"][row])) for row in rows)
        ranges = (struct.unpack("<QQ", trace.data(row)) for row in rows)
        return [(file, offset, address, size) for (file, offset), (address, size) in zip(places, ranges, strict=True)]

    def _in_log(self, row: int, copy: int, logged: int) -> bool:
        """Whether a store belongs to the log that has a copy of what another one stores over."""
        own, other = self._subject.trace.events[row], self._subject.trace.events[copy]
        low, begin = int(own["offset"]), int(other["offset"])
        end = begin + max(int(other["size"]), 1)
        if (
            int(own["file"]) == int(other["file"])
            and begin // _LINE_BYTES <= low // _LINE_BYTES <= (end - 1) // _LINE_BYTES
        ):
            return True
        here, there, stored = (self._subject.provenance.of(one) for one in (row, copy, logged))
        if here is None or there is None or there.owner == (stored and stored.owner):
            return False
        callers = {SourceFunction(frame.file, frame.function) for frame in here.stack}
        return there.owner in {here.owner, *callers}

    def _others(self, row: int) -> list[int]:
        """One update of each place and stack of the operation, the nearest first.

        An allocator may store much before it, and a class for pointers stores all of them in one line.
        """
        found: dict[tuple[SourcePoint, tuple[Frame, ...]], int] = {}
        for other in sorted(self._operation(row).tolist(), key=lambda other: abs(other - row)):
            here = self._subject.provenance.of(other)
            if here is not None and len(found) < _MOST_PLACES:
                found.setdefault((here.point, here.stack), other)
        return [other for other in found.values() if other != row]

    def _operation(self, row: int) -> Rows:
        """The updates of the thread and operation of one of them."""
        events = self._subject.trace.events
        thread = events["thread"][row]
        marks = self._marks[events["thread"][self._marks] == thread]
        at = int(np.searchsorted(marks, row))
        low = max(int(marks[at - 1]) if at else 0, row - _MOST_EVENTS)
        high = min(int(marks[at]) if at < len(marks) else len(events), row + _MOST_EVENTS)
        mine = self._updates[np.searchsorted(self._updates, low) : np.searchsorted(self._updates, high)]
        found: Rows = mine[events["thread"][mine] == thread]
        return found

    @cached_property
    def _marks(self) -> Rows:
        return self._subject.trace.rows(Kind.MARK_BEGIN, Kind.MARK_END)

    @cached_property
    def _updates(self) -> Rows:
        return self._subject.trace.rows(Kind.STORE, Kind.WRITE)

    def _copy_of(self, row: int, zeros: bool = False) -> int | None:
        """The update that copied the old bytes of a store's range before it; None if none did.

        With `zeros`, also one of nothing but zeros, if it holds their position.
        """
        trace = self._subject.trace
        event = trace.events[row]
        low, size = int(event["offset"]), int(event["size"])
        core = min(size, 8)
        near = self._near(int(event["file"]), low)
        operation = self._operation(row)
        earlier: list[int] = operation[operation < row].tolist()
        for copy in earlier:
            other = trace.events[copy]
            length, begin = int(other["size"]), int(other["offset"])
            if not max(_FEWEST_BYTES, core) <= length <= _MOST_BYTES:
                continue
            if int(other["file"]) == int(event["file"]) and begin < low + size and low < begin + length:
                continue
            data = trace.data(copy)
            near.advance(copy)
            if self._is_entry(data, row, core, zeros, near):
                return copy
            if len(set(data)) < 2:
                continue  # zeros are everywhere
            window = max(0, low + core - length)
            held = near.held(window, low + length)
            at = held.find(data)
            while at >= 0 and window + at <= low:
                if window + at + length >= low + core:
                    if self._is_initial(copy, operation):
                        break
                    return copy
                at = held.find(data, at + 1)
        return None

    def _is_initial(self, copy: int, operation: Rows) -> bool:
        """Whether the statement of an update stores the same bytes elsewhere in its operation, too."""
        events, data = self._subject.trace.events, self._subject.trace.data
        alike = operation[events["site"][operation] == events["site"][copy]]
        alike = alike[events["offset"][alike] != events["offset"][copy]]
        return any(data(other) == data(copy) for other in alike.tolist())

    def _is_entry(self, data: bytes, row: int, core: int, zeros: bool, near: Neighbourhood) -> bool:
        """Whether an update holds the position of a store's range, or of bytes before it, and then the old bytes."""
        event = self._subject.trace.events[row]
        file, low = int(event["file"]), int(event["offset"])
        words = (np.frombuffer(data[: len(data) // 8 * 8], dtype="<u8") & _OFFSET).astype(np.int64)
        addresses = [address - offset for mapped, offset, address, _ in self._mapped if mapped == file]
        for base in (0, *dict.fromkeys(addresses)):
            # Of a word that is there again, as zero is in a page, most bytes follow the first.
            starts, first = np.unique(words - base, return_index=True)
            for index in np.flatnonzero((starts <= low) & (starts > low - len(data)) & (starts >= 0)).tolist():
                old = near.held(int(starts[index]), low + core)
                if len(old) >= _FEWEST_BYTES and (zeros or len(set(old)) > 1) and old in data[8 * first[index] + 8 :]:
                    return True
        return False

    def _near(self, file: int, at: int) -> Neighbourhood:
        """What a copy of the bytes at an offset of a file may be a copy of, as it is before any update."""
        low, high = max(0, at - _MOST_BYTES) // 8 * 8, at + _MOST_BYTES + 8
        words = np.arange(low // 8, -(-high // 8), dtype=np.int64)
        updates, events = self._updates, self._subject.trace.events
        begins, sizes = self._extents
        mine = (events["file"][updates] == file) & (begins < high) & (begins + sizes > low)
        held = bytearray(self._subject.content.first.words(file, words).tobytes())
        return Neighbourhood(self._subject.trace, low, held, deque(updates[mine].tolist()))

    @cached_property
    def _extents(self) -> tuple[Rows, Rows]:
        """Offsets and sizes of the updates."""
        events = self._subject.trace.events[self._updates]
        return events["offset"].astype(np.int64), events["size"].astype(np.int64)


@dataclass
class Neighbourhood:
    """What a range of a file held, from one moment of the run to the next."""

    trace: Trace
    low: int
    bytes_held: bytearray
    updates: deque[int]  # of the range, still to come

    def advance(self, until: int) -> None:
        """Apply the updates up to just before an event."""
        while self.updates and self.updates[0] < until:
            row = self.updates.popleft()
            at, data = int(self.trace.events["offset"][row]) - self.low, self.trace.data(row)
            data, at = data[max(0, -at) :], max(0, at)
            room = max(0, min(len(data), len(self.bytes_held) - at))
            self.bytes_held[at : at + room] = data[:room]

    def held(self, low: int, high: int) -> bytes:
        return bytes(self.bytes_held[low - self.low : high - self.low])
