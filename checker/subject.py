"""What is being checked: one recorded run, its persistence graph, and the crash states that it allows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.images.transition import Content
from crashcheck.checker.results import HALF_STORE, Location
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.runtime.trace_format import NAME_KINDS, Kind, StoreFlag

UPDATES = (
    *(Kind.STORE, Kind.WRITE, Kind.TRUNCATE, Kind.CREATE, Kind.UNLINK, Kind.RENAME, Kind.ALLOCATE),
    *NAME_KINDS,
)


# The recorder of system calls compares a mapped file with its earlier content before each of these on the file.
_COMPARING = np.array([Kind.STORE, Kind.WRITE, Kind.SYNC_BEGIN], dtype=np.uint8)
_BLOCK = 4096  # pieces among which a thread's next one is searched for at a time


class Provenance(Protocol):
    """Locations of events and of recorded reads, by index in the trace."""

    def of(self, event: int) -> Location | None:
        """The place of an event, or None where nothing is known."""
        ...

    def of_load(self, load: int) -> Location | None:
        """The same of one of `Trace.loads`."""
        ...

    def ordinal(self, event: int) -> int:
        """Which it is, from 0, among the places of its function that have the same variable and source text."""
        ...


class NoProvenance:
    """For traces without facts: nothing is known about any event."""

    def of(self, event: int) -> Location | None:
        return None

    def of_load(self, load: int) -> Location | None:
        return None

    def ordinal(self, event: int) -> int:
        return 0


def _compared(events: NDArray[np.void]) -> NDArray[np.bool_]:
    """Which of some events are stores that a comparison of mappings found."""
    compared: NDArray[np.bool_] = (events["kind"] == Kind.STORE) & (events["flags"] & StoreFlag.COMPARED != 0)
    return compared


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """`unexplained` gives for each watched file the byte ranges [low, high) that changed without a traced update."""

    trace: Trace
    graph: PersistenceGraph
    space: StateSpace
    content: Content
    provenance: Provenance = field(default_factory=NoProvenance)
    unexplained: Callable[[], Mapping[str, Sequence[tuple[int, int]]]] = dict

    def event_of(self, piece: int) -> int:
        return int(self.graph.event[self.graph.whole(piece)])

    def place(self, piece: int) -> Location | None:
        """Where a piece was issued, or None where nothing is known."""
        return self.provenance.of(self.event_of(piece))

    def events_of(self, pieces: Sequence[int]) -> NDArray[np.int64]:
        return self.graph.event[self.graph.wholes(np.array(pieces, dtype=np.int64))]

    def first_of(self, pieces: Sequence[int]) -> int:
        """The first in program order of some pieces, which ascend."""
        return pieces[int(self.events_of(pieces).argmin())]

    def last_of(self, pieces: Sequence[int]) -> int:
        """The last in program order of some pieces, which ascend."""
        return pieces[-1 - int(self.events_of(pieces)[::-1].argmax())]

    def issued_from(self, event: int, pieces: Sequence[int]) -> tuple[int, ...]:
        """Those of some pieces that were issued at an event or later."""
        return tuple(np.array(pieces, dtype=np.int64)[self.events_of(pieces) >= event].tolist())

    def path_of(self, piece: int) -> str:
        return self.graph.path(piece)

    def point_at(self, event: int) -> int:
        """The first crash point at or after a moment ("just before `event`"): no mark is between the two."""
        return int(np.searchsorted(self.space.points.event, event, side="left"))

    def acknowledged_between(self, event: int, point: int) -> bool:
        """Whether an operation was acknowledged, or output printed, between an event and a crash point."""
        now, then = self.space.points[point], self.space.points[self.point_at(event)]
        return (now.acked, now.stdout_bytes, now.outputs) != (then.acked, then.stdout_bytes, then.outputs)

    def prefix(self, event: int, point: int | None = None) -> CrashState:
        """Exactly what was issued before `event` has persisted; at `point`, or at the crash point of that moment."""
        at = self.point_at(event) if point is None else point
        rows = self.space.pending_rows(at)
        return self.space.drop(at, rows[self.graph.event[rows] >= event].tolist())

    def within_comparison(self, updates: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which are just before a store that was found, by one comparison of mappings, after another one: none of the
        two is known to be earlier."""
        compared = _compared(self.trace.events)
        return compared[updates] & compared[updates - 1]

    def was_compared(self, event: int) -> bool:
        """Whether it is a store that a comparison of mappings found: its place is that of the call that compared."""
        return bool(_compared(self.trace.events[event : event + 1])[0])

    def found_since(self, event: int) -> int:
        """Where the comparison of mappings began that found the store of an event: none of its stores is known to be
        earlier than another. Of any other event, itself."""
        if not self.was_compared(event):
            return event
        others = np.flatnonzero(~_compared(self.trace.events[:event]))
        return int(others[-1]) + 1 if len(others) else 0

    def is_known_moment(self, event: int) -> bool:
        """Whether the files were, just before `event`, what is recorded until then.

        Of a mapping that is compared from time to time, what is found may have been stored before other updates that
        were recorded since it was compared last, or since the file was mapped at first.
        """
        events = self.trace.events
        kinds, files = events["kind"], events["file"]
        compared = np.flatnonzero(_compared(events))
        updates = self.trace.rows(*UPDATES)
        for file in np.unique(files[compared[compared >= event]]).tolist():
            found = int(compared[(compared >= event) & (files[compared] == file)][0])
            own = files[:found] == file
            looked = (kinds[:found] == Kind.OUTPUT) | own & np.isin(kinds[:found], _COMPARING)
            mapped = np.flatnonzero(own & (kinds[:found] == Kind.MAP))[:1]
            since = max([*np.flatnonzero(looked)[-1:].tolist(), *mapped.tolist()], default=-1)
            if np.searchsorted(updates, event) > np.searchsorted(updates, since, side="right"):
                return False
        return True

    def update_before(self, event: int) -> int | None:
        """The last piece issued before `event`."""
        row = int(np.searchsorted(self.graph.event, event, side="left")) - 1
        return row if row >= 0 else None

    def update_from(self, event: int) -> int | None:
        """The first piece issued at `event` or later."""
        row = int(np.searchsorted(self.graph.event, event, side="left"))
        return row if row < len(self.graph) else None

    def next_of_thread(self, event: int) -> int | None:
        """The first piece from `event` on of the thread that issued the last one before; of any where it issues none.

        What other threads and processes issue in between is there by chance.
        """
        before, after = self.update_before(event), self.update_from(event)
        if before is None or after is None:
            return after
        threads, issued = self.trace.events["thread"], self.graph.event
        for low in range(after, len(issued), _BLOCK):
            own = np.flatnonzero(threads[issued[low : low + _BLOCK]] == threads[issued[before]])
            if len(own):
                return low + int(own[0])
        return after

    def is_unexplained(self, piece: int) -> bool:
        """Whether a piece touches bytes that something untraced wrote."""
        described = self.graph.piece(piece)
        if described.kind != "data":
            return False
        low, high = described.offset, described.offset + described.size
        return any(a < high and low < b for a, b in self.unexplained().get(self._final_path(piece), ()))

    def _final_path(self, piece: int) -> str:
        """The path of the file that a piece changes, where the run left it."""
        graph = self.graph
        if not graph.family.names:
            return self.path_of(piece)
        return graph.names.true_path(int(graph.file[graph.whole(piece)]), len(self.trace.events))

    def torn(self, state: CrashState) -> tuple[int, ...]:
        """The lost halves of misaligned stores of at most 8 bytes of which the other half persisted."""
        halves = self.graph.halves
        lost = set(self.space.lost(state)) if halves else set()
        return tuple(sorted(piece for piece in lost & halves.keys() if halves[piece] not in lost))

    def model_needed(self, state: CrashState) -> str:
        """The model, with each of its options that this state needs."""
        graph = self.graph
        name = graph.model
        if graph.options.tear and self._tears(state):
            name += f" tear={graph.options.tear}"
        if self.torn(state):
            name += f" {HALF_STORE}"
        if graph.options.files == "posix" and any(graph.piece(p).kind == "exists" for p in self.space.lost(state)):
            name += " files=posix"
        return name

    def _tears(self, state: CrashState) -> bool:
        """Whether some page keeps a later update of its own without an earlier one, or part of one update."""
        first_lost: dict[tuple[int, int], int] = {}
        for piece in self.space.lost(state):
            described = self.graph.piece(piece)
            if described.kind == "data":
                page = (described.file, described.offset // 4096)
                first_lost[page] = min(described.event, first_lost.get(page, described.event))
        for piece in self.space.persisted(state):
            described = self.graph.piece(piece)
            page = (described.file, described.offset // 4096)
            if described.kind == "data" and described.event >= first_lost.get(page, described.event + 1):
                return True
        return False
