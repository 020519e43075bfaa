"""The persistence graph: the pieces of a trace's updates and what must persist before what."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.direct_before import DirectPredecessors, in_layers, one_by_one
from crashcheck.analyzer.persistence.names import NameChange, NameTable
from crashcheck.analyzer.persistence.pieces import (
    DATA,
    EXISTS,
    IN_ORDER,
    LINE_BYTES,
    LOOSE,
    NAME,
    PAGE_BYTES,
    SIZE,
    WORD_BYTES,
    Ints,
    Pieces,
)
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.models import Family, family_of
from crashcheck.runtime.trace_format import FenceKind, Kind

if TYPE_CHECKING:  # importing it takes as long as all else that a run imports, and few runs use it
    import networkx as nx

NEVER = 1 << 62  # durable_from of a piece that nothing makes durable
PIECE_KINDS = ("data", "size", "exists", "name")  # of the kinds of pieces, as words
STALE_BYTE = 0xA5  # for bytes of which only the disk knows; no text holds it


@dataclass(frozen=True, slots=True)
class Options:
    """What a model leaves to the user. `tear`: 0 (none), 512 or 4096 bytes; `files`: "ext4" or "posix".

    `amplify`: of models of file systems, as if a sync followed each call that empties or creates a file.
    """

    tear: int = 0
    files: str = "ext4"
    amplify: bool = False


@dataclass(frozen=True, slots=True)
class Piece:
    """One node of the graph.

    `kind` is "data", "size" or "exists". For data `offset` and `size` are bytes in the file; for a size
    step `offset` is the size that the file has after it. `partial` is true of a part of an extension
    (crash-model.md page-cache rule 5): the file grew up to a block boundary, not to its full new size.
    """

    id: int
    event: int
    granule: int
    file: int
    kind: str
    offset: int
    size: int
    durable_from: int
    partial: bool
    whole: int  # of a part: the id of the whole extension; else the id itself


@dataclass(frozen=True, eq=False)
class PersistenceGraph:
    """Pieces as parallel arrays (a piece's id is its row), sorted by event.

    A crash point is an event index k: the crash comes just before event k. At k a piece is *issued* if
    event < k and *durable* if durable_from <= k; the others issued are *pending*.

    Why two numbers per piece and an order within granules are the whole graph: every rule of crash-model.md
    that orders pieces of different granules has the form "A persists before any update recorded after event t,
    and has persisted at any crash point after t" (a fence, a clflush, the return of a sync). Let
    durable_from[A] = t + 1. At a crash point k > t, A is durable, so every set of pieces that holds the
    durable ones satisfies the rule. At k <= t no update recorded after t is issued, so the rule forbids nothing.
    Hence at one crash point the rules reduce to "hold the durable pieces" plus the order within each
    granule: the states are the product of the order ideals of the granules' pending pieces, and
    u persists before v iff they are ordered within their granule or durable_from[u] <= event[v].
    durable_from never contradicts the order (it is at most that of every later piece of its granule that
    needs this one), so the durable set is an ideal at every point.

    Extensions of a file over several blocks have *parts*: ids from len(graph) on, one for each block
    boundary strictly between the old and the new size, never stored. A part is its extension
    persisted up to that boundary.

    `extra` and `component` are for models of file systems. Their journals and delayed allocation order pieces of
    different granules (a file's data before its size, a rename after both) with no event that makes the earlier one
    durable, which durable_from cannot express. Of the other models `extra` is empty, and `component` is the granule.
    """

    trace: Trace
    model: str
    options: Options
    event: Ints
    granule: Ints
    file: Ints
    kind: NDArray[np.uint8]  # pieces.DATA, SIZE, EXISTS, NAME
    offset: Ints
    size: Ints
    old_size: Ints
    durable_from: Ints
    mode: NDArray[np.uint8]  # pieces.IN_ORDER, LOOSE, LOOSE_AFTER
    fresh: NDArray[np.bool_]  # the piece's bytes are zeros except where its event wrote
    stale: NDArray[np.bool_]  # the piece's bytes are what the disk held before
    unit_bytes: int  # pieces of data never cross a multiple of this
    source: Ints  # the event that carries the bytes of a piece of data; mostly its own
    continued: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # as in pieces.Pieces
    extra: tuple[tuple[int, int], ...] = field(default=())  # added obligations (before, after), of `with_order`
    names: NameTable = field(default_factory=NameTable)  # of models of file systems: what pieces of names change

    def __len__(self) -> int:
        return len(self.event)

    def path(self, piece: int) -> str:
        """The path of the file that a piece changes, as it was then; the file's first one without models of names."""
        row = self.whole(piece)
        file = int(self.file[row])
        return self.names.path(file, int(self.event[row])) if self.family.names else self.trace.files[file].path

    @property
    def family(self) -> Family:
        """What the model has in common with others."""
        return family_of(self.model)

    @property
    def granule_bytes(self) -> int:
        """Bytes of data that persist in order."""
        family = self.family
        return (self.options.tear if family.by_sync and family.tears else 0) or family.granule_bytes

    @cached_property
    def _by_file(self) -> tuple[Ints, Ints]:
        """The pieces, by the file that they change; and these files."""
        rows = np.argsort(self.file, kind="stable")
        return rows, self.file[rows]

    def name_change(self, piece: int) -> NameChange:
        """What a piece of names changes."""
        return self.names.changes[int(self.offset[piece])]

    def pieces_of(self, file: int) -> Ints:
        """The pieces that change a file, ascending."""
        rows, files = self._by_file
        return rows[slice(*np.searchsorted(files, [file, file + 1]))]

    # Parts of extensions.

    @cached_property
    def parts(self) -> Ints:
        """For each piece the number of block boundaries at which it may stop half-way."""
        grows = (self.kind == SIZE) & (self.offset > self.old_size) & self.family.stops
        if self.family.journal:
            grows &= self.mode != IN_ORDER  # a size that a call sets is one change of the journal
        inner = (self.offset - 1) // PAGE_BYTES - self.old_size // PAGE_BYTES
        return np.where(grows, np.maximum(inner, 0), 0).astype(np.int64)

    @cached_property
    def _part_base(self) -> Ints:
        return len(self) + np.cumsum(self.parts) - self.parts

    def part(self, piece: int, index: int) -> int:
        """The id of the `index`-th part (from 0) of extension `piece`."""
        return int(self._part_base[piece]) + index

    def whole(self, id_: int) -> int:
        """The piece that an id names, or of which it names a part. Raises IndexError if it names none."""
        if id_ < len(self):
            return id_
        piece = int(np.searchsorted(self._part_base, id_, side="right")) - 1
        if id_ >= int(self._part_base[piece] + self.parts[piece]):
            raise IndexError(f"no piece {id_}")
        return piece

    def wholes(self, ids: Ints) -> Ints:
        """For each of some pieces and parts the piece that it is, or is a part of."""
        if not len(ids) or int(ids.max()) < len(self):
            return ids
        return np.where(ids < len(self), ids, np.searchsorted(self._part_base, ids, side="right") - 1)

    def sizes_after(self, ids: Ints) -> Ints:
        """`size_after` of each."""
        rows = self.wholes(ids)
        stops = (self.old_size[rows] // PAGE_BYTES + 1 + ids - self._part_base[rows]) * PAGE_BYTES
        return np.where(ids < len(self), self.offset[rows], stops)

    def size_after(self, id_: int) -> int:
        """The file size that a size step, or a part of one, leaves."""
        piece = self.whole(id_)
        if piece == id_:
            return int(self.offset[piece])
        return (int(self.old_size[piece]) // PAGE_BYTES + 1 + id_ - int(self._part_base[piece])) * PAGE_BYTES

    def piece(self, id_: int) -> Piece:
        """One node. Raises IndexError for an id that the graph does not have."""
        row = self.whole(id_)
        return Piece(
            id_,
            int(self.event[row]),
            int(self.granule[row]),
            int(self.file[row]),
            PIECE_KINDS[int(self.kind[row])],
            self.size_after(id_) if int(self.kind[row]) == SIZE else int(self.offset[row]),
            int(self.size[row]),
            int(self.durable_from[row]),
            row != id_,
            row,
        )

    def runs(self, piece: int) -> list[tuple[int, bytes]]:
        """The bytes that a data piece leaves, with their offsets: nearly always one run, all of its range."""
        low, high = int(self.offset[piece]), int(self.offset[piece] + self.size[piece])
        if self.stale[piece]:
            return [(low, bytes([STALE_BYTE]) * (high - low))]
        source = int(self.source[piece])
        written = [
            run for event in (source, *self.continued.get(source, ())) if (run := self._carried(event, low, high))
        ]
        if not self.fresh[piece]:
            return written
        buffer = bytearray(high - low)
        for at, data in written:
            buffer[at - low : at - low + len(data)] = data
        return [(low, bytes(buffer))]

    def _carried(self, event: int, low: int, high: int) -> tuple[int, bytes] | None:
        """What an event writes in [low, high)."""
        row = self.trace.events[event]
        if int(row["kind"]) not in (Kind.STORE, Kind.WRITE, Kind.CONTENT):
            return None
        start = int(row["offset"])
        low, high = max(low, start), min(high, start + int(row["size"]))
        return (low, self.trace.data_range(event, low - start, high - low)) if low < high else None

    @cached_property
    def halves(self) -> dict[int, int]:
        """The other piece of each piece of a store of at most 8 bytes that crosses an 8-byte boundary inside a line.

        No processor documents whether power loss may separate the two (crash-model.md, px86 rule 1).
        """
        if self.unit_bytes != WORD_BYTES or len(self) < 2:
            return {}
        rows = self.trace.events[self.source]
        offset, size = rows["offset"].astype(np.int64), rows["size"].astype(np.int64)
        split = (self.kind == DATA) & (rows["kind"] == Kind.STORE) & (size <= WORD_BYTES)
        split &= offset // WORD_BYTES != (offset + size - 1) // WORD_BYTES
        split &= offset // LINE_BYTES == (offset + size - 1) // LINE_BYTES
        whole = np.bincount(self.event)[self.event] == 2  # not a part of a wider update
        lows = np.flatnonzero((split & whole)[:-1] & (self.source[:-1] == self.source[1:]))
        return {a: b for low in lows.tolist() for a, b in ((low, low + 1), (low + 1, low))}

    # Structure.

    @cached_property
    def one_journal(self) -> bool:
        """Whether names and sizes have no order but their journal's."""
        return self.family.journal and not self.extra and not bool((self.mode == LOOSE).any())

    @cached_property
    def layer(self) -> Ints:
        """What is one layer of its granule: the pieces of one event, those of what the disk held before apart."""
        return self.event * 2 + ~self.stale

    @cached_property
    def component(self) -> Ints:
        """Granules, merged where an added obligation crosses them: the independent factors of a state."""
        if not self.extra:
            return self.granule
        parent = np.arange(int(self.granule.max()) + 1 if len(self) else 0)

        def find(x: int) -> int:
            while parent[x] != x:
                parent[x] = parent[parent[x]]
                x = int(parent[x])
            return x

        for before, after in self.extra:
            parent[find(int(self.granule[before]))] = find(int(self.granule[after]))
        roots = np.array([find(x) for x in range(len(parent))], dtype=np.int64)
        return roots[self.granule]

    @cached_property
    def extra_before(self) -> dict[int, tuple[int, ...]]:
        """For each piece that an added obligation holds back: the pieces that must persist before it."""
        table: dict[int, list[int]] = {}
        for before, after in self.extra:
            table.setdefault(after, []).append(before)
        return {after: tuple(befores) for after, befores in table.items()}

    @cached_property
    def obligations(self) -> Ints:
        """Event indices that make something durable, sorted: crash points are just before them."""
        finite = self.durable_from[self.durable_from < NEVER]
        return np.unique(finite) - 1

    def direct_before(self, ids: Sequence[int]) -> list[tuple[int, ...]]:
        """For each of `ids` (ascending, of any granules): those among `ids` that must persist just before it,
        by the order within granules and by added obligations (not by durable_from)."""
        rows = np.array(ids, dtype=np.int64)
        granules, modes, events, kinds = (
            column[rows].tolist() for column in (self.granule, self.mode, self.layer, self.kind)
        )
        if not self.extra and not any(modes) and not (self.family.journal and any(kinds)):
            return in_layers(ids, granules, events)
        if not self.extra and self.unit_bytes != WORD_BYTES and (found := one_by_one(self, rows)) is not None:
            return found
        files, words = self.file[rows].tolist(), (self.offset[rows] // WORD_BYTES).tolist()
        met = DirectPredecessors(self, ids)
        return [met.of(*each) for each in zip(ids, granules, modes, events, kinds, files, words, strict=True)]

    def with_order(self, edges: Iterable[tuple[int, int]]) -> PersistenceGraph:
        """The graph with added obligations: for each (u, v), u persists before v.

        What must be durable with v is durable with it in the result, so that the states of the result are
        states of this graph. Raises ValueError unless u was issued no later than v and is another piece.
        """
        added = tuple(dict.fromkeys((int(u), int(v)) for u, v in edges))
        for u, v in added:
            if not (0 <= u < len(self) and 0 <= v < len(self)) or u >= v:
                raise ValueError(f"piece {u} cannot be made to persist before piece {v}")
        graph = dataclasses.replace(self, extra=tuple(dict.fromkeys(self.extra + added)))
        durable_from = self.durable_from.copy()
        touched = {int(graph.component[v]) for _, v in added}
        for component in touched:
            ids = np.flatnonzero(graph.component == component).tolist()
            for id_, befores in zip(reversed(ids), reversed(graph.direct_before(ids)), strict=True):
                for before in befores:
                    durable_from[before] = min(durable_from[before], durable_from[id_])
        return dataclasses.replace(graph, durable_from=durable_from)

    # A picture.

    def reason(self, before: int) -> str:
        """Why a piece is durable from durable_from on: the obligation's name, or "" if it never is."""
        if int(self.durable_from[before]) >= NEVER:
            return ""
        event = self.trace.events[int(self.durable_from[before]) - 1]
        kind = int(event["kind"])
        if kind == Kind.FENCE:
            loose = int(self.mode[before]) != IN_ORDER
            return "drain" if loose or int(event["aux"]) == FenceKind.DRAIN else "flush and fence"
        if kind == Kind.FLUSH:
            return "clflush"
        if kind == Kind.SYNC_END:
            return "sync"
        return "durable at once"

    def local_reason(self) -> str:
        """The name of the order within one granule."""
        if self.family.by_sync:
            return "same sector" if self.options.tear == 512 else f"same {self.family.granule}"
        return "same line" if self.model == "px86" else "visible before"

    def order(self, pieces: Iterable[int]) -> tuple[list[int], dict[tuple[int, int], str]]:
        """Some pieces, and what orders which two.

        The order within granules is transitively reduced; a pair across granules has as its later piece only one
        issued before the next obligation that this piece's own predecessors would already imply.
        """
        ids = sorted({self.whole(piece) for piece in pieces})
        reasons: dict[tuple[int, int], str] = {}
        for id_, befores in zip(ids, self.direct_before(ids), strict=True):
            for before in befores:
                required = before in self.extra_before.get(id_, ())
                reasons[before, id_] = "required" if required else self._local(before, id_)
        self._add_obligations(reasons, ids)
        return ids, reasons

    def to_networkx(self, pieces: Iterable[int] | None = None) -> nx.DiGraph[int]:
        """`order` of some pieces, or of all, as a graph: nodes carry event, granule, file (path), kind, offset, size
        and durable_from, edges carry `reason`."""
        import networkx as nx

        ids, reasons = self.order(range(len(self)) if pieces is None else pieces)
        graph: nx.DiGraph[int] = nx.DiGraph()
        for id_ in ids:
            piece = self.piece(id_)
            graph.add_node(
                id_,
                event=piece.event,
                granule=piece.granule,
                file=self.path(id_),
                kind=piece.kind,
                offset=piece.offset,
                size=piece.size,
                durable_from=piece.durable_from,
            )
        for (before, after), reason in reasons.items():
            graph.add_edge(before, after, reason=reason)
        return graph

    def _local(self, before: int, after: int) -> str:
        if int(self.kind[before]) == SIZE:
            return "same size"
        if int(self.kind[before]) == EXISTS:
            return "same name"
        if self.family.journal and int(self.kind[before]) == NAME:
            return "journal"
        if int(self.mode[before]) != IN_ORDER or int(self.mode[after]) != IN_ORDER:
            return "same bytes"
        return self.local_reason()

    def _add_obligations(self, reasons: dict[tuple[int, int], str], ids: list[int]) -> None:
        """u -> v where durable_from[u] <= event[v], except where another piece w is between
        (durable_from[u] <= event[w] and durable_from[w] <= event[v]): that edge follows from the two."""
        rows = np.array(ids, dtype=np.int64)
        if not len(rows):
            return
        events, durable = self.event[rows], self.durable_from[rows]
        # earliest durable_from among the pieces issued at or after each row
        earliest = np.minimum.accumulate(durable[::-1])[::-1]
        for u, start in zip(ids, np.searchsorted(events, durable), strict=True):
            if start >= len(rows):
                continue
            stop = int(np.searchsorted(events, earliest[start]))
            for v in ids[int(start) : max(stop, int(start))]:
                if (u, v) not in reasons and not self._same_chain(u, v):
                    reasons[u, v] = self.reason(u)

    def _same_chain(self, u: int, v: int) -> bool:
        return (
            int(self.granule[u]) == int(self.granule[v])
            and int(self.mode[u]) == IN_ORDER
            and int(self.mode[v]) == IN_ORDER
            and int(self.event[u]) < int(self.event[v])
        )


def assemble(
    trace: Trace,
    model: str,
    options: Options,
    pieces: Pieces,
    granule: Ints,
    durable_from: Ints,
    mode: NDArray[np.uint8],
    unit_bytes: int,
    fresh: NDArray[np.bool_] | None = None,
    names: NameTable | None = None,
    stale: NDArray[np.bool_] | None = None,
) -> PersistenceGraph:
    """A graph from the arrays that a model computed."""
    return PersistenceGraph(
        trace,
        model,
        options,
        pieces.event,
        granule,
        pieces.file,
        pieces.kind,
        pieces.offset,
        pieces.size,
        pieces.old_size,
        durable_from,
        mode,
        np.zeros(len(pieces), dtype=np.bool_) if fresh is None else fresh,
        np.zeros(len(pieces), dtype=np.bool_) if stale is None else stale,
        unit_bytes,
        pieces.source,
        pieces.continued,
        names=names or NameTable(),
    )
