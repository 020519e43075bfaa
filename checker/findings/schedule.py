"""The crash schedule and the persistence graph around a finding's culprits, for people to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from crashcheck.checker.evidence import ScheduleStep
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.describe import FLUSH_NAMES, SYNC_NAMES, name_of, section_end
from crashcheck.checker.results import GraphEdge, GraphNode
from crashcheck.checker.subject import UPDATES, Subject
from crashcheck.runtime.trace_format import (
    NAME_KINDS,
    SYNC_FAILED,
    FenceKind,
    FlushKind,
    Kind,
    OutputKind,
    StoreFlag,
    SyncKind,
)

_AROUND = 6  # steps shown on either side of a culprit
_BEFORE_CRASH = 10  # steps shown before the crash
_MOST_STEPS = 60
_MOST_NODES = 40
_SHOWN_BYTES = 8
UNREACHED = "unreached"
_FENCES = {
    FenceKind.SFENCE: "sfence",
    FenceKind.MFENCE: "mfence",
    FenceKind.LOCKED: "locked instruction",
    FenceKind.DRAIN: "drain",
}
_WHAT = {
    Kind.STORE: "store",
    Kind.WRITE: "write",
    Kind.TRUNCATE: "truncate",
    Kind.CREATE: "create",
    Kind.UNLINK: "unlink",
    Kind.RENAME: "rename",
    Kind.ALLOCATE: "allocate",
    **{kind: kind.name.removeprefix("NAME_").lower() for kind in NAME_KINDS},
    Kind.FLUSH: "flush",
    Kind.FENCE: "fence",
    Kind.SYNC_BEGIN: "sync",
    Kind.SYNC_END: "sync",
    Kind.MARK_BEGIN: "mark",
    Kind.MARK_END: "mark",
    Kind.OUTPUT: "output",
}
_OUTPUT = {
    OutputKind.TERMINAL: "text on a terminal",
    OutputKind.PIPE: "bytes for a pipe",
    OutputKind.SOCKET: "bytes for a socket",
    OutputKind.NAME: "a name changes elsewhere",
}


class Schedule:
    """Steps, nodes and edges for one cause."""

    def __init__(self, subject: Subject, cause: Cause) -> None:
        self._subject = subject
        self._cause = cause
        self._lost = set(subject.space.lost(cause.state))
        self._persisted = set(subject.space.persisted(cause.state))
        graph = subject.graph
        self._grown = {graph.whole(part) for part in self._persisted if part >= len(graph)}  # sizes, up to a block
        # the first event that was not executed: the crash, or where the program was killed
        self._until = subject.space.moment(cause.state.point) if cause.moment is None else cause.moment
        self._end = section_end(subject, cause)  # what is lost, or not reached

    def steps(self) -> tuple[ScheduleStep, ...]:
        """In program order, a bounded window around the culprits and before the crash."""
        shown: list[ScheduleStep] = []
        for event in self._window():
            kind = Kind(int(self._subject.trace.events["kind"][event]))
            shown.extend(self._update(event, kind) if kind in UPDATES else [self._other(event, kind)])
        return tuple(shown)

    def graph(self) -> tuple[tuple[GraphNode, ...], tuple[GraphEdge, ...]]:
        """The pieces of the window, culprits always among them, and what orders them.

        Pieces of one event that shared a granule and their fate are one node, named by the first of them.
        """
        subject = self._subject
        events = [e for e in self._window() if Kind(int(subject.trace.events["kind"][e])) in UPDATES]
        if not events:
            return (), ()
        wanted: list[int] = [p for p in (self._end, self._cause.kept) if p is not None]
        for event in reversed(events):
            if len(wanted) >= _MOST_NODES:
                break
            wanted.extend(self._pieces(event)[: _MOST_NODES - len(wanted)])
        ids, reasons = subject.graph.order(wanted)
        nodes: dict[tuple[int, str, int], GraphNode] = {}
        node_of: dict[int, int] = {}
        for id_ in ids:
            event = subject.event_of(id_)
            state = self._state(id_) if event < self._until else UNREACHED
            key = (event, state, self._granule(id_))
            if key not in nodes:
                nodes[key] = GraphNode(id_, self._label(id_), state, key[2], subject.provenance.of(event))
            node_of[id_] = nodes[key].id
        edges = {
            (node_of[before], node_of[after]): reason
            for (before, after), reason in sorted(reasons.items(), reverse=True)  # of several the first one's
            if node_of[before] != node_of[after]
        }
        return tuple(nodes.values()), tuple(GraphEdge(*pair, reason) for pair, reason in sorted(edges.items()))

    def _window(self) -> list[int]:
        """The events that are shown, in program order: around each culprit, and the last before the crash.

        Of more than _MOST_STEPS the culprits stay, and the latest.
        """
        culprits = [self._subject.event_of(piece) for piece in (self._end, self._cause.kept) if piece is not None]
        lost = -1 if self._cause.lost is None else self._subject.event_of(self._cause.lost)
        run = len(self._subject.trace.events)
        crash = min(run, max(self._until, lost + 1))
        end = min(run, max([crash, *(event + 1 for event in culprits)]))
        chosen: set[int] = set(self._nearby(crash - 1, _BEFORE_CRASH, 0, end))
        for culprit in culprits:
            chosen.update(self._nearby(culprit, _AROUND, _AROUND, end))
        ordered = sorted(chosen)
        if len(ordered) > _MOST_STEPS:
            others = [event for event in reversed(ordered) if event not in culprits]
            ordered = sorted({*culprits, *others[: _MOST_STEPS - len(set(culprits))]})
        return ordered

    def _nearby(self, event: int, before: int, after: int, end: int) -> Iterable[int]:
        """`event`, and as many of the events before `end` that can be shown, before it and after it.

        Not shown is what goes to standard error: it promises nothing.
        """
        kinds, aux = (self._subject.trace.events[name] for name in ("kind", "aux"))
        for step, count in ((-1, before + 1), (1, after + 1)):
            at, left = event, count
            while left and 0 <= at < end:
                if int(kinds[at]) in _WHAT and (kinds[at] != Kind.OUTPUT or aux[at] != OutputKind.STDERR):
                    yield at
                    left -= 1
                at += step

    def _pieces(self, event: int) -> list[int]:
        low, high = (int(n) for n in self._subject.graph.event.searchsorted([event, event + 1]))
        return list(range(low, high))

    def _state(self, piece: int) -> str:
        if piece in self._lost:
            return "persisted" if piece in self._grown else "lost"
        return "persisted" if piece in self._persisted else "durable"

    def _update(self, event: int, kind: Kind) -> list[ScheduleStep]:
        """One step for each run of pieces that shared their fate: a torn store is several."""
        subject = self._subject
        steps: list[ScheduleStep] = []
        if event >= self._until:
            # The program was killed before it: shown because it is a culprit.
            return [self._step(event, kind, UNREACHED, self._extent(event), self._pieces(event))]
        runs: list[tuple[str, list[int]]] = []
        for piece in self._pieces(event):
            state = self._state(piece)
            if runs and runs[-1][0] == state and self._granule(runs[-1][1][-1]) == self._granule(piece):
                runs[-1][1].append(piece)
            else:
                runs.append((state, [piece]))
        for state, pieces in runs:
            described = [subject.graph.piece(p) for p in pieces]
            data = [piece for piece in described if piece.kind == "data"]
            sizes = [piece.offset for piece in described if piece.kind == "size"]
            if data:
                low, high = data[0].offset, data[-1].offset + data[-1].size
                steps.append(self._step(event, kind, state, (low, high - low, self._granule(pieces[-1])), pieces))
            elif sizes and kind == Kind.WRITE:
                # What a write does to the size of its file has a fate of its own.
                steps.append(self._step(event, kind, state, (sizes[-1], 0, -1), pieces, f"size = {sizes[-1]}"))
            else:
                steps.append(self._step(event, kind, state, self._extent(event), pieces))
        return steps or [self._step(event, kind, "", self._extent(event))]

    def _other(self, event: int, kind: Kind) -> ScheduleStep:
        return self._step(event, kind, "", self._extent(event))

    def _extent(self, event: int) -> tuple[int, int, int]:
        """(offset, size, granule) of what an event touches in its file; granule -1 where it is no line or page."""
        row = self._subject.trace.events[event]
        kind = int(row["kind"])
        if kind in (Kind.FENCE, Kind.MARK_BEGIN, Kind.MARK_END, Kind.OUTPUT):
            return 0, 0, -1
        offset, size = int(row["offset"]), int(row["size"])
        located = kind in (Kind.STORE, Kind.WRITE, Kind.FLUSH)
        return offset, size, offset // self._subject.graph.granule_bytes if located else -1

    def _file(self, number: int, event: int) -> str:
        graph, files = self._subject.graph, self._subject.trace.files
        if graph.family.names:
            return graph.names.path(number, event) if number else ""
        return files[number].path if number in files else ""

    def _role(self, pieces: Sequence[int]) -> str:
        """Which culprit is among the pieces, named as in the finding: the one kept is its location, if there is one."""
        if self._cause.kept is not None and self._cause.kept in pieces:
            return "location"
        if self._end is not None and self._end in pieces:
            return "other" if self._cause.kept is not None else "location"
        return ""

    def _step(
        self,
        event: int,
        kind: Kind,
        state: str,
        extent: tuple[int, int, int],
        pieces: Sequence[int] = (),
        detail: str = "",
    ) -> ScheduleStep:
        row = self._subject.trace.events[event]
        number = int(row["file"])
        file = self._file(number, event)
        offset, size, granule = extent
        here = self._subject.provenance.of(event)
        detail = detail or self._detail(event, kind, offset, size)
        thread, what, role = int(row["thread"]), _WHAT[kind], self._role(pieces)
        durable = max((self._subject.graph.piece(piece).durable_from for piece in pieces), default=-1)
        durable = durable if durable <= self._until else -1
        return ScheduleStep(event, thread, what, state, detail, file, offset, size, granule, here, role, durable)

    def _detail(self, event: int, kind: Kind, offset: int, size: int) -> str:
        row = self._subject.trace.events[event]
        if kind in (Kind.STORE, Kind.WRITE):
            return self._stored(event, kind, offset, size)
        if kind == Kind.TRUNCATE:
            return f"size = {offset}"
        if kind in (Kind.CREATE, Kind.UNLINK, Kind.RENAME):
            return _WHAT[kind]
        if kind in NAME_KINDS:
            pieces = self._pieces(event)
            return name_of(self._subject, pieces[-1]) if pieces else _WHAT[kind]
        if kind == Kind.ALLOCATE:
            return f"{int(row['payload'])} bytes from {offset:#x}"
        if kind == Kind.FLUSH:
            return FLUSH_NAMES.get(FlushKind(int(row["aux"])), "flush")
        if kind == Kind.FENCE:
            return _FENCES.get(FenceKind(int(row["aux"])), "fence")
        if kind in (Kind.SYNC_BEGIN, Kind.SYNC_END):
            name = SYNC_NAMES.get(SyncKind(int(row["aux"])), "sync")
            failed = " and fails" if int(row["flags"]) & SYNC_FAILED else ""
            return f"{name} begins" if kind == Kind.SYNC_BEGIN else f"{name} returns{failed}"
        if kind == Kind.MARK_BEGIN:
            return f"operation {int(row['aux'])} begins"
        if kind == Kind.MARK_END:
            return f"operation {int(row['aux'])} acknowledged"
        return _OUTPUT.get(OutputKind(int(row["aux"])), f"{int(row['offset'])} bytes of output so far")

    def _stored(self, event: int, kind: Kind, offset: int, size: int) -> str:
        row = self._subject.trace.events[event]
        start = offset - int(row["offset"])
        shown_size = min(size, _SHOWN_BYTES)
        data = self._subject.trace.data_range(event, start, shown_size) if 0 <= start < int(row["size"]) else b""
        shown = data.hex(" ") + (" …" if size > _SHOWN_BYTES else "")
        here = self._subject.provenance.of(event)
        name = f"[{offset:#x}]"
        if here is not None and here.name:
            name = here.variable or f"{here.expression} {name}"
        tail = " (non-temporal)" if kind == Kind.STORE and int(row["flags"]) & StoreFlag.NT else ""
        return f"{name} = {shown}{tail}"

    def _label(self, piece: int) -> str:
        described = self._subject.graph.piece(piece)
        here = self._subject.provenance.of(described.event)
        if here is not None and here.variable:
            return here.variable
        if described.kind == "name":
            return name_of(self._subject, piece)
        if described.kind == "exists":
            return f"name of {self._subject.path_of(piece)}"
        if described.kind == "size":
            return f"size of {self._subject.path_of(piece)} = {described.offset}"
        return f"{self._subject.path_of(piece)}[{described.offset:#x}]"

    def _granule(self, piece: int) -> int:
        described = self._subject.graph.piece(piece)
        return described.offset // self._subject.graph.granule_bytes if described.kind == "data" else -1
