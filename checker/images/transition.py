"""What bytes a crash state holds, as patches to the state before it, and whether two states are equal."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.persistence.pieces import DATA, EXISTS, NAME, SIZE, WORD_BYTES, Ints
from crashcheck.checker.images.fingerprint import Fingerprints
from crashcheck.checker.images.first_image import FirstImage
from crashcheck.checker.images.piecewise import File, FilePatch, ImagePatch, Piecewise
from crashcheck.checker.images.words import Words
from crashcheck.checker.states.ideals import Ids
from crashcheck.checker.states.space import CrashState, StateSpace

_MOST_TERMS = 1 << 18
_LANE_BITS = 96  # of a sum of 64-bit numbers
_LANES = (1 << 64) - 1 | ((1 << 64) - 1) << _LANE_BITS
_START = np.zeros(1, dtype=np.int64)
_FEW, _SPARSE = 256, 16  # so few pieces, or one in so many, are sorted faster than looked for

Shape = tuple[bool, int]  # whether a file exists, and its size


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
        self.first = FirstImage(first, self.graph.trace.files, self.graph.family.names)
        self._files = {number: File(self.graph, number) for number in sorted(self.graph.trace.files)}
        self._piecewise = Piecewise(self.graph, self.first)
        self._durable_from = self.graph.durable_from[space.finite]
        self._fingerprints: Fingerprints | None = None
        self._terms: dict[int, int] = {}  # what data pieces add to fingerprints, both lanes in one number
        self._ever_cut = bool(((self.graph.kind != DATA) & (self.graph.offset < self.graph.old_size)).any())

    def patches(self, state: CrashState) -> ImagePatch:
        """From the durable image of the state's crash point to the state."""
        event = self.space.moment(state.point)
        return self._transition(event, np.array(self.space.persisted(state), dtype=np.int64))

    def durable(self, from_point: int | None, to_point: int) -> ImagePatch:
        """From the durable image of one point (None: the first image) to that of a later one.

        Raises ValueError if `to_point` is the earlier one.
        """
        low = -1 if from_point is None else self.space.moment(from_point)
        high = self.space.moment(to_point)
        if high < low:
            raise ValueError(f"crash point {to_point} is before crash point {from_point}")
        return self._transition(low, self._made_durable(low, high))

    def durable_back(self, from_point: int, to_point: int) -> ImagePatch | None:
        """From the durable image of one point back to that of an earlier one.

        None where a file that was there before the run, and is ever cut, differs: a word's history does not show cuts.
        """
        high, low = (self.space.moment(point) for point in (from_point, to_point))

        def anew(file: File) -> list[FilePatch]:
            ids = self._made_durable(-1, low)
            patch = self._piecewise.transition(file, -1, ids[self.graph.file[ids] == file.number].tolist())
            return [patch] if patch is not None else []

        return self._back(self._made_durable(low, high), lambda file: (file.exists(low), file.size(low)), anew)

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
        event = self.space.moment(state.point)
        out = []
        for file, ids in self._by_file(np.array(state.pieces, dtype=np.int64)):
            size = file.size_issued(event)
            out.append(FilePatch(file.path, True, size, _runs(*self._prints().words_before(ids), size)))
        return tuple(out)

    def issued(self, from_point: int | None, to_point: int) -> ImagePatch:
        """From everything issued by one point (None: the first image) to everything issued by a later one.

        A file may occur more than once: it then takes these shapes one after the other.
        """
        low_event = -1 if from_point is None else self.space.moment(from_point)
        high_event = self.space.moment(to_point)
        low, high = np.searchsorted(self.graph.event, [low_event, high_event]).tolist()
        by_file = self._by_file(np.arange(low, high))
        return tuple(patch for file, ids in by_file for patch in self._file_issued(file, low_event, high_event, ids))

    def _file_issued(self, file: File, low_event: int, high_event: int, ids: Ints) -> list[FilePatch]:
        if file.ever_cut:
            low, high = np.searchsorted(self.graph.event, [low_event, high_event]).tolist()
            return self._piecewise.issued(file, low, high)
        old = file.exists_issued(low_event), file.size_issued(low_event)
        new = file.exists_issued(high_event), file.size_issued(high_event)
        patch = self._grown(file, old, new, ids, partial(file.issued_data, low_event))
        return [patch] if patch is not None else []

    def taken_back(self, from_point: int, to_point: int) -> ImagePatch | None:
        """From everything issued by one point back to everything issued by an earlier one; None as `durable_back`."""
        high_event, event = (self.space.moment(point) for point in (from_point, to_point))
        low, high = np.searchsorted(self.graph.event, [event, high_event]).tolist()
        return self._back(
            np.arange(low, high),
            lambda file: (file.exists_issued(event), file.size_issued(event)),
            lambda file: self._piecewise.issued(file, 0, low),
        )

    def sizes_issued(self, point: int) -> tuple[int, ...]:
        """The size of each file after everything issued by a point."""
        event = self.space.moment(point)
        return tuple(file.size_issued(event) for file in self._files.values())

    def final(self) -> ImagePatch:
        """From the first image to everything persisted."""
        return self._transition(-1, np.arange(len(self.graph)))

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
        if self._ever_cut:
            return lost
        added = 0
        for id_ in lost:
            term = self._terms.get(id_)
            if term is None:
                if id_ >= len(self.graph) or self.graph.kind[id_] != DATA:
                    return lost
                if len(self._terms) >= _MOST_TERMS:
                    self._terms.clear()
                low, high = self._prints().sums.of([id_])
                term = self._terms[id_] = low | high << _LANE_BITS
            added += term
        return added & _LANES

    def _prints(self) -> Fingerprints:
        if self._fingerprints is None:
            self._fingerprints = Fingerprints(self.space, self.first)
        return self._fingerprints

    def _made_durable(self, low: int, high: int) -> Ints:
        """The pieces that are durable at the event `high` and were not at `low`."""
        first, last = np.searchsorted(self._durable_from, [low, high], side="right")
        found = self.space.finite[first:last]
        if len(found) < _FEW:
            return np.sort(found)
        begin, end = int(found.min()), int(found.max()) + 1
        if end - begin > _SPARSE * len(found):
            return np.sort(found)
        when = self.graph.durable_from[begin:end]
        return np.flatnonzero((when > low) & (when <= high)) + begin

    def _by_file(self, ids: Ints) -> list[tuple[File, Ints]]:
        """Pieces and parts, which ascend, by file."""
        rows = self.graph.wholes(ids)
        if self.graph.family.names:
            keep = self.graph.kind[rows] != NAME
            ids, rows = ids[keep], rows[keep]
        if len(self._files) == 1 and len(ids):
            return [(next(iter(self._files.values())), ids)]
        files = self.graph.file[rows]
        order = np.argsort(files, kind="stable")
        files, ids = files[order], ids[order]
        starts = np.flatnonzero(np.diff(files, prepend=-1))
        bounds = pairwise([*starts.tolist(), len(ids)])
        return [
            (self._files[number], ids[low:high])
            for number, (low, high) in zip(files[starts].tolist(), bounds, strict=True)
        ]

    def _transition(self, event: int, added: Ints) -> ImagePatch:
        """From the image of what is durable at `event` to that with the pieces `added` persisted as well."""
        patches = (self._file_transition(file, event, ids) for file, ids in self._by_file(added))
        return tuple(patch for patch in patches if patch is not None)

    def _file_transition(self, file: File, event: int, ids: Ints) -> FilePatch | None:
        """The same of one file, whose pieces `ids` are; None where its image stays as it is."""
        graph = self.graph
        if file.ever_cut:
            return self._piecewise.transition(file, event, ids.tolist())
        exists, size = file.exists(event), file.size(event)
        whole, kinds = ids[ids < len(graph)], graph.kind[graph.wholes(ids)]
        sizes = graph.sizes_after(ids[kinds == SIZE])
        new = exists or bool((kinds == EXISTS).any()), int(sizes.max(initial=size))
        return self._grown(file, (exists, size), new, whole, partial(file.durable_data, event))

    def _grown(self, file: File, old: Shape, new: Shape, added: Ints, held: Callable[[int], Ints]) -> FilePatch | None:
        """How a file that is never cut gets from one shape to a later one; None where its image stays as it is.

        `held(n)`: the data pieces of its image before that reach beyond byte n.
        """
        (existed, before), (exists, size) = old, new
        if not exists:
            return None
        ids = added[self.graph.kind[added] == DATA]
        before = before if existed else 0
        words, values = self._prints().words_after(ids)
        if size > before:
            # What the smaller file hid shows now, from the word on in which it ended. Pieces that reach there may have
            # been overwritten in the words below it.
            floor = before // WORD_BYTES
            reached, shown = self._prints().words_after(unique(np.concatenate([ids, held(floor * WORD_BYTES)])))
            below, above = words < floor, reached >= floor
            words = np.concatenate([words[below], reached[above]])
            values = np.concatenate([values[below], shown[above]])
        writes = _runs(words, values, size)
        if existed and size == before and not writes:
            return None
        return FilePatch(file.path, True, size, writes)

    def _back(
        self, undone: Ints, shape: Callable[[File], Shape], anew: Callable[[File], list[FilePatch]]
    ) -> ImagePatch | None:
        """Without the pieces `undone`, the latest ones. `again`: to a file's earlier image from nothing."""
        out: list[FilePatch] = []
        for file, ids in self._by_file(undone):
            if file.ever_cut and file.watched.existed:
                return None
            exists, size = shape(file)
            if file.ever_cut or not exists:
                out.append(FilePatch(file.path, False, 0, ()))
                out += anew(file) if exists else []
                continue
            data = ids[self.graph.kind[ids] == DATA]
            out.append(FilePatch(file.path, True, size, _runs(*self._prints().words_before(data), size)))
        return tuple(out)


def _runs(words: Ints, values: Words, size: int) -> tuple[tuple[int, bytes], ...]:
    """Words of a file of `size` bytes, by ascending number, as writes within it."""
    if len(words) and words[-1] * WORD_BYTES >= size:
        some = slice(int((words * WORD_BYTES).searchsorted(size)))
        words, values = words[some], values[some]
    if not len(words):
        return ()
    content = values.tobytes()
    first = np.concatenate([_START, np.flatnonzero(words[1:] - words[:-1] != 1) + 1])
    bounds = [*(first * WORD_BYTES).tolist(), len(content)]
    offsets = (words[first] * WORD_BYTES).tolist()
    return tuple(
        (offset, content[low : min(high, low + size - offset)])
        for offset, (low, high) in zip(offsets, pairwise(bounds), strict=True)
    )
