"""The generic oracle: compares a crash state with snapshots of the folder, and needs no check (docs/system-calls.md).

*Atomicity* starts from C3's question (Jiang, Chen, Qin, Xu, Ma, *Crash consistency validation made easy*, FSE 2016),
and asks it of each file (versions.py): it holds at least as many of each byte value as in some version that it had.
Where a name that held data is removed or replaced, all that was written before must be there as it was then, or later.
What is missing to the nearest version is the distance.

*Durability* is asked after an acknowledgement alone: no file may hold a version that is older than the
acknowledgement, and one that was not updated since must hold its version at that moment. Lost are only bytes that were
there and are not: what was removed, cut off or overwritten with zeros by then may come back, and a file that had
been acknowledged under an earlier name may have that again. Whether such remains do harm, as sqlite's rollback journal
does and its log does not, needs a check of the program. So do files that are written in place and never synced by a
program that syncs others: logs and locks, or a sync that was forgotten. `notes` names them.

Only files that the run changes count; of those that it maps and never syncs, as memory that processes share, beside
others that it syncs, none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.names import REMOVED
from crashcheck.analyzer.persistence.pieces import NAME
from crashcheck.analyzer.persistence.sync_intervals import find_syncs
from crashcheck.analyzer.trace.calls import Exchange, Link, Rename, name_events
from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import FINAL
from crashcheck.checker.images.folder_content import FolderContent, Paths
from crashcheck.checker.images.issued_folder import Counts, IssuedFolder
from crashcheck.checker.oracles.versions import Removal, Span, Versions, in_logs, share
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import NAME_KINDS, Kind

LEAST_DISTANCE = 1  # bytes; C3 needs more, because its snapshots come from another run
ATOMICITY, DURABILITY = "atomicity", "durability"
_SHOWN = 3
_REMEMBERED = 50_000  # contents
_MOST_CUT = 2_000  # updates of a file that is cut at times, beyond which its versions are not compared


@dataclass(frozen=True, slots=True)
class _History:
    """What a path held: from which event on, and a key for the content (b"" where it is not there)."""

    events: list[int]
    keys: list[bytes]
    inodes: list[int]  # REMOVED where it is not there

    def note(self, event: int, key: bytes, inode: int) -> None:
        """What it holds after an event, if that is another content."""
        if self.keys[-1] != key:
            self.events.append(event)
            self.keys.append(key)
            self.inodes.append(inode)


class SnapshotOracle:
    """Judges crash states of one recorded run, without a process."""

    name = "snapshot"

    def __init__(self, subject: Subject, least_distance: int = LEAST_DISTANCE) -> None:
        assert isinstance(subject.content, FolderContent)
        self._space = subject.space
        self._content = subject.content
        self._graph = subject.graph
        self._least = least_distance
        slots = [entry for change in self._graph.names.changes for entry in change.entries]
        replaced = {self._graph.names.first.get(slot, REMOVED) for slot, _ in slots}
        self._changed = replaced | {inode for _, inode in slots} | set(np.unique(self._graph.file).tolist())
        self._counts: dict[tuple[int, bytes], Counts] = {}  # of an inode's content
        self._told = self._space.points.acknowledging
        many = np.bincount(self._graph.file, minlength=max(self._changed, default=0) + 1)
        self._skipped = frozenset(
            inode
            for inode in self._changed
            if many[inode] > _MOST_CUT and self._content.is_file(inode) and self._content.ever_cut(inode)
        )
        self._never_synced = self._find_never_synced()
        events = self._graph.trace.events
        mapped = set(np.unique(events["file"][events["kind"] == Kind.STORE]).tolist())
        self._counted_files = frozenset(filter(self._content.is_file, self._changed - (self._never_synced & mapped)))
        self._versions, self._history = self._read()
        self._shared: dict[tuple[int, int, int], bool] = {}  # of a file, an event and a file that lost its name there
        self._lacking: dict[tuple[bytes, bytes], bool] = {}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not judged."""
        unsynced = self._never_synced if len(self._told) else frozenset()
        return tuple(
            f"durability was not judged of {why}: {_listed(self._paths_of(inodes))}"
            for why, inodes in (
                ("files that are cut and written very often", self._skipped),
                ("files that are never synced, because the program syncs others", unsynced - self._skipped),
            )
            if inodes
        )

    def _paths_of(self, inodes: Iterable[int]) -> list[str]:
        return sorted(self._graph.names.path(inode, len(self._graph.trace.events)) for inode in inodes)

    def _find_never_synced(self) -> frozenset[int]:
        """Where the run syncs some file: written files that no sync covers and no call renames or links."""
        trace = self._graph.trace
        synced = {sync.file for sync in find_syncs(trace)}
        if 0 in synced or not any(map(self._content.is_file, synced)):
            return frozenset()
        named = set()
        for call in name_events(trace):
            if isinstance(call, Rename | Link | Exchange):
                named.add(call.inode)
            if isinstance(call, Exchange):
                named.add(call.other)
        written = set(np.unique(self._graph.file[self._graph.kind != NAME]).tolist())
        return frozenset(i for i in written - synced - named if self._content.is_file(i))

    def _read(self) -> tuple[Versions, dict[str, _History]]:
        """The versions of each file, and of each path."""
        graph, kinds = self._graph, self._graph.trace.events["kind"]
        folder = IssuedFolder(graph, self._content.folder, self._counted_files)
        reuse = _Reuse(graph)
        versions = Versions(graph, self._counted_files, folder)
        histories = {
            path: _History([-1], [self._key_issued(inode, 0)], [inode])
            for path, inode in folder.paths.items()
            if self._versioned(inode)
        }
        renames = np.isin(kinds, np.array(NAME_KINDS, dtype=np.uint8))
        moments = np.flatnonzero(renames | (kinds == Kind.SYNC_END))
        for event in np.union1d(graph.event, moments).tolist():
            if renames[event] or kinds[event] == Kind.SYNC_END:
                versions.take(event)
            for inode in reuse.step(event):
                versions.forgive(event, inode)
            first, last = np.searchsorted(graph.event, [event, event + 1]).tolist()
            changed = folder.step(range(first, last))
            versions.touch(graph.file[first:last].tolist(), changed)
            if renames[event] or self._empty_again(event):
                versions.take(event + 1)
            changed |= {path for inode in set(graph.file[first:last].tolist()) for path in folder.names.get(inode, ())}
            self._note(histories, folder.paths, changed, event)
        versions.take(len(kinds))
        return versions, {path: history for path, history in histories.items() if len(history.events) > 1}

    def _empty_again(self, event: int) -> bool:
        """Whether a call cuts all from a file that was there and empty at first, as a journal is."""
        call = self._graph.trace.events[event]
        if call["kind"] != Kind.TRUNCATE or call["offset"] != 0:
            return False
        inode = self._graph.trace.inodes[int(call["file"])]
        return inode.existed and inode.first_size == 0

    def stages(self, point: int) -> tuple[bytes, ...]:
        """None: nothing is run."""
        return ()

    def context(self, point: int) -> bytes:
        return b""

    def arrived(self, ended: Ended, names: Mapping[str, str], point: int) -> None:
        """Nothing is run."""

    def judge(self, ended: Ended, names: Mapping[str, str], point: int = FINAL) -> Verdict:
        """A verdict on an uncrashed image, which is one of the snapshots."""
        return _passed()

    def judge_state(self, state: CrashState) -> Verdict:
        """The verdict on a crash state."""
        paths = self._content.paths(state)
        lost, distance = self._undone(state, paths), 0
        if not lost:
            short, distance = self._short(state, paths)
        if lost:
            lost = sorted(map(self._graph.names.shown_path, lost))
            return _failed(DURABILITY, f"acknowledged, and lost: {_listed(lost)}", frozenset(lost))
        if distance < self._least:
            return _passed()
        shown = self._graph.names.path(short, int(self._space.points.event[state.point]))
        text = f"{distance} bytes are lost: {shown} holds too few bytes for any version that it had"
        return _failed(ATOMICITY, text, frozenset())

    # -- atomicity

    def _short(self, state: CrashState, paths: Paths) -> tuple[int, int]:
        """The file that lacks most of every version that it may have, and how many bytes."""
        crash = int(self._space.points.event[state.point])
        named = self._counted_files.intersection(paths.values())
        removals = self._versions.removals(self._content.names_of(state), set(paths.values()))
        removed = max((event + 1 for event, _ in removals), default=None)
        worst = 0, 0
        for inode in sorted(self._counted_files):
            span = self._versions.span(inode, crash, removed)
            if inode not in named and not span.joined:
                continue
            counts = self._counts_of(state, inode) if inode in named else np.zeros(256, dtype=np.int64)
            distance = self._versions.distance(inode, counts, span)
            if distance <= worst[1] or (inode in named and self._logged(state, paths, inode, span)):
                continue
            if not self._versions.is_temporary(inode) or self._holds_removed(inode, removals):
                worst = inode, distance
        return worst

    def _holds_removed(self, inode: int, removals: list[Removal]) -> bool:
        """Whether a file held data of what is removed, when it was."""
        for event, lost in removals:
            known = self._shared.get((inode, event, lost))
            if known is None:
                both = [self._content.bytes_issued(event, file) for file in (inode, lost)]
                known = self._shared[inode, event, lost] = share(*both)
            if known:
                return True
        return False

    def _counts_of(self, state: CrashState, inode: int) -> Counts:
        return self._counted(inode, self._content.key(state, inode), partial(self._content.bytes_of, state, inode))

    def _logged(self, state: CrashState, paths: Paths, inode: int, span: Span) -> bool:
        """Whether files that were synced hold what a file lacks of some version, as a journal or a log does."""
        crash = int(self._space.points.event[state.point])
        synced = self._versions.synced_before(crash) - {inode}
        logs = [self._content.bytes_of(state, other) for other in sorted(synced.intersection(paths.values()))]
        if not logs:
            return False
        held = self._content.bytes_of(state, inode)
        moments = self._versions.moments(inode, span)
        return any(in_logs(held, self._content.bytes_issued(event, inode), logs) for event in moments)

    def _counted(self, inode: int, key: bytes, data: Callable[[], bytes]) -> Counts:
        known = self._counts.get((inode, key))
        if known is None:
            known = np.bincount(np.frombuffer(data(), dtype=np.uint8), minlength=256).astype(np.int64)
            if len(self._counts) >= _REMEMBERED:
                self._counts.clear()
            self._counts[inode, key] = known
        return known

    # -- durability

    def _note(self, histories: dict[str, _History], paths: Paths, changed: set[str], event: int) -> None:
        """What the changed paths hold after an event."""
        for path in changed:
            inode = paths.get(path, REMOVED)
            if inode == REMOVED or self._versioned(inode):
                history = histories.setdefault(path, _History([-1], [b""], [REMOVED]))
                history.note(event, self._key_issued(inode, event + 1) if inode != REMOVED else b"", inode)

    def _versioned(self, inode: int) -> bool:
        return self._content.is_file(inode) and inode not in self._skipped

    def _key_issued(self, inode: int, event: int) -> bytes:
        return self._of_whom(inode) + self._content.key_issued(inode, event)

    def _of_whom(self, inode: int) -> bytes:
        """Keys are equal for equal contents of files that began with the same content alone."""
        return b"%d " % (inode if self._graph.trace.inodes[inode].existed else 0)

    def _undone(self, state: CrashState, paths: Paths) -> list[str]:
        """Paths that lack what they held at the last acknowledgement before the crash."""
        crash = int(self._space.points.event[state.point])
        told = bisect_left(self._told, crash)
        if not told:
            return []
        moment = int(self._told[told - 1])
        out = []
        for path, history in self._history.items():
            inode = paths.get(path, REMOVED)
            if inode != REMOVED and not self._versioned(inode):
                continue
            key = self._of_whom(inode) + self._content.key(state, inode) if inode != REMOVED else b""
            promised = bisect_right(history.events, moment) - 1
            last = bisect_left(history.events, crash)
            if history.inodes[promised] == REMOVED or history.inodes[promised] in self._never_synced:
                continue
            if key in history.keys[promised:last]:
                continue
            older = last == promised + 1 or key in history.keys[:promised]
            if (
                older
                and self._lacks(state, inode, key, history, promised)
                and not self._moved(state, paths, path, moment)
            ):
                out.append(path)
        return sorted(out)

    def _lacks(self, state: CrashState, inode: int, key: bytes, history: _History, which: int) -> bool:
        """Whether a file in a state lacks bytes of a version of a path."""
        pair = key, history.keys[which]
        known = self._lacking.get(pair)
        if known is None:
            if len(self._lacking) >= _REMEMBERED:
                self._lacking.clear()
            wanted = self._content.bytes_issued(history.events[which] + 1, history.inodes[which])
            held = self._content.bytes_of(state, inode) if inode != REMOVED else b""
            known = self._lacking[pair] = lacks(held, wanted)
        return known

    def _moved(self, state: CrashState, paths: Paths, path: str, moment: int) -> bool:
        """Whether a path's content had been acknowledged, or was there at first, under a name that has it again."""
        history = self._history[path]
        promised = bisect_right(history.events, moment) - 1
        inode, key = history.inodes[promised], history.keys[promised]
        for name, other in paths.items():
            if other != inode or name == path or name not in self._history:
                continue
            earlier = self._history[name]
            for which in np.flatnonzero([known == key for known in earlier.keys]).tolist():
                begun = earlier.events[which]
                ended = earlier.events[which + 1] if which + 1 < len(earlier.events) else moment
                shown = bisect_left(self._told, ended) > bisect_left(self._told, begun)
                own = self._of_whom(inode) + self._content.key(state, inode)
                if (which == 0 or shown) and not self._lacks(state, inode, own, earlier, which):
                    return True
        return False


