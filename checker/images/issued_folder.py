"""The watched folder as the program saw it: its paths and the bytes of its files after each call of the recorded run.

A step costs what was changed, so that a run over thousands of files is read in proportion to its length.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import ranges, unique
from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.names import REMOVED, Slot
from crashcheck.analyzer.persistence.pieces import NAME, Ints
from crashcheck.analyzer.trace.calls import Names, paths_by_inode
from crashcheck.analyzer.trace.completeness import BLOCK, FileReplay
from crashcheck.analyzer.trace.reader import ROOT, Trace, WatchedFile
from crashcheck.analyzer.trace.replay import CONTENT, by_file, replay_file, writes

Counts = NDArray[np.int64]  # (256,): how often each byte value occurs


class IssuedFolder:
    """Steps through a run.

    `first`: the folder with the first image. `counted`: the files whose bytes are followed. `changed`: those of them
    whose bytes or names are others since whoever reads it emptied it, all at first.
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
        events = graph.trace.events
        some = np.isin(events["file"], np.fromiter(self._files, dtype=np.int64, count=len(self._files)))
        self._contents: Ints = np.flatnonzero(np.isin(events["kind"], CONTENT) & some)
        self._done = 0  # of these
        self._entries: dict[int, list[tuple[Slot, int]]] = {}  # by event
        for row in np.flatnonzero(graph.kind == NAME).tolist():
            change = graph.name_change(row)
            self._entries.setdefault(int(graph.event[row]), []).extend(change.entries)
        self.changed = set(counted)

    def counts_of(self, inode: int) -> Counts:
        """How often each byte value occurs in a file; of one without a name nothing."""
        file = self._files.get(inode)
        return np.zeros(256, dtype=np.int64) if file is None or not self.names.get(inode) else file.counts()

    def before(self, event: int) -> None:
        """Move to just before an event; no name changes until then."""
        stop = int(np.searchsorted(self._contents, event))
        for inode, rows in by_file(self._graph.trace, self._contents[self._done : stop]):
            self._files[inode].replay(self._graph.trace, rows)
            self.changed.add(inode)
        self._done = stop

    def after(self, event: int) -> set[str]:
        """Move to just after an event; returns the paths that have another inode by it, or none."""
        self.before(event + 1)
        return self._rename(self._entries[event]) if event in self._entries else set()

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
                self._touch(inode)
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
                self._touch(inode)
            self.names[inode].add(path)
            if self._graph.trace.inodes[inode].is_folder:
                self._prefix[inode] = f"{path}/"
            todo += [(f"{path}/{name}", below) for name, below in self._below.get(inode, {}).items()]

    def _touch(self, inode: int) -> None:
        if inode in self._files:
            self.changed.add(inode)


class _CountedFile:
    """A file's bytes, and how often each value occurs among them: only blocks that were changed are counted again."""

    def __init__(self, file: WatchedFile, first: Path | None) -> None:
        self._replay = FileReplay(file, first)
        self._blocks: dict[int, Counts] = {}  # of those that hold data; nothing for zeros
        self._sum: Counts = np.zeros(256, dtype=np.int64)  # of these
        self._changed = set(self._replay.with_data(0, self._replay.size))

    def replay(self, trace: Trace, rows: Ints) -> None:
        events = trace.events[rows]
        if not bool(writes(events).all()):
            self._changed.update(self._blocks)
        low, size = events["offset"].astype(np.int64), events["size"].astype(np.int64)
        first = low // BLOCK
        many = np.where(size > 0, (low + size - 1) // BLOCK - first + 1, 0)
        self._changed.update(unique(ranges(first, many)).tolist())
        self._changed.add(self._replay.size // BLOCK)  # what a mapping stored beyond the end shows if the file grows
        replay_file(trace, self._replay, rows)

    def counts(self) -> Counts:
        size = self._replay.size
        for number in self._changed:
            if number in self._blocks:
                self._sum -= self._blocks.pop(number)
            low, high = number * BLOCK, min((number + 1) * BLOCK, size)
            if low < high:
                counts = self._replay.counted(low, high)
                counts[0] = 0
                self._blocks[number] = counts
                self._sum += counts
        self._changed.clear()
        out = self._sum.copy()
        out[0] = size - int(out.sum())
        return out
