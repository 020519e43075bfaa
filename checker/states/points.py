"""Crash points: the instants at which a crash is worth considering, and what the outside world knows at each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import among, fresh_rows
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import Ints
from crashcheck.runtime.trace_format import Kind, OutputKind

_MOST_KNOWN = 4096


@dataclass(frozen=True, slots=True)
class CrashPoint:
    """A crash just before `event` (the number of events: after the last one)."""

    index: int
    event: int
    acked: int  # operations ended by then
    begun: int  # operations begun by then
    stdout_bytes: int
    outputs: int = 0  # of a trace of system calls: what the world outside of the folder had seen by then


class CrashPoints(Sequence[CrashPoint]):
    """All crash points of a trace: before each obligation, mark and output, and at the end (Vocabulary).

    `since`: only those at this event or later, and after all that the outside world has learned.
    """

    def __init__(self, graph: PersistenceGraph, exits: bool = False, since: int | None = None) -> None:
        events = graph.trace.events
        kinds = events["kind"]
        marks = among(kinds, (Kind.MARK_BEGIN, Kind.MARK_END, Kind.OUTPUT))
        outputs = (kinds == Kind.OUTPUT) & (events["aux"] != OutputKind.STDERR)  # progress and failures promise nothing
        exit_ = np.flatnonzero(kinds == Kind.EXIT)[-1:]  # the command's own is the last one
        if exits and len(exit_):
            outputs[exit_] = events["offset"][exit_] == 0  # its status
        marks |= outputs
        # events by which the world outside of the folder learned something
        self.acknowledging: Ints = np.flatnonzero(outputs | (kinds == Kind.MARK_END))
        self.event: Ints = np.unique(
            np.concatenate([graph.obligations, np.flatnonzero(marks), np.array([len(events)])])
        ).astype(np.int64)
        if since is not None:
            learned = int(self.acknowledging[-1]) + 1 if len(self.acknowledging) else 0
            self.event = self.event[self.event >= max(since, learned)]

        def before(kind: Kind) -> Ints:
            return np.searchsorted(np.flatnonzero(kinds == kind), self.event, side="left").astype(np.int64)

        self.acked = before(Kind.MARK_END)
        self.begun = before(Kind.MARK_BEGIN)
        sizes = events["offset"][kinds == Kind.OUTPUT].astype(np.int64)
        most = np.concatenate([np.zeros(1, dtype=np.int64), np.maximum.accumulate(sizes)])
        self.stdout_bytes: Ints = most[before(Kind.OUTPUT)]
        seen = np.searchsorted(np.flatnonzero(outputs), self.event, side="left").astype(np.int64)
        self.outputs: Ints = seen * int(graph.family.names)
        self._known: dict[int, CrashPoint] = {}  # those asked for lately

    def last_acknowledging(self, point: int) -> int | None:
        """The last event before a crash point by which the world learned something; None if there is none."""
        before = int(np.searchsorted(self.acknowledging, self.event[point], side="left"))
        return int(self.acknowledging[before - 1]) if before else None

    def __len__(self) -> int:
        return len(self.event)

    @overload
    def __getitem__(self, index: int) -> CrashPoint: ...
    @overload
    def __getitem__(self, index: slice) -> list[CrashPoint]: ...
    def __getitem__(self, index: int | slice) -> CrashPoint | list[CrashPoint]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        known = self._known.get(index)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            at = range(len(self))[index]
            columns = (self.event, self.acked, self.begun, self.stdout_bytes, self.outputs)
            known = self._known[index] = CrashPoint(at, *(int(column[at]) for column in columns))
        return known

    @cached_property
    def acknowledged_more(self) -> NDArray[np.bool_]:
        """Whether the outside world knows more at a point than at the one before."""
        return fresh_rows(self.acked, self.stdout_bytes, self.outputs)
