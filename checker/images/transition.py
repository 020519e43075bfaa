"""What bytes a crash state holds, as patches to the state before it, and whether two states are equal."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, EXISTS, SIZE, WORD_BYTES, Ints
from crashcheck.checker.images.fingerprint import Fingerprints, Words
from crashcheck.checker.images.first_image import FirstImage
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace


@dataclass(frozen=True, slots=True)
class FilePatch:
    """How one file changes: its existence and size afterwards, and bytes to write once it has that size.

    Cut or grow the file to `size` first (what it gains reads as zeros), then write. `writes` do not overlap, ascend,
    and are within `size`.
    """

    path: str  # relative to the pool folder
    exists: bool
    size: int
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


class _Shape:
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


class Content:
    """The images of a state space's states.

    `first` is the folder with the first image (files absent from it are taken to be zeros, or not to exist).
    The image of a set of persisted pieces is made in program order: data are written, a size step sets
    the size and, where the file shrinks, everything beyond reads as zeros from then on; bytes beyond the
    final size are cut off, and a file whose creation did not persist is not there.
    """

    def __init__(self, space: StateSpace, first: Path | None = None) -> None:
        self.space = space
        self.graph = space.graph
        self.first = FirstImage(first, self.graph.trace.files)
        self._files = {number: _File(self.graph, number) for number in sorted(self.graph.trace.files)}
        self._fingerprints: Fingerprints | None = None
        self._ever_cut = bool(((self.graph.kind != DATA) & (self.graph.offset < self.graph.old_size)).any())

    def patches(self, state: CrashState) -> ImagePatch:
        """From the durable image of the state's crash point to the state."""
        event = int(self.space.points.event[state.point])
        return self._transition(event, self.space.persisted(state))

    def durable(self, from_point: int | None, to_point: int) -> ImagePatch:
        """From the durable image of one point (None: the first image) to that of a later one.

        Raises ValueError if `to_point` is the earlier one.
        """
        low = -1 if from_point is None else int(self.space.points.event[from_point])
        high = int(self.space.points.event[to_point])
        if high < low:
            raise ValueError(f"crash point {to_point} is before crash point {from_point}")
        durable = self.graph.durable_from
        return self._transition(low, np.flatnonzero((durable > low) & (durable <= high)).tolist())

    def near_full(self, state: CrashState) -> bool:
        """Whether `lost` identifies the state: little was lost, only data, and no size hides any of them."""
        if not state.dropped:
            return False
        return self._prints().plain_loss(state)

    def lost(self, state: CrashState) -> ImagePatch:
        """From the image of everything issued by the state's point to the state; only where `near_full`.

        The persisted updates of a word are a prefix of its history (fingerprint.py), so each word goes back to
        what it was before the first of its updates that was lost.
        """
        event = int(self.space.points.event[state.point])
        return self._words(self._prints().words_before(state.pieces), event)

    def _words(self, values_of: Iterable[tuple[int, Ints, Words]], event: int) -> ImagePatch:
        """Words, by file, to be written to files whose sizes are those issued by `event`."""
        out = []
        for number, words, values in values_of:
            size = self._files[number].size_issued(event)
            first = np.flatnonzero(np.concatenate([[True], np.diff(words) != 1]))
            writes = []
            for low, high in zip(first.tolist(), [*first[1:].tolist(), len(words)], strict=True):
                offset = int(words[low]) * WORD_BYTES
                data = values[low:high].tobytes()[: max(size - offset, 0)]
                if data:
                    writes.append((offset, data))
            out.append(FilePatch(self.graph.trace.files[number].path, True, size, tuple(writes)))
        return tuple(out)

    def issued(self, from_point: int | None, to_point: int) -> ImagePatch:
        """From everything issued by one point (None: the first image) to everything issued by a later one.

        A file may occur more than once: it then takes these shapes one after the other.
        """
        low = 0 if from_point is None else int(np.searchsorted(self.graph.event, self.space.points.event[from_point]))
        high = int(np.searchsorted(self.graph.event, self.space.points.event[to_point]))
        if not (self.graph.kind[low:high] != DATA).any() and not self._ever_cut:
            return self._words(self._prints().words_after(range(low, high)), int(self.space.points.event[to_point]))
        shapes: dict[int, _Shape] = {}
        out: list[FilePatch] = []
        for id_ in range(low, high):
            number, kind = int(self.graph.file[id_]), int(self.graph.kind[id_])
            shape = shapes.get(number)
            if shape is None:
                before = int(self.graph.event[low]) if low else -1
                shape = shapes[number] = self._files[number].shape(before)
            if kind == DATA:
                shape.overlay.write(int(self.graph.offset[id_]), self.graph.data(id_))
            elif kind == EXISTS:
                shape.exists = exists_after(self.graph, id_)
            elif kind == SIZE:
                size = int(self.graph.offset[id_])
                if size < int(self.graph.old_size[id_]):
                    # cut now, so that what it gains later reads as zeros
                    out.append(shape.patch(self.graph.trace.files[number].path, size))
                    shapes[number] = shape = _Shape(size, shape.exists)
                elif size > shape.size:
                    for offset, data in self._files[number].hidden(id_, shape.size):
                        shape.overlay.write(offset, data)
                shape.size = size
        for number in sorted(shapes):
            shape = shapes[number]
            out.append(shape.patch(self.graph.trace.files[number].path, shape.size))
        return tuple(out)

    def taken_back(self, from_point: int, to_point: int) -> ImagePatch | None:
        """From everything issued by one point back to everything issued by an earlier one.

        None where a size or a name changes after the earlier point, or a file was ever cut: words do not show that.
        """
        graph = self.graph
        low, high = np.searchsorted(graph.event, [self.space.points.event[p] for p in (to_point, from_point)]).tolist()
        if (graph.kind[low:] != DATA).any() or self._ever_cut:
            return None
        event = int(self.space.points.event[to_point])
        return self._words(self._prints().words_before(range(low, high)), event)

    def final(self) -> ImagePatch:
        """From the first image to everything persisted."""
        return self._transition(-1, range(len(self.graph)))

    def fingerprint(self, state: CrashState) -> bytes:
        """16 bytes; equal iff names, sizes, bytes and what was acknowledged (marks ended, output) are equal.

        A state costs what its smaller side costs, whatever the length of the trace.
        """
        return self._prints().of(state)

    def silent(self) -> NDArray[np.bool_]:
        """For each piece whether no image shows if it persisted: it writes what was there already.

        Not known where a file is ever cut, which puts other bytes there.
        """
        if self._ever_cut:
            return np.zeros(len(self.graph), dtype=np.bool_)
        return self._prints().silent()

    def difference(self, lost: Ids) -> Hashable:
        """Equal for two sets of pieces of one granule only if it does not matter which of them an image lacks.

        Where a size, a name or a cut is involved, each set has its own.
        """
        if self._ever_cut or any(id_ >= len(self.graph) or self.graph.kind[id_] != DATA for id_ in lost):
            return lost
        return self._prints().sums(list(lost))

    def _prints(self) -> Fingerprints:
        if self._fingerprints is None:
            self._fingerprints = Fingerprints(self.space, self.first)
        return self._fingerprints

    def _transition(self, event: int, added: Iterable[int]) -> ImagePatch:
        """From the image of what is durable at `event` to that with the pieces `added` persisted as well."""
        by_file: dict[int, list[int]] = {}
        file_of = self.graph.file
        for id_ in added:
            by_file.setdefault(int(file_of[self.graph.whole(id_)[0]]), []).append(id_)
        out = []
        for number in sorted(by_file):
            patch = self._file_transition(self._files[number], event, by_file[number])
            if patch is not None:
                out.append(patch)
        return tuple(out)

    def _file_transition(self, file: _File, event: int, added: list[int]) -> FilePatch | None:
        """The patch of one file; None where its image stays as it is.

        1. Find the size that the file gets, and the cuts that only now persist.
        2. What these cut off reads as zeros.
        3. Durable bytes show again: those that the smaller file hid, and those issued after such a cut.
        4. These and the added data are written in program order, each as far as no later cut took it away.
        """
        graph = self.graph
        # a part of an extension is persisted where its extension is in program order
        added.sort(key=lambda id_: graph.whole(id_)[0])
        kinds = [int(graph.kind[graph.whole(id_)[0]]) for id_ in added]
        exists, old_size = file.exists(event), file.size(event)
        names = [id_ for id_, kind in zip(added, kinds, strict=True) if kind == EXISTS]
        path = graph.trace.files[file.number].path
        if not (exists_after(graph, names[-1]) if names else exists):
            return FilePatch(path, False, 0, ()) if exists else None
        base_size = old_size if exists else 0
        steps = [id_ for id_, kind in zip(added, kinds, strict=True) if kind == SIZE]
        data = [id_ for id_, kind in zip(added, kinds, strict=True) if kind == DATA]
        later_step = bool(steps) and graph.whole(steps[-1])[0] > file.last_step(event)
        size = graph.size_after(steps[-1]) if later_step else old_size
        cuts = self._cuts_among(steps)
        overlay = _Overlay()
        if cuts:
            self._write_zeros(overlay, file, event, min(at for _, at in cuts), base_size, size)
        shown, floor = self._shown_again(file, event, base_size, size, cuts)
        all_cuts = sorted(cuts + file.cuts(event))
        for id_ in sorted(shown.union(data)):
            # what a shown piece left below the floor may have been overwritten by one that is not shown again
            low, left = self._left_of(id_, all_cuts, floor if id_ in shown else 0)
            if left:
                overlay.write(low, left)
        writes = overlay.runs(size)
        if exists and size == old_size and not writes:
            return None
        return FilePatch(path, True, size, writes)

    def _cuts_among(self, steps: list[int]) -> list[tuple[int, int]]:
        """(piece, size) of the size steps that shrink the file."""
        sizes = ((self.graph.whole(id_)[0], self.graph.size_after(id_)) for id_ in steps)
        return [(id_, at) for id_, at in sizes if at < int(self.graph.old_size[id_])]

    def _write_zeros(self, overlay: _Overlay, file: _File, event: int, floor: int, base_size: int, size: int) -> None:
        """Zeros for all that the first image and durable data left from `floor` on."""
        graph = self.graph
        for low, high in self.first.data(file.number, floor, min(base_size, size)):
            overlay.write(low, bytes(high - low))
        for id_ in file.durable_data(event, floor):
            low = max(int(graph.offset[id_]), floor)
            high = min(int(graph.offset[id_] + graph.size[id_]), size)
            if high > low:
                overlay.write(low, bytes(high - low))

    def _shown_again(
        self, file: _File, event: int, base_size: int, size: int, cuts: list[tuple[int, int]]
    ) -> tuple[set[int], int]:
        """Durable data pieces that show again, and the offset from which on they do."""
        shown: set[int] = set()
        floor = base_size
        if size > base_size:
            shown.update(file.durable_data(event, base_size))
        if cuts:
            first_cut = min(id_ for id_, _ in cuts)
            floor = min(floor, min(at for _, at in cuts))
            shown.update(id_ for id_ in file.durable_data(event, floor) if id_ > first_cut)
        return shown, floor

    def _left_of(self, id_: int, all_cuts: list[tuple[int, int]], floor: int) -> tuple[int, bytes]:
        """(offset, bytes) that a data piece wrote from `floor` on and no later cut took away. `all_cuts` ascends."""
        low, data = int(self.graph.offset[id_]), self.graph.data(id_)
        if low < floor:
            low, data = floor, data[floor - low :]
        if all_cuts and all_cuts[-1][0] > id_:
            limit = min(at for cut, at in all_cuts if cut > id_)
            data = data[: max(limit - low, 0)]
        return low, data


