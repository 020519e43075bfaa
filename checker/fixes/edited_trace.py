"""A recorded run as it would have been with more flushes, fences and syncs in it: the trace with events put in.

They compute nothing, so the updates of the edited trace are those of the recorded one, in the same order; only what has
persisted by when differs, and only earlier. Hence each crash state of the edited trace is one of the recorded
trace: nothing new has to be built or recorded, and the verdict on a state still holds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import LINE_BYTES
from crashcheck.analyzer.persistence.sync_intervals import ENDS
from crashcheck.analyzer.trace.accesses import Events
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.runtime.trace_format import NO_INSTANCE, FenceKind, FlushKind, Kind, SyncKind

Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Insertion:
    """What is put in before or after the event `row`, by its thread and at its place.

    `flushes`: events whose bytes are flushed; `sync`: a sync call that returns 0, of the range that `synced` (by
    default `row`) stored to if MSYNC, else of the file of `row`. Flushes are first, then the fence.
    """

    row: int
    before: bool = False
    flushes: tuple[int, ...] = ()
    fence: bool = False
    sync: SyncKind | None = None
    synced: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Cost:
    """How recorded more the run executes; a flush is of one line."""

    flushes: int = 0
    fences: int = 0
    syncs: int = 0

    @property
    def all(self) -> int:
        return self.flushes + self.fences + self.syncs


def cost(events: Events, insertions: Iterable[Insertion]) -> Cost:
    """What insertions into a trace would cost."""
    flushes = fences = syncs = 0
    for insertion in insertions:
        flushes += len(lines_of(events, insertion.flushes))
        fences += insertion.fence
        syncs += insertion.sync is not None
    return Cost(flushes, fences, syncs)


def lines_of(events: Events, rows: Iterable[int]) -> dict[tuple[int, int], int]:
    """The cache lines that events touch, each once, by file and number: the first event that touches it."""
    lines: dict[tuple[int, int], int] = {}
    for row in rows:
        low, size = int(events["offset"][row]), max(1, int(events["size"][row]))
        for line in range(low // LINE_BYTES, (low + size - 1) // LINE_BYTES + 1):
            lines.setdefault((int(events["file"][row]), line), row)
    return lines


@dataclass(frozen=True, slots=True, eq=False)
class Edited:
    """`at`: for each event of the recorded trace its index now."""

    graph: PersistenceGraph
    at: Rows


def edited(graph: PersistenceGraph, insertions: Iterable[Insertion]) -> Edited:
    """The persistence graph of the edited trace; its pieces have the ids that they have in `graph`."""
    trace = graph.trace
    rows: list[np.void] = []
    keys: list[int] = []
    for insertion in insertions:
        for row in _events(trace.events, insertion):
            rows.append(row)
            keys.append(4 * insertion.row + (-1 if insertion.before else 1))
    recorded = len(trace.events)
    both = np.concatenate([trace.events, np.array(rows, dtype=trace.events.dtype)]) if rows else trace.events.copy()
    order = np.argsort(np.concatenate([4 * np.arange(recorded), np.array(keys, dtype=np.int64)]), kind="stable")
    events = both[order]
    own = order < recorded
    at: Rows = np.flatnonzero(own).astype(np.int64)
    # Numbers are spread, so that those put in fit between and what refers to the others by number still does.
    since = np.arange(len(events)) - np.concatenate([np.full(1, 0), at])[np.cumsum(own)]
    since[: at[0]] += 1
    wide = int(since.max()) + 1
    numbers = np.concatenate([np.zeros(1, dtype=np.uint64), trace.events["seq"]])[np.cumsum(own)]
    events["seq"] = numbers * np.uint64(wide) + since.astype(np.uint64)
    ends = np.flatnonzero(np.isin(events["kind"], ENDS))
    theirs = own[ends]
    events["payload"][ends[theirs]] *= np.uint64(wide)
    events["payload"][ends[~theirs]] = events["seq"][ends[~theirs] - 1]
    new = dataclasses.replace(
        trace,
        events=events,
        loads=_spread(trace.loads, wide),
        gaps=_spread(trace.gaps, wide),
    )
    return Edited(build(new, graph.model, graph.options), at)


def _events(events: Events, insertion: Insertion) -> Iterator[np.void]:
    anchor = events[insertion.row]

    def made(kind: Kind, aux: int, source: np.void, offset: int = 0, size: int = 0) -> np.void:
        row = source.copy()
        row["site"], row["stack"], row["thread"], row["pid"] = (anchor[n] for n in ("site", "stack", "thread", "pid"))
        row["kind"], row["aux"], row["offset"], row["size"] = int(kind), int(aux), offset, size
        row["flags"], row["payload"], row["instance_delta"] = 0, 0, NO_INSTANCE
        return row

    for (_, line), first in lines_of(events, insertion.flushes).items():
        # A clwb, whatever this machine's flush was: a clflush would need no fence, and other machines have none such.
        yield made(Kind.FLUSH, FlushKind.CLWB, events[first], line * LINE_BYTES, LINE_BYTES)
    if insertion.fence:
        row = made(Kind.FENCE, FenceKind.SFENCE, anchor)
        row["file"] = 0
        yield row
    if insertion.sync is not None:
        ranged = insertion.sync == SyncKind.MSYNC
        span = _span(events[list(insertion.synced or (insertion.row,))]) if ranged else (0, 0)
        yield made(Kind.SYNC_BEGIN, insertion.sync, anchor, *span)
        yield made(Kind.SYNC_END, insertion.sync, anchor, *span)


def _spread(accesses: Events, wide: int) -> Events:
    out = accesses.copy()
    out["seq"] *= np.uint64(wide)
    return out


@dataclass(slots=True, eq=False)
class Counterparts:
    """Which states of the recorded trace the edited one still has, and which recorded one each edited one is."""

    space: StateSpace
    edit: Edited
    _outputs: Rows = field(init=False)
    _canonical: CanonicalStates = field(init=False)

    def __post_init__(self) -> None:
        self._canonical = CanonicalStates(self.space)
        self._outputs = self._canonical.acknowledgements

    def feasible(self, state: CrashState) -> bool:
        """Whether a state of the recorded trace is one of the edited trace too.

        Its updates have persisted, and the same was printed and acknowledged, from one instant on: the earlier, the
        less else must have persisted. So that instant decides.
        """
        graph, now = self.space.graph, self.edit.graph
        crash = self.space.moment(state.point)
        lost, pending = (
            graph.wholes(np.array(pieces, dtype=np.int64))
            for pieces in (self.space.lost(state), self.space.persisted(state))
        )
        acknowledged = int(np.searchsorted(self._outputs, crash, side="left"))
        instant = int(self._outputs[acknowledged - 1]) if acknowledged else -1
        durable = self.space.durable(state.point)
        for pieces in (pending, durable):
            if len(pieces):
                instant = max(instant, int(graph.event[pieces].max()))
        at = int(self.edit.at[instant]) + 1 if instant >= 0 else 0
        return not bool(((graph.event[lost] <= instant) & (now.durable_from[lost] <= at)).any())

    def recorded(self, state: CrashState, space: StateSpace) -> CrashState:
        """The state of the recorded trace that a state of the edited one (of `space`) is."""
        crash = int(np.searchsorted(self.edit.at, space.moment(state.point), side="left"))
        point = int(np.searchsorted(self.space.points.event, crash, side="left"))
        held = set(space.persisted(state))
        pending = self.space.pending_rows(point)
        durable = pending[space.graph.durable_from[pending] <= space.moment(state.point)]
        return self._canonical.state(point, held | ({*durable.tolist()} - {space.graph.whole(piece) for piece in held}))


def _span(events: Events) -> tuple[int, int]:
    """Offset and length of the range that events of one file touch."""
    low = int(events["offset"].min())
    return low, int((events["offset"].astype(np.int64) + np.maximum(events["size"].astype(np.int64), 1)).max()) - low