class _Reuse:
    """Steps through a run: which files are changed again after another one, written since they were synced, was synced.

    So a log is used: written and synced, what it protects written and synced, then cut off or overwritten.
    """

    def __init__(self, graph: PersistenceGraph) -> None:
        self._graph = graph
        self._syncs = {sync.end: sync for sync in find_syncs(graph.trace) if not sync.failed and sync.file}
        self._written: dict[int, int] = {}  # the last update of each file
        self._synced: dict[int, int] = {}  # the last sync of each file of which all was synced
        self._elsewhere = (-1, -1, 0)  # the last sync: when what it covers was last written, when it ended, its file

    def step(self, event: int) -> list[int]:
        """The files that this event begins to use again."""
        graph, out = self._graph, []
        if event in self._syncs:
            sync = self._syncs[event]
            self._elsewhere = self._written.get(sync.file, -1), event, sync.file
            if self._elsewhere[0] < sync.begin:
                self._synced[sync.file] = event
        first, last = np.searchsorted(graph.event, [event, event + 1]).tolist()
        for row in range(first, last):
            inode = int(graph.file[row])
            if graph.kind[row] == NAME:
                continue
            written, _, other = self._elsewhere
            if inode != other and -1 < self._synced.pop(inode, event) < written:
                out.append(inode)
            self._written[inode] = event
        return out


def lacks(held: bytes, wanted: bytes) -> bool:
    """Whether a byte of `wanted` is not at its place in `held`. Zeros are no data: a cleared range lacks nothing."""
    here, there = np.frombuffer(held, dtype=np.uint8), np.frombuffer(wanted, dtype=np.uint8)
    both = min(len(here), len(there))
    return bool(there[both:].any() or ((here[:both] != there[:both]) & (there[:both] != 0)).any())


def _listed(paths: list[str]) -> str:
    more = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + more


def _passed() -> Verdict:
    return Verdict(Outcome.PASS, 0, None, "", False, 0.0)


def _failed(asked: str, text: str, paths: frozenset[str]) -> Verdict:
    signs = frozenset({asked, *(f"{asked} of {path}" for path in paths)})
    return Verdict(Outcome.FAIL, None, None, f"{asked}: {text}\n", False, 0.0, signs)
