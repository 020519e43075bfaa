"""Images of crash states as folders: names first, then the contents of the inodes that have them.

Which names a state has follows from the pieces of kind NAME that persisted, in program order. Names of one file are
hard links in an image, too.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import unique
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.names import REMOVED, Slot
from crashcheck.analyzer.persistence.pieces import NAME, Ints
from crashcheck.analyzer.trace.calls import Names, paths_by_inode
from crashcheck.analyzer.trace.reader import ROOT
from crashcheck.checker.images.file_table import Row, packed
from crashcheck.checker.images.image_folder import FOLDER, LINK, SYMLINK
from crashcheck.checker.images.piecewise import FilePatch, ImagePatch
from crashcheck.checker.images.sparse_bytes import SparseBytes
from crashcheck.checker.images.transition import Content
from crashcheck.checker.states.space import CrashState, StateSpace

Paths = dict[str, int]  # the inode of each path
Contents = Callable[[int], list[FilePatch]]  # of an inode; the paths in these patches mean nothing

_KEPT = 256  # sets of names that are remembered
_MOST_CONTENTS_BYTES = 1 << 25  # of inodes with some of their pieces, which are remembered
_NONE = np.zeros(0, dtype=np.int64)
_MASK = (1 << 128) - 1


class FolderContent(Content):
    """The images of a state space of a trace of system calls. Patches are of paths, as in Content."""

    def __init__(self, space: StateSpace, first: Path | None = None) -> None:
        super().__init__(space, first)
        graph = self.graph
        self.folder = first
        self._named: Ints = np.flatnonzero(graph.kind == NAME)
        self._named_durable = graph.durable_from[self._named]
        self._named_events = graph.event[self._named]
        # A partial of the graph: a method of this object would hold it, and so the trace, in a reference cycle.
        self._paths_of = lru_cache(maxsize=_KEPT)(partial(_paths, graph))
        self._by_slot: dict[Slot, list[tuple[int, int]]] = {}  # the changes of each name: place among all, and inode
        for place, piece in enumerate(self._named.tolist()):
            for slot, inode in graph.name_change(piece).entries:
                self._by_slot.setdefault(slot, []).append((place, inode))
        of_folders = {number for number, inode in graph.trace.inodes.items() if inode.is_folder}
        self._slots_of_folders = {
            slot for slot, changes in self._by_slot.items() if any(inode in of_folders for _, inode in changes)
        }
        self._folders: tuple[Paths, dict[int, str]] = {}, {}  # paths, and of the directories among them what precedes
        self._latest: tuple[CrashState, Ints] | None = None  # a state's files are asked for one after another
        self._contents: dict[tuple[int, bytes], list[FilePatch]] = {}  # of inodes, by the pieces that persisted
        self._contents_bytes = 0
        self._hashes: dict[tuple[int, Row], bytes] = {}  # of the contents of files that are ever cut
        self._known_issued: tuple[int, Paths] | None = None
        self._known_paths: tuple[CrashState, Paths] | None = None
        self._known_moved: tuple[CrashState, dict[str, tuple[int, int]] | None] | None = None
        self._sums: dict[tuple[int, bool, bytes], int] = {}
        self._names: tuple[Paths, dict[int, list[str]]] = {}, {}  # paths, and those of each inode

    # -- names

    def paths(self, state: CrashState) -> Paths:
        """The inode of each path in a state's image; directories and symbolic links are paths, too."""
        if self._known_paths is None or self._known_paths[0] != state:
            moved = self.moved(state)
            if moved is None:
                paths = self._paths_of(self.names_of(state))
            else:
                paths = self._issued_by(state)
                paths = _with(paths, moved) if moved else paths
            self._known_paths = state, paths
        return self._known_paths[1]

    def moved(self, state: CrashState) -> dict[str, tuple[int, int]] | None:
        """The paths that have another inode than where everything issued has persisted: that one's, and its own.

        None where that is not known without all paths: a directory is among them.
        """
        if self._known_moved is None or self._known_moved[0] != state:
            self._known_moved = state, self._find_moved(state)
        return self._known_moved[1]

    def _find_moved(self, state: CrashState) -> dict[str, tuple[int, int]] | None:
        event, holds = self.space.moment(state.point), self._held(state)
        changed = self._named[~holds & (self._named_events < event)]
        if not len(changed):
            return {}
        held = holds.tobytes()  # whose items Python reads faster
        issued, names, inodes = self._issued_by(state), self.graph.names, self.graph.trace.inodes
        if self._folders[0] is not issued:
            prefixes = {inode: f"{path}/" for path, inode in issued.items() if inodes[inode].is_folder}
            self._folders = issued, prefixes | {ROOT: ""}
        out = {}
        slots = {slot for piece in changed.tolist() for slot, _ in names.changes[int(self.graph.offset[piece])].entries}
        if not slots.isdisjoint(self._slots_of_folders):
            return None
        for folder, name in slots:
            of_slot = reversed(self._by_slot[folder, name])
            now = next((inode for place, inode in of_slot if held[place]), names.first.get((folder, name), REMOVED))
            path = self._folders[1].get(folder)
            if path is not None and issued.get(path + name, REMOVED) != now:
                out[path + name] = issued.get(path + name, REMOVED), now
        return out

    def _issued_by(self, state: CrashState) -> Paths:
        return self.paths_issued(self.space.moment(state.point))

    def touched(self, state: CrashState) -> set[int] | None:
        """The files that may hold something else than what was issued by then; None: any."""
        return self._prints().touched(state) if state.dropped else None

    def paths_issued(self, event: int) -> Paths:
        """The same where everything issued before an event has persisted."""
        issued = int(self._named_events.searchsorted(event))
        if self._known_issued is None or self._known_issued[0] != issued:
            self._known_issued = issued, self._paths_of(tuple(self._named[:issued].tolist()))
        return self._known_issued[1]

    def _paths_durable(self, event: int) -> Paths:
        return self._paths_of(tuple(self._named[self._named_durable <= event].tolist()))

    def names_of(self, state: CrashState) -> tuple[int, ...]:
        """The changes of names that a state's image has, in program order."""
        return tuple(self._named[self._held(state)].tolist())

    def _held(self, state: CrashState) -> NDArray[np.bool_]:
        """For each change of a name whether a state's image has it."""
        event = self.space.moment(state.point)
        held = self._named_durable <= event
        if state.dropped:
            held |= self._named_events < event
        if state.pieces:
            pieces = np.array(state.pieces, dtype=np.int64)
            places = self._named.searchsorted(pieces)
            inside = places < len(self._named)
            places, pieces = places[inside], pieces[inside]
            held[places[self._named[places] == pieces]] = not state.dropped
        return held

    # -- patches

    def patches(self, state: CrashState) -> ImagePatch:
        event = self.space.moment(state.point)
        added = np.array(self.space.persisted(state), dtype=np.int64)
        changed = self._changed(event, added)
        whole = self._whole(event, added)
        return self._between(self._paths_durable(event), self.paths(state), changed, whole)

    def durable(self, from_point: int | None, to_point: int) -> ImagePatch:
        low = -1 if from_point is None else self.space.moment(from_point)
        high = self.space.moment(to_point)
        if high < low:
            raise ValueError(f"crash point {to_point} is before crash point {from_point}")
        changed = self._changed(low, self._made_durable(low, high))
        whole = self._whole(-1, self._made_durable(-1, high))
        before = self._paths_issued_first() if from_point is None else self._paths_durable(low)
        return self._between(before, self._paths_durable(high), changed, whole)

    def durable_back(self, from_point: int, to_point: int) -> ImagePatch | None:
        return None

    def near_full(self, state: CrashState) -> bool:
        return False

    def issued(self, from_point: int | None, to_point: int) -> ImagePatch:
        low = -1 if from_point is None else self.space.moment(from_point)
        high = self.space.moment(to_point)
        first, last = np.searchsorted(self.graph.event, [low, high]).tolist()
        by_file = {file.number: (file, ids) for file, ids in self._by_file(np.arange(first, last))}

        def changed(inode: int) -> list[FilePatch]:
            return self._file_issued(by_file[inode][0], low, high, by_file[inode][1]) if inode in by_file else []

        before = self._paths_issued_first() if from_point is None else self.paths_issued(low)
        return self._between(before, self.paths_issued(high), changed, self._whole(-1, np.arange(last)))

    def taken_back(self, from_point: int, to_point: int) -> ImagePatch | None:
        return None

    def final(self) -> ImagePatch:
        everything = np.arange(len(self.graph))
        end = len(self.graph.trace.events)
        changed, whole = self._changed(-1, everything), self._whole(-1, everything)
        return self._between(self._paths_issued_first(), self.paths_issued(end), changed, whole)

    def _paths_issued_first(self) -> Paths:
        return self._paths_of(())

    def _changed(self, event: int, added: Ints) -> Contents:
        """How contents change if pieces persist beside what is durable at an event."""
        by_file = {file.number: (file, ids) for file, ids in self._by_file(added)}

        def of(inode: int) -> list[FilePatch]:
            if inode not in by_file:
                return []
            patch = self._file_transition(by_file[inode][0], event, by_file[inode][1])
            return [patch] if patch is not None else []

        return of

    def _whole(self, event: int, added: Ints) -> Contents:
        """The content of an inode with what is durable at an event and pieces beside it, from nothing."""

        @cache
        def by_file() -> dict[int, Ints]:
            durable = self.space.finite[: self._durable_from.searchsorted(event, side="right")]
            return {file.number: ids for file, ids in self._by_file(np.sort(np.concatenate([durable, added])))}

        return lambda inode: self._from_nothing(inode, by_file().get(inode, _NONE))

    def _from_nothing(self, inode: int, ids: Ints) -> list[FilePatch]:
        """The content of an inode with pieces of it that persisted. Many states have the same ones."""
        key = inode, ids.tobytes()
        known = self._contents.get(key)
        if known is None:
            file = self._files[inode]
            patch = self._file_transition(file, -1, ids) if len(ids) else None
            size = file.watched.first_size if patch is None else patch.size
            first = [
                (low, self.first.bytes(inode, low, high)) for low, high in self.first.data(inode, 0, min(size, 1 << 62))
            ]
            known = [FilePatch("", True, size, tuple(first)), *([] if patch is None else [patch])]
            self._contents_bytes += len(key[1]) + sum(len(data) for each in known for _, data in each.writes)
            if self._contents_bytes > _MOST_CONTENTS_BYTES:
                self._contents.clear()
                self._contents_bytes = 0
            self._contents[key] = known
        return known

    def _between(self, before: Paths, after: Paths, changed: Contents, whole: Contents) -> ImagePatch:
        """From one image to another: names that go, directories, then files and links."""
        out: list[FilePatch] = []
        if before is not after:
            gone = [path for path, inode in before.items() if after.get(path) != inode]
            out += [FilePatch(path, False, 0, ()) for path in sorted(gone, reverse=True)]
        main = _main_names(before, after)
        again = []  # further names of files
        for path, inode in sorted(after.items()):
            stays = before.get(path) == inode
            if inode in self._files and main[inode] != path:
                if not (stays and before.get(main[inode]) == inode):
                    again.append(FilePatch(path, True, LINK, ((0, os.fsencode(main[inode])),)))
            elif inode in self._files:
                of_inode = (changed if stays else whole)(inode)
                out += [FilePatch(path, patch.exists, patch.size, patch.writes) for patch in of_inode]
            elif not stays:
                out.append(self._no_file(path, inode))
        return (*out, *again)

    def _no_file(self, path: str, inode: int) -> FilePatch:
        """A directory or a symbolic link; other kinds, as sockets, hold nothing that a crash could lose."""
        known = self.graph.trace.inodes[inode]
        if known.is_folder:
            return FilePatch(path, True, FOLDER, ())
        return FilePatch(path, True, SYMLINK, ((0, os.fsencode(self._target(inode))),))

    def _target(self, inode: int) -> str:
        table = self.graph.names
        if inode in table.targets:
            return table.targets[inode]
        places = (self.folder / path for path in self.graph.trace.inodes[inode].paths) if self.folder else ()
        return next((os.readlink(place) for place in places if place.is_symlink()), "")

    # -- contents

    def is_file(self, inode: int) -> bool:
        return inode in self._files

    def ever_cut(self, inode: int) -> bool:
        """Whether the file is cut at some time, so that its keys cost as much as it is long."""
        return self._files[inode].ever_cut

    def key(self, state: CrashState, inode: int) -> bytes:
        """Of a file in a state: equal for equal contents, and of no other length."""
        row = self._prints().rows_of(state)[self._prints().place[inode]]
        if not self._files[inode].ever_cut:
            return packed(row)
        known = self._hashes.get((inode, row))
        if known is None:
            known = self._hashes[inode, row] = self.bytes_of(state, inode).digest()
        return known

    def key_issued(self, inode: int, event: int) -> bytes:
        """The same where everything issued before an event has persisted."""
        if not self._files[inode].ever_cut:
            return packed(self._prints().files[self._prints().place[inode]].full(event))
        return self.bytes_issued(event, inode).digest()

    def versions(self, inode: int) -> tuple[Ints, list[bytes]]:
        """The events that change a file, and its `key_issued` after each of them."""
        if not self._files[inode].ever_cut:
            return self._prints().files[self._prints().place[inode]].versions()
        pieces = self.graph.pieces_of(inode)
        event = unique(self.graph.event[pieces[self.graph.kind[pieces] != NAME]])
        return event, [self.key_issued(inode, at + 1) for at in event.tolist()]

    def bytes_of(self, state: CrashState, inode: int) -> SparseBytes:
        """The content of a file in a state."""
        if self._latest is None or self._latest[0] != state:
            self._latest = state, np.array(self.space.persisted(state), dtype=np.int64)
        event = self.space.moment(state.point)
        return SparseBytes(self._whole(event, self._latest[1])(inode))

    def bytes_issued(self, event: int, inode: int) -> SparseBytes:
        """The content of a file where everything issued before an event has persisted."""
        pieces = self.graph.pieces_of(inode)
        issued = pieces[: int(self.graph.event[pieces].searchsorted(event))]
        return SparseBytes(self._whole(-1, issued)(inode))

    # -- what is equal

    def fingerprint(self, state: CrashState) -> bytes:
        """16 bytes; equal iff names, sizes, bytes and what was acknowledged are equal."""
        prints, moved = self._prints(), self.moved(state)
        base, rows = prints.base_rows(state), prints.rows_of(state)
        paths = self.paths(state) if moved is None else self._issued_by(state)
        key = state.point, state.dropped, self._held(state).tobytes() if moved is None else b""
        total = self._sums.get(key)
        if total is None:
            if len(self._sums) >= _KEPT:
                self._sums.clear()
            total = self._sums[key] = self._sum(paths.items(), base) + _links(paths.items())
        moved, named = moved or {}, self._named_by(paths)
        inodes = prints.touched(state).union(*moved.values()) - {REMOVED}
        before = [(path, inode) for inode in inodes for path in named.get(inode, ())]
        after = [(path, inode) for path, inode in before if path not in moved]
        after += [(path, inode) for path, (_, inode) in moved.items() if inode != REMOVED]
        total += self._sum(after, rows) + _links(after) - self._sum(before, base) - _links(before)
        total &= _MASK
        point = self.space.points[state.point]
        known = f"{point.acked} {point.stdout_bytes} {point.outputs}".encode()
        return hashlib.blake2b(known + b"\0" + total.to_bytes(16, "little"), digest_size=16).digest()

    def _named_by(self, paths: Paths) -> dict[int, list[str]]:
        """Some paths, by inode: of the same ones again and again."""
        if self._names[0] is not paths:
            self._names = paths, paths_by_inode(paths)
        return self._names[1]

    def _sum(self, paths: Iterable[tuple[str, int]], rows: list[Row]) -> int:
        """A number for some paths and what they hold, whatever their order."""
        place, total = self._prints().place, 0
        for path, inode in paths:
            if inode in place:
                file = self._files[inode]
                whose = inode if file.watched.existed else 0  # equal words of different first contents are not equal
                held = b"f%d " % whose + packed(rows[place[inode]])
            else:
                patch = self._no_file(path, inode)
                held = b"n%d" % patch.size + b"".join(data for _, data in patch.writes)
            digest = hashlib.blake2b(os.fsencode(path) + b"\0" + held, digest_size=16).digest()
            total += int.from_bytes(digest, "little")
        return total & _MASK