def exists_after(graph: PersistenceGraph, piece: int) -> bool:
    """Whether a file exists after a change of its existence: it went away where there was something before."""
    return int(graph.old_size[piece]) <= 0


class _File:
    """One file's size, existence and durable data at any event."""

    def __init__(self, graph: PersistenceGraph, number: int) -> None:
        self.number = number
        self.graph = graph
        self.watched = graph.trace.files[number]
        mine = graph.file == number
        self.steps: Ints = np.flatnonzero(mine & (graph.kind == SIZE))
        self.step_durable = graph.durable_from[self.steps]
        self.names: Ints = np.flatnonzero(mine & (graph.kind == EXISTS))
        self.name_durable = graph.durable_from[self.names]
        self._data: Ints | None = None

    def exists(self, event: int) -> bool:
        durable = self.names[self.name_durable <= event]
        return exists_after(self.graph, int(durable[-1])) if len(durable) else self.watched.existed

    def exists_issued(self, event: int) -> bool:
        """Whether it exists after every change of names issued before `event`."""
        last = int(np.searchsorted(self.graph.event[self.names], event, side="left"))
        return exists_after(self.graph, int(self.names[last - 1])) if last else self.watched.existed

    def last_step(self, event: int) -> int:
        """The last durable size step, -1 if none."""
        durable = self.steps[self.step_durable <= event]
        return int(durable[-1]) if len(durable) else -1

    def size(self, event: int) -> int:
        last = self.last_step(event)
        return self.watched.first_size if last < 0 else int(self.graph.offset[last])

    def size_issued(self, event: int) -> int:
        """The size after every step issued before `event`."""
        last = int(np.searchsorted(self.graph.event[self.steps], event, side="left"))
        return int(self.graph.offset[self.steps[last - 1]]) if last else self.watched.first_size

    def shape(self, event: int) -> _Shape:
        """Its size and existence after everything issued before `event`."""
        return _Shape(self.size_issued(event), self.exists_issued(event))

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
                low = max(offset, size)
                kept.append((low, graph.data(id_)[low - offset :]))
            else:
                kept = [(low, bytes_[: max(offset - low, 0)]) for low, bytes_ in kept]
        return kept

    def cuts(self, event: int) -> list[tuple[int, int]]:
        """(piece, size) of the durable steps that shrank the file."""
        shrinks = (self.step_durable <= event) & (self.graph.offset[self.steps] < self.graph.old_size[self.steps])
        return [(int(id_), int(self.graph.offset[id_])) for id_ in self.steps[shrinks]]

    @property
    def all_data(self) -> Ints:
        """Every data piece of the file."""
        if self._data is None:
            self._data = np.flatnonzero((self.graph.file == self.number) & (self.graph.kind == DATA))
        return self._data

    def durable_data(self, event: int, floor: int) -> list[int]:
        """Durable data pieces that reach beyond `floor`."""
        ids = self.all_data
        graph = self.graph
        return [
            int(id_) for id_ in ids[(graph.durable_from[ids] <= event) & (graph.offset[ids] + graph.size[ids] > floor)]
        ]


__all__ = ["Content", "FilePatch", "ImagePatch"]
