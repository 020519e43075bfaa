"""Names that held data, and that a process removes and then gives to a new file: replacements in two steps.

They are judged as if the file had been emptied and written again: between the steps neither content is there.
The removal was on purpose, and no replacement, where

1. another process gives the name, as in `rm a; make a`;
2. the process changed other files in between: it works without the name, as a transaction does without the undo log of
   the last one; more names may be removed;
3. the folder was synced between the two: the program asked that the name be gone;
4. the folder itself was removed and made again, as by `rm -r build; make build`: that is another folder's name;
5. the new file is removed on purpose in the end, as a lock is;
6. the run made the old file itself and no such replacement brought it, as a journal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.persistence.graph import NEVER, PersistenceGraph
from crashcheck.analyzer.persistence.names import REMOVED, Slot
from crashcheck.analyzer.persistence.pieces import NAME
from crashcheck.analyzer.persistence.sync_intervals import find_syncs
from crashcheck.analyzer.trace.calls import Unlink, name_event
from crashcheck.analyzer.trace.reader import Trace
from crashcheck.checker.images.folder_content import FolderContent, Paths
from crashcheck.checker.images.issued_folder import Counts
from crashcheck.checker.oracles.copied_data import CopiedData
from crashcheck.checker.oracles.open_files import OpenFiles
from crashcheck.checker.oracles.versions import Versions
from crashcheck.checker.states.space import CrashState


@dataclass(frozen=True, slots=True)
class Replacement:
    """`old` lost a name at the event `removed`, which `new` got at the event `given`."""

    removed: int
    given: int
    old: int
    new: int


class Recreated:
    """Judges what crash states hold of files that replace others in two steps."""

    def __init__(
        self,
        graph: PersistenceGraph,
        content: FolderContent,
        versions: Versions,
        open_files: OpenFiles,
        copies: CopiedData,
    ) -> None:
        self._graph, self._content, self._versions = graph, content, versions
        self._open, self._copies = open_files, copies
        found, self._taken_away = find_replacements(graph)
        self._by_piece = {
            piece: step
            for piece, step in found.items()
            if {step.old, step.new} <= versions.changes.keys() and versions.held_data(step.old, step.removed)
        }
        self._first_data = {step.new: versions.first_with_data(step.new) for step in self._by_piece.values()}

    def half_replaced(self, state: CrashState, crash: int, paths: Paths, counts_of: Callable[[int], Counts]) -> str:
        """What is wrong with the first file whose name is gone without its new content; empty if nothing is."""
        if not self._by_piece:
            return ""
        pieces, there, open_ = self._content.names_of(state), set(paths.values()), self._open.at(crash)
        for piece in pieces:
            step = self._by_piece.get(piece)
            if step is None or step.old in there:
                continue
            held, data_since = step.new in there, self._first_data[step.new]
            taken_away = not held and not self._taken_away.get(step.new, frozenset()).isdisjoint(pieces)
            if data_since == NEVER or taken_away or (held and step.new not in open_ and data_since <= crash):
                continue
            counts = counts_of(step.new) if held else np.zeros(256, dtype=np.int64)
            if self._versions.lacks_data(step.new, counts, crash) and not self._copied(state, crash, paths, step):
                path = self._graph.names.path(step.new, step.given)
                how = "missing" if not held else "incomplete" if counts.any() else "empty"
                return f"{path} can be {how} after a crash: it was removed before its new content was durable"
        return ""

    def _copied(self, state: CrashState, crash: int, paths: Paths, step: Replacement) -> bool:
        """Whether other files hold what a removed file held, or what the new one lacks."""
        moments = self._versions.moments(step.new, self._versions.span_from_data(step.new, crash))
        logs = self._copies.logs(crash, paths, step.new)
        asked = [(step.old, step.removed), *((step.new, event) for event in moments)]
        return any(self._copies.held_by(state, step.new, paths, version, logs) for version in asked)


def find_replacements(graph: PersistenceGraph) -> tuple[dict[int, Replacement], dict[int, frozenset[int]]]:
    """The replacements in two steps of a run, each by the piece that removes the old file's name; and by file the
    pieces that take names from it.
    """
    found, taken_away, removed = _steps(graph)
    inodes, brought = graph.trace.inodes, set[int]()
    for step in found.values():
        if inodes[step.old].existed or step.old in brought:
            brought.add(step.new)
    kept: dict[int, Replacement] = {}
    replaced: set[int] = set()
    for piece, step in reversed(found.items()):
        if step.new in brought and (step.new not in removed or step.new in replaced):
            kept[piece] = step
            replaced.add(step.old)
    return kept, {inode: frozenset(pieces) for inode, pieces in taken_away.items()}


def _steps(graph: PersistenceGraph) -> tuple[dict[int, Replacement], dict[int, set[int]], set[int]]:
    """By piece, each removal of a name that the same process gives again; by file the pieces that take names from it;
    and the files that are removed in the end.
    """
    trace, synced, updates = graph.trace, _syncs_of_folders(graph.trace), _Updates(graph)
    waiting: dict[Slot, tuple[int, int, int]] = {}  # names that are gone: by which piece and event, and of which file
    held = dict(graph.names.first)
    found: dict[int, Replacement] = {}
    taken_away: dict[int, set[int]] = {}
    removed: set[int] = set()
    for piece in np.flatnonzero(graph.kind == NAME).tolist():
        event = int(graph.event[piece])
        for slot, inode in graph.name_change(piece).entries:
            old = held.pop(slot, REMOVED)
            if old not in (REMOVED, inode):
                taken_away.setdefault(old, set()).add(piece)
            if inode != REMOVED:
                held[slot] = inode
            elif old != REMOVED and isinstance(name_event(trace, event), Unlink):
                waiting[slot] = piece, event, old
                removed.add(old)
            if inode == REMOVED or slot not in waiting:
                continue
            by, since, lost = waiting.pop(slot)
            on_purpose = any(since < begin and end < event for begin, end in synced[0] + synced.get(slot[0], []))
            if not on_purpose and lost != inode and updates.at_once(since, event, inode):
                found[by] = Replacement(since, event, lost, inode)
    return found, taken_away, removed - set(held.values())


class _Updates:
    """What each process writes or names, in order."""

    def __init__(self, graph: PersistenceGraph) -> None:
        self._pids = graph.trace.events["pid"]
        files = graph.file.astype(np.int64)
        for piece in np.flatnonzero(graph.kind == NAME).tolist():
            files[piece] = next((i for _, i in graph.name_change(piece).entries if i), REMOVED)
        rows = np.flatnonzero(files != REMOVED)
        pids = self._pids[graph.event[rows]]
        self._of = {int(pid): (graph.event[rows[pids == pid]], files[rows[pids == pid]]) for pid in np.unique(pids)}

    def at_once(self, since: int, until: int, inode: int) -> bool:
        """Whether one process makes two events, and changes one file at most in between."""
        pid = int(self._pids[since])
        if pid != int(self._pids[until]):
            return False
        events, files = self._of[pid]
        low, high = np.searchsorted(events, [since + 1, until]).tolist()
        return all(files[at] == inode for at in range(low, high))


def _syncs_of_folders(trace: Trace) -> dict[int, list[tuple[int, int]]]:
    """By inode, when directories were synced, 0: everything."""
    out: dict[int, list[tuple[int, int]]] = {0: []}
    for sync in find_syncs(trace):
        if not sync.failed and (not sync.file or trace.inodes[sync.file].is_folder):
            out.setdefault(sync.file, []).append((sync.begin, sync.end))
    return out