def _main_names(before: Paths, after: Paths) -> dict[int, str]:
    """Of each inode the name that it is written under: one that it has already, else its first."""
    main: dict[int, str] = {}
    for path, inode in sorted(after.items(), key=lambda item: (before.get(item[0]) != item[1], item[0])):
        main.setdefault(inode, path)
    return main


def _with(paths: Paths, moved: Mapping[str, tuple[int, int]]) -> Paths:
    """Some paths, of which those have other inodes."""
    out = dict(paths)
    for path, (_, inode) in moved.items():
        if inode == REMOVED:
            out.pop(path, None)
        else:
            out[path] = inode
    return out


def _links(paths: Iterable[tuple[str, int]]) -> int:
    """A number for which paths are names of one file."""
    several = (group for group in paths_by_inode(dict(paths)).values() if len(group) > 1)
    groups = ("\0".join(sorted(group)).encode("utf-8", "surrogateescape") for group in several)
    return sum(
        int.from_bytes(hashlib.blake2b(group, digest_size=16, key=b"links").digest(), "little") for group in groups
    )


def _paths(graph: PersistenceGraph, changes: tuple[int, ...]) -> Paths:
    """The inode of each path after some changes of names, in program order."""
    entries = dict(graph.names.first)
    for piece in changes:
        for slot, inode in graph.name_change(piece).entries:
            if inode == REMOVED:
                entries.pop(slot, None)
            else:
                entries[slot] = inode
    return Names(entries).paths()


def content_of(space: StateSpace, first: Path | None) -> Content:
    """The images of a state space: of single files, or of folders with their names."""
    return FolderContent(space, first) if space.graph.family.names else Content(space, first)
