"""The watched folder as the program saw it: its paths and the bytes of its files after each call of the recorded run.

One step costs what its call changed, so that a run over thousands of files is read in proportion to its length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.names import REMOVED, Slot
from crashcheck.analyzer.persistence.pieces import DATA, NAME, SIZE
from crashcheck.analyzer.trace.calls import Names, paths_by_inode
from crashcheck.analyzer.trace.completeness import FileReplay
from crashcheck.analyzer.trace.reader import ROOT, WatchedFile

Counts = NDArray[np.int64]  # (256,): how often each byte value occurs


class IssuedFolder:
    """Steps through a run. `counts`: of all bytes in the files among `counted` that have a name.

    `first`: the folder with the first image.
    """

    def __init__(self, graph: PersistenceGraph, first: Path | None, counted: Collection[int]) -> None:
        self._graph = graph
        self._below: dict[int, dict[str, int]] = {}
        for (folder, name), inode in graph.names.first.items():
            self._below.setdefault(folder, {})[name] = inode
        self.paths = Names(dict(graph.names.first)).paths()
        self.names = {inode: set(paths) for inode, paths in paths_by_inode(self.paths).items()}
        inodes = graph.trace.inodes
        self._prefix = {i: f"{path}/" for path, i in self.paths.items() if i == ROOT or inodes[i].is_folder}
        self._prefix[ROOT] = ""
        self._files = {
            number: _CountedFile(file, first / file.path if first is not None else None)
            for number, file in graph.trace.files.items()
            if number in counted
        }
        self.counts: Counts = np.zeros(256, dtype=np.int64)
        for inode in self.names:
            self._count(inode, +1)

    def _count(self, inode: int, sign: int) -> None:
        if inode in self._files:
            self.counts += sign * self._files[inode].counts

    def counts_of(self, inode: int) -> Counts:
        """The part of a file in `counts`."""
        file = self._files.get(inode)
        return np.zeros(256, dtype=np.int64) if file is None or not self.names.get(inode) else file.counts

    def step(self, pieces: Iterable[int]) -> set[str]:
        """Apply what one event issues; returns the paths that have another inode now, or none."""
        entries: list[tuple[Slot, int]] = []
        for piece in pieces:
            kind, inode = int(self._graph.kind[piece]), int(self._graph.file[piece])
            if kind == NAME:
                entries += self._graph.names.changes[int(self._graph.offset[piece])].entries
            elif inode in self._files:
                self._change(piece, kind, inode)
        return self._rename(entries) if entries else set()

    def _change(self, piece: int, kind: int, inode: int) -> None:
        file, named = self._files[inode], bool(self.names.get(inode))
        if named:
            self._count(inode, -1)
        if kind == SIZE:
            file.resize(int(self._graph.offset[piece]))
        elif kind == DATA:
            for offset, data in self._graph.runs(piece):
                file.write(offset, data)
        if named:
            self._count(inode, +1)

    def _rename(self, entries: list[tuple[Slot, int]]) -> set[str]:
        before: dict[str, int] = {}
        for (folder, name), _ in entries:
            inode = self._below.get(folder, {}).pop(name, REMOVED)
            if inode != REMOVED and folder in self._prefix:
                before.update(self._leave(self._prefix[folder] + name, inode))
        after: dict[str, int] = {}
        for (folder, name), inode in entries:
            if inode != REMOVED:
                self._below.setdefault(folder, {})[name] = inode
        for (folder, name), inode in entries:
            if inode != REMOVED and folder in self._prefix:
                after.update(self._enter(self._prefix[folder] + name, inode))
        return {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}

    def _leave(self, path: str, inode: int) -> Iterator[tuple[str, int]]:
        """A path is gone, and with a directory's all paths below it."""
        todo = [(path, inode)]
        while todo:
            path, inode = todo.pop()
            if self.paths.pop(path, None) is None:
                continue
            yield path, inode
            self.names[inode].discard(path)
            if not self.names[inode]:
                self._count(inode, -1)
            self._prefix.pop(inode, None)
            todo += [(f"{path}/{name}", below) for name, below in self._below.get(inode, {}).items()]

    def _enter(self, path: str, inode: int) -> Iterator[tuple[str, int]]:
        todo = [(path, inode)]
        while todo:
            path, inode = todo.pop()
            if path in self.paths:
                continue
            yield path, inode
            self.paths[path] = inode
            if not self.names.setdefault(inode, set()):
                self._count(inode, +1)
            self.names[inode].add(path)
            if self._graph.trace.inodes[inode].is_folder:
                self._prefix[inode] = f"{path}/"
            todo += [(f"{path}/{name}", below) for name, below in self._below.get(inode, {}).items()]


class _CountedFile:
    """A file's bytes, and how often each value occurs among them."""

    def __init__(self, file: WatchedFile, first: Path | None) -> None:
        self._replay = FileReplay(file, first)
        self.counts = self._replay.counted(0, self._replay.size)

    def write(self, offset: int, data: bytes) -> None:
        low, high = min(offset, self._replay.size), min(offset + len(data), self._replay.size)
        self.counts -= self._replay.counted(low, high)
        self._replay.write(offset, data)
        self.counts += self._replay.counted(low, high)

    def resize(self, size: int) -> None:
        old = self._replay.size
        self.counts -= self._replay.counted(size, old)
        self._replay.truncate(size)
        self.counts += self._replay.counted(old, size)
