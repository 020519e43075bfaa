"""Images of files that are cut or removed in the run, piece by piece in program order.

Other files change word by word (transition.py), which takes far less time. A word's history does not show a cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, EXISTS, SIZE, Ints
from crashcheck.checker.images.first_image import FirstImage


@dataclass(frozen=True, slots=True)
class FilePatch:
    """How one file changes: its existence and size afterwards, and bytes to write once it has that size.

    Cut or grow the file to `size` first (what it gains reads as zeros), then write. `writes` do not overlap, ascend,
    and are within `size`.
    """

    path: str  # relative to the pool folder
    exists: bool
    size: int  # FOLDER, SYMLINK or LINK instead of a file's; links have their target in `writes`
    writes: tuple[tuple[int, bytes], ...]


ImagePatch = tuple[FilePatch, ...]

_BLOCK = 4096


class _Overlay:
    """Bytes to write, later ones over earlier ones, merged into runs."""

    def __init__(self) -> None:
        self._blocks: dict[int, tuple[bytearray, bytearray]] = {}

    def write(self, offset: int, data: bytes) -> None:
        at = 0
        while at < len(data):
            block, within = divmod(offset + at, _BLOCK)
            many = min(_BLOCK - within, len(data) - at)
            pair = self._blocks.get(block)
            if pair is None:
                pair = self._blocks[block] = (bytearray(_BLOCK), bytearray(_BLOCK))
            pair[0][within : within + many] = data[at : at + many]
            pair[1][within : within + many] = b"\1" * many
            at += many

    def runs(self, limit: int) -> tuple[tuple[int, bytes], ...]:
        """Maximal runs of written bytes below `limit`."""
        out: list[tuple[int, bytearray]] = []
        for block in sorted(self._blocks):
            data, mask = self._blocks[block]
            start = mask.find(1)
            while start >= 0:
                stop = mask.find(0, start)
                stop = _BLOCK if stop < 0 else stop
                low = block * _BLOCK + start
                high = min(block * _BLOCK + stop, limit)
                if high > low:
                    run = data[start : start + high - low]
                    if out and out[-1][0] + len(out[-1][1]) == low:
                        out[-1][1].extend(run)
                    else:
                        out.append((low, run))
                start = mask.find(1, stop)
        return tuple((low, bytes(run)) for low, run in out)


class Shape:
    """A file on its way through the trace: its size, and what was written since it had it."""

    def __init__(self, size: int, exists: bool) -> None:
        self.size = size
        self.exists = exists
        self.overlay = _Overlay()

    def patch(self, path: str, size: int) -> FilePatch:
        return (
            FilePatch(path, self.exists, size, self.overlay.runs(size))
            if self.exists
            else FilePatch(path, False, 0, ())
        )


class Piecewise:
    """Changes of one file at a time, of any file."""

    def __init__(self, graph: PersistenceGraph, first: FirstImage) -> None:
        self.graph = graph
        self.first = first

    def issued(self, file: File, low: int, high: int) -> list[FilePatch]:
        """From everything issued before the piece `low` to everything issued before the piece `high`: the shapes that
        the file takes one after the other."""
        graph = self.graph
        path = graph.trace.files[file.number].path
        ids = np.arange(low, high)[graph.file[low:high] == file.number].tolist()
        shape = file.shape(int(graph.event[low]) if low else -1)
        out: list[FilePatch] = []
        for id_ in ids:
            kind = int(graph.kind[id_])
            if kind == DATA:
                for offset, data in graph.runs(id_):
                    shape.overlay.write(offset, data)
            elif kind == EXISTS:
                shape.exists = exists_after(graph, id_)
            else:
                size = int(graph.offset[id_])
                if size < int(graph.old_size[id_]):
                    # cut now, so that what it gains later reads as zeros
                    out.append(shape.patch(path, size))
                    shape = Shape(size, shape.exists)
                elif size > shape.size:
                    for offset, data in file.hidden(id_, shape.size):
                        shape.overlay.write(offset, data)
                shape.size = size
        return [*out, shape.patch(path, shape.size)] if ids else out

    def transition(self, file: File, event: int, added: list[int]) -> FilePatch | None:
        """The patch of one file; None where its image stays as it is.

        1. Find the size that the file gets, and the cuts that only now persist.
        2. What these cut off reads as zeros.
        3. Durable bytes show again: those that the smaller file hid, and those issued after such a cut.
        4. These and the added data are written in program order, each as far as no later cut took it away.
        """
        graph = self.graph
        # a part of an extension is persisted where its extension is in program order
        added.sort(key=graph.whole)
        kinds = [int(graph.kind[graph.whole(id_)]) for id_ in added]
        exists, old_size = file.exists(event), file.size(event)
        names = [id_ for id_, kind in zip(added, kinds, strict=True) if kind == EXISTS]
        path = graph.trace.files[file.number].path
        if not (exists_after(graph, names[-1]) if names else exists):
            return FilePatch(path, False, 0, ()) if exists else None
        base_size = old_size if exists else 0
        steps = [id_ for id_, kind in zip(added, kinds, strict=True) if kind == SIZE]
        data = [id_ for id_, kind in zip(added, kinds, strict=True) if kind == DATA]
        later_step = bool(steps) and graph.whole(steps[-1]) > file.last_step(event)
        size = graph.size_after(steps[-1]) if later_step else old_size
        cuts = self._cuts_among(steps)
        overlay = _Overlay()
        if cuts:
            self._write_zeros(overlay, file, event, min(at for _, at in cuts), base_size, size)
        shown, floor = self._shown_again(file, event, base_size, size, cuts)
        all_cuts = sorted(cuts + file.cuts(event))
        for id_ in sorted(shown.union(data)):
            # what a shown piece left below the floor may have been overwritten by one that is not shown again
            for low, left in self._left_of(id_, all_cuts, floor if id_ in shown else 0):
                overlay.write(low, left)
        writes = overlay.runs(size)
        if exists and size == old_size and not writes:
            return None
        return FilePatch(path, True, size, writes)

    def _cuts_among(self, steps: list[int]) -> list[tuple[int, int]]:
        """(piece, size) of the size steps that shrink the file."""
        sizes = ((self.graph.whole(id_), self.graph.size_after(id_)) for id_ in steps)
        return [(id_, at) for id_, at in sizes if at < int(self.graph.old_size[id_])]

    def _write_zeros(self, overlay: _Overlay, file: File, event: int, floor: int, base_size: int, size: int) -> None:
        """Zeros for all that the first image and durable data left from `floor` on."""
        graph = self.graph
        for low, high in self.first.data(file.number, floor, min(base_size, size)):
            overlay.write(low, bytes(high - low))
        for id_ in file.durable_data(event, floor).tolist():
            low = max(int(graph.offset[id_]), floor)
            high = min(int(graph.offset[id_] + graph.size[id_]), size)
            if high > low:
                overlay.write(low, bytes(high - low))

    def _shown_again(
        self, file: File, event: int, base_size: int, size: int, cuts: list[tuple[int, int]]
    ) -> tuple[set[int], int]:
        """Durable data pieces that show again, and the offset from which on they do."""
        shown: set[int] = set()
        floor = base_size
        if size > base_size:
            shown.update(file.durable_data(event, base_size).tolist())
        if cuts:
            first_cut = min(id_ for id_, _ in cuts)
            floor = min(floor, min(at for _, at in cuts))
            shown.update(id_ for id_ in file.durable_data(event, floor).tolist() if id_ > first_cut)
        return shown, floor

    def _left_of(self, id_: int, all_cuts: list[tuple[int, int]], floor: int) -> Iterator[tuple[int, bytes]]:
        """What a data piece wrote from `floor` on and no later cut took away. `all_cuts` ascends."""
        limit = 1 << 62
        if all_cuts and all_cuts[-1][0] > id_:
            limit = min(at for cut, at in all_cuts if cut > id_)
        for offset, data in self.graph.runs(id_):
            low, high = max(offset, floor), min(offset + len(data), limit)
            if low < high:
                yield low, data[low - offset : high - offset]


def exists_after(graph: PersistenceGraph, piece: int) -> bool:
    """Whether a file exists after a change of its existence: it went away where there was something before."""
    return int(graph.old_size[piece]) <= 0


class Changes:
    """The changes of one size or existence, in program order, and the last of them at any event."""

    def __init__(self, graph: PersistenceGraph, pieces: Ints) -> None:
        self._pieces = pieces
        self._event = graph.event[pieces]
        # of each, from when on it or a later one is durable: ascending
        self._durable_from = np.minimum.accumulate(graph.durable_from[pieces][::-1])[::-1]

    def durable(self, event: int) -> int:
        """The last one that is durable at an event, -1 if none."""
        last = int(self._durable_from.searchsorted(event, side="right"))
        return int(self._pieces[last - 1]) if last else -1

    def issued(self, event: int) -> int:
        """The last one that was issued before an event, -1 if none."""
        last = int(self._event.searchsorted(event, side="left"))
        return int(self._pieces[last - 1]) if last else -1


class File:
    """One file's size, existence and durable data at any event."""

    def __init__(self, graph: PersistenceGraph, number: int) -> None:
        self.number = number
        self.graph = graph
        self.watched = graph.trace.files[number]
        self.path = self.watched.path
        self.existed = self.watched.existed or graph.family.names  # an inode is there, whatever its names are
        mine = graph.pieces_of(number)
        kinds = graph.kind[mine]
        self.steps: Ints = mine[kinds == SIZE]
        self._sizes = Changes(graph, self.steps)
        self._names = Changes(graph, mine[kinds == EXISTS])
        self.all_data: Ints = mine[kinds == DATA]  # every data piece of the file
        # a file that goes away is cut first, even an empty one
        self.ever_cut = bool((graph.offset[self.steps] < graph.old_size[self.steps]).any())

    def exists(self, event: int) -> bool:
        last = self._names.durable(event)
        return self.existed if last < 0 else exists_after(self.graph, last)

    def exists_issued(self, event: int) -> bool:
        """Whether it exists after every change of names issued before `event`."""
        last = self._names.issued(event)
        return self.existed if last < 0 else exists_after(self.graph, last)

    def last_step(self, event: int) -> int:
        """The last durable size step, -1 if none."""
        return self._sizes.durable(event)

    def size(self, event: int) -> int:
        last = self.last_step(event)
        return self.watched.first_size if last < 0 else int(self.graph.offset[last])

    def size_issued(self, event: int) -> int:
        """The size after every step issued before `event`."""
        last = self._sizes.issued(event)
        return self.watched.first_size if last < 0 else int(self.graph.offset[last])

    def shape(self, event: int) -> Shape:
        """Its size and existence after everything issued before `event`."""
        return Shape(self.size_issued(event), self.exists_issued(event))

    def hidden(self, step: int, size: int) -> list[tuple[int, bytes]]:
        """What was stored beyond `size` before the piece `step` and no shrinking step has cut off since, in order.

        Stores to the rest of a mapped file's last page are beyond its end until it grows.
        """
        graph = self.graph
        data = self.all_data
        beyond = data[(data < step) & (graph.offset[data] + graph.size[data] > size)].tolist()
        shrinks = self.steps[(self.steps < step) & (graph.offset[self.steps] < graph.old_size[self.steps])].tolist()
        kept: list[tuple[int, bytes]] = []
        for id_ in sorted(beyond + shrinks) if beyond else ():
            offset = int(graph.offset[id_])
            if int(graph.kind[id_]) == DATA:
                # below `size` the bytes show already, and may have been overwritten since
                for at, written in graph.runs(id_):
                    low = max(at, size)
                    kept.append((low, written[low - at :]))
            else:
                kept = [(low, bytes_[: max(offset - low, 0)]) for low, bytes_ in kept]
        return kept

    def cuts(self, event: int) -> list[tuple[int, int]]:
        """(piece, size) of the durable steps that shrank the file."""
        durable = self.steps[self.graph.durable_from[self.steps] <= event]
        shrinks = durable[self.graph.offset[durable] < self.graph.old_size[durable]]
        return [(int(id_), int(self.graph.offset[id_])) for id_ in shrinks]

    def durable_data(self, event: int, floor: int) -> Ints:
        """Durable data pieces that reach beyond `floor`."""
        ids, graph = self.all_data, self.graph
        return ids[(graph.durable_from[ids] <= event) & (graph.offset[ids] + graph.size[ids] > floor)]

    def issued_data(self, event: int, floor: int) -> Ints:
        """Data pieces issued before `event` that reach beyond `floor`."""
        ids, graph = self.all_data, self.graph
        return ids[(graph.event[ids] < event) & (graph.offset[ids] + graph.size[ids] > floor)]
