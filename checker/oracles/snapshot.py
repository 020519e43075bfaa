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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import compress
from operator import ne

import numpy as np

from crashcheck.analyzer.arrays import among, unique
from crashcheck.analyzer.persistence.names import REMOVED
from crashcheck.analyzer.persistence.pieces import NAME, Ints
from crashcheck.analyzer.persistence.sync_intervals import find_syncs
from crashcheck.analyzer.trace.calls import Link, Rename, RenameExchange, name_events
from crashcheck.checker.budget import Counting
from crashcheck.checker.execution.process import Ended
from crashcheck.checker.execution.tasks import FINAL
from crashcheck.checker.images.folder_content import FolderContent, Paths
from crashcheck.checker.images.issued_folder import Counts, IssuedFolder
from crashcheck.checker.images.sparse_bytes import SparseBytes
from crashcheck.checker.oracles.copied_data import CopiedData, share
from crashcheck.checker.oracles.open_files import OpenFiles
from crashcheck.checker.oracles.recreated import Recreated
from crashcheck.checker.oracles.versions import DataRemoval, Span, Versions, begun_again
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import NAME_KINDS, Kind
from crashcheck.wording import listed

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

    def note(self, events: Sequence[int], keys: Sequence[bytes], inode: int) -> None:
        """What it holds after some events, where that is another content."""
        new = [*map(ne, [self.keys[-1], *keys], keys)]
        self.events.extend(compress(events, new))
        self.keys.extend(compress(keys, new))
        self.inodes.extend([inode] * sum(new))


class SnapshotOracle:
    """Judges crash states of one recorded run, without a process."""

    name = "snapshot"

    def __init__(self, subject: Subject, reading: Counting | None = None) -> None:
        """`reading`: how far going through the run is; what it raises ends that."""
        assert isinstance(subject.content, FolderContent)
        self._space = subject.space
        self._content = subject.content
        self._graph = subject.graph
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
        self._versions, self._history = self._read(reading or Counting())
        self._shared: dict[tuple[int, int, int], bool] = {}  # of a file, an event and a file that lost its name there
        self._open = OpenFiles(self._graph, self._versions)
        self._paths_history: dict[int, list[str]] = {}  # the paths in `_history` that name a file at some time
        for path, history in self._history.items():
            for inode in set(history.inodes):
                self._paths_history.setdefault(inode, []).append(path)
        self._short_issued: tuple[int, frozenset[int]] = -1, frozenset()  # of a point
        self._lacking: dict[tuple[bytes, bytes], bool] = {}
        self._copies = CopiedData(self._content, self._versions)
        self._recreated = Recreated(self._graph, self._content, self._versions, self._open, self._copies)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was not judged."""
        unsynced = self._never_synced if len(self._told) else frozenset()
        return tuple(
            f"durability was not judged of {why}: {listed(self._paths_of(inodes), _SHOWN)}"
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
            if isinstance(call, Rename | Link | RenameExchange):
                named.add(call.inode)
            if isinstance(call, RenameExchange):
                named.add(call.other)
        written = set(np.unique(self._graph.file[self._graph.kind != NAME]).tolist())
        return frozenset(i for i in written - synced - named if self._content.is_file(i))

    def _read(self, reading: Counting) -> tuple[Versions, dict[str, _History]]:
        """The versions of each file, and of each path."""
        graph, kinds = self._graph, self._graph.trace.events["kind"]
        folder = IssuedFolder(graph, self._content.folder, self._counted_files)
        reused = begun_again(graph)
        versions = Versions(graph, self._counted_files, folder)
        histories = _Histories(self._contents, self._key_issued)
        for path, inode in folder.paths.items():
            if self._versioned(inode):
                histories.begin(path, -1, inode)
        named = among(kinds, NAME_KINDS)
        synced = kinds == Kind.SYNC_END
        empty = self._empty_again()
        stops = np.union1d(np.flatnonzero(named | synced), np.array([*reused, *empty], dtype=np.int64))
        for event in stops.tolist():
            reading.at(event, len(kinds))
            folder.before(event)
            if named[event] or synced[event]:
                versions.take(event)
            for inode in reused.get(event, ()):
                versions.forgive(event, inode)
            changed = folder.after(event)
            if named[event] or event in empty:
                versions.take(event + 1, but=empty.get(event, frozenset()))
            for path in changed:
                inode = folder.paths.get(path, REMOVED)
                histories.end(path, event)
                if inode == REMOVED or self._versioned(inode):
                    histories.begin(path, event, inode)
        folder.before(len(kinds))
        versions.take(len(kinds))
        return versions, histories.of_several(len(kinds), reading)

    def _empty_again(self) -> dict[int, frozenset[int]]:
        """The calls that cut all from a file that was empty at first or not there, as a journal is.

        They are moments at which other files are versions, and the file itself if it was there.
        """
        trace, changing = self._graph.trace, unique(self._graph.event)
        rows, out = trace.events[changing], dict[int, frozenset[int]]()
        for event in changing[(rows["kind"] == Kind.TRUNCATE) & (rows["offset"] == 0)].tolist():
            inode = trace.inodes[int(trace.events["file"][event])]
            if not inode.existed or inode.first_size == 0:
                out[event] = frozenset() if inode.existed else frozenset({inode.id})
        return out

    def stages(self, point: int) -> tuple[bytes, ...]:
        """None: nothing is run."""
        return ()

    def context(self, point: int) -> bytes:
        return b""

    def arrived(self, ended: Ended, names: Mapping[str, str], point: int) -> None:
        """Nothing is run."""

    def assume_reopenable(self) -> None:
        pass

    def is_borne_out(self, point: int) -> bool:
        return True

    def judge(self, ended: Ended, names: Mapping[str, str], point: int = FINAL) -> Verdict:
        """A verdict on an uncrashed image, which is one of the snapshots."""
        return _passed()

    def judge_state(self, state: CrashState) -> Verdict:
        """The verdict on a crash state."""
        paths = self._content.paths(state)
        lost = self._undone(state, paths)
        if lost:
            lost = sorted(map(self._graph.names.shown_path, lost))
            return _failed(DURABILITY, f"acknowledged, and lost: {listed(lost, _SHOWN)}", frozenset(lost))
        crash = self._space.moment(state.point)
        gone = self._recreated.half_replaced(state, crash, paths, partial(self._counts_of, state))
        if gone:
            return _failed(ATOMICITY, gone, frozenset())
        short, distance = self._short(state, paths)
        if distance < LEAST_DISTANCE:
            return _passed()
        shown = self._graph.names.path(short, crash)
        bytes_are = "byte is" if distance == 1 else "bytes are"
        text = f"{distance} {bytes_are} lost: {shown} holds too few bytes for any version that it had"
        return _failed(ATOMICITY, text, frozenset())

    # -- atomicity

    def _short(self, state: CrashState, paths: Paths) -> tuple[int, int]:
        """The file that lacks most of every version that it may have, and how many bytes.

        Files that are not open (open_files.py) and have the names that they had are whole.
        """
        crash = self._space.moment(state.point)
        there = set(paths.values())
        removals, published = self._removals(state, there), self._versions.published(self._content.names_of(state))
        removed = max((removal.event + 1 for removal in removals), default=None)
        asked = self._open.at(crash).intersection(there)
        touched = self._content.touched(state)
        if removed is None and touched is not None:
            asked &= touched | self._short_by(state.point)
        if removed is not None:
            asked |= set(self._content.paths_issued(crash).values()) - there
        worst = 0, 0
        for inode in sorted(asked & self._counted_files):
            span = self._versions.span(inode, crash, _later(removed, published.get(inode)))
            if inode not in there and not span.joined:
                continue
            counts = self._counts_of(state, inode) if inode in there else np.zeros(256, dtype=np.int64)
            distance = self._versions.distance(inode, counts, span)
            if distance <= worst[1] or (inode in there and self._logged(state, paths, inode, span)):
                continue
            if not self._versions.is_temporary(inode) or self._holds_removed(inode, removals):
                worst = inode, distance
        return worst

    def _short_by(self, point: int) -> frozenset[int]:
        """The open files that lack bytes even where everything issued has persisted, and nothing was removed."""
        if self._short_issued[0] != point:
            whole, crash = self._space.full(point), self._space.moment(point)
            files = self._open.at(crash) & self._counted_files & set(self._content.paths(whole).values())
            published = self._versions.published(self._content.names_of(whole))
            since = {inode: _later(None, published.get(inode)) for inode in files}
            spans = ((inode, self._versions.span(inode, crash, since[inode])) for inode in files)
            short = (
                inode
                for inode, span in spans
                if not self._versions.is_issued(inode, crash, span)
                and self._versions.distance(inode, self._counts_of(whole, inode), span)
            )
            self._short_issued = point, frozenset(short)
        return self._short_issued[1]

    def _removals(self, state: CrashState, there: set[int]) -> list[DataRemoval]:
        """The removals of data in a state; of scratch files only of those that held data of others."""
        found = self._versions.removals(self._content.names_of(state), there)
        removals = [removal for removal in found if not removal.scratch]
        for scratch in (removal for removal in found if removal.scratch):
            if self._holds_removed(scratch.lost, [other for other in removals if other.event < scratch.event]):
                removals.append(scratch)
        return removals

    def _holds_removed(self, inode: int, removals: list[DataRemoval]) -> bool:
        """Whether a file held data of what is removed, when it was."""
        for event, lost, _ in removals:
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
        """Whether other files hold what a file lacks of some version, as a journal or a log does."""
        logs = self._copies.logs(self._space.moment(state.point), paths, inode)
        moments = self._versions.moments(inode, span)
        return any(self._copies.held_by(state, inode, paths, (inode, event), logs) for event in moments)

    def _counted(self, inode: int, key: bytes, data: Callable[[], SparseBytes]) -> Counts:
        known = self._counts.get((inode, key))
        if known is None:
            known = data().counts()
            if len(self._counts) >= _REMEMBERED:
                self._counts.clear()
            self._counts[inode, key] = known
        return known

    # -- durability

    def _versioned(self, inode: int) -> bool:
        return self._content.is_file(inode) and inode not in self._skipped

    def _key(self, state: CrashState, inode: int) -> bytes:
        return self._of_whom(inode) + self._content.key(state, inode)

    def _key_issued(self, inode: int, event: int) -> bytes:
        return self._of_whom(inode) + self._content.key_issued(inode, event)

    def _contents(self, inode: int) -> tuple[Ints, list[bytes]]:
        """The events that change a file, and `_key_issued` after each of them."""
        whose, (events, keys) = self._of_whom(inode), self._content.versions(inode)
        return events, [whose + key for key in keys]

    def _of_whom(self, inode: int) -> bytes:
        """Keys are equal for equal contents of files that began with the same content alone."""
        return b"%d " % (inode if self._graph.trace.inodes[inode].existed else 0)

    def _undone(self, state: CrashState, paths: Paths) -> list[str]:
        """Paths that lack what they held at the last acknowledgement before the crash."""
        crash = self._space.moment(state.point)
        told = bisect_left(self._told, crash)
        if not told:
            return []
        moment = int(self._told[told - 1])
        out = []
        for path in self._changed_paths(state, crash, paths):
            history, inode = self._history[path], paths.get(path, REMOVED)
            if inode != REMOVED and not self._versioned(inode):
                continue
            key = self._key(state, inode) if inode != REMOVED else b""
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

    def _changed_paths(self, state: CrashState, crash: int, paths: Paths) -> set[str]:
        """Paths that may hold something else than what was last issued: of another file, or of one that is pending."""
        moved, touched = self._content.moved(state), self._content.touched(state)
        pending = self._open.pending(crash)
        if moved is None:
            moved = {path: (0, 0) for path, _ in paths.items() ^ self._content.paths_issued(crash).items()}
        out = set(moved)
        for inode in pending if touched is None else pending & touched:
            out.update(self._paths_history.get(inode, ()))
        return out & self._history.keys()

    def _lacks(self, state: CrashState, inode: int, key: bytes, history: _History, which: int) -> bool:
        """Whether a file in a state lacks bytes of a version of a path."""
        pair = key, history.keys[which]
        known = self._lacking.get(pair)
        if known is None:
            if len(self._lacking) >= _REMEMBERED:
                self._lacking.clear()
            wanted = self._content.bytes_issued(history.events[which] + 1, history.inodes[which])
            held = self._content.bytes_of(state, inode) if inode != REMOVED else SparseBytes()
            known = self._lacking[pair] = held.lacks(wanted)
        return known

    def _moved(self, state: CrashState, paths: Paths, path: str, moment: int) -> bool:
        """Whether a path's content had been acknowledged, or was there at first, under a name that has it again."""
        history = self._history[path]
        promised = bisect_right(history.events, moment) - 1
        inode, key = history.inodes[promised], history.keys[promised]
        for name in self._paths_history[inode]:
            if paths.get(name) != inode or name == path:
                continue
            earlier = self._history[name]
            for which in np.flatnonzero([known == key for known in earlier.keys]).tolist():
                begun = earlier.events[which]
                ended = earlier.events[which + 1] if which + 1 < len(earlier.events) else moment
                shown = bisect_left(self._told, ended) > bisect_left(self._told, begun)
                own = self._key(state, inode)
                if (which == 0 or shown) and not self._lacks(state, inode, own, earlier, which):
                    return True
        return False


def _later(removed: int | None, published: int | None) -> int | None:
    """Just after the last of two events that join a file's versions; the first is given so."""
    after = [event for event in (removed, None if published is None else published + 1) if event is not None]
    return max(after, default=None)


class _Histories:
    """The histories of all paths, which are told apart by when a path is a name of which file."""

    def __init__(
        self, versions: Callable[[int], tuple[Ints, list[bytes]]], key_issued: Callable[[int, int], bytes]
    ) -> None:
        """`versions`: the events that change a file, and its key after each of them."""
        self._versions = lru_cache(maxsize=1)(versions)  # the names of one file follow one another at the end
        self._key_issued = key_issued
        self._of: dict[str, _History] = {}
        self._begun: dict[str, tuple[int, int]] = {}  # of each path: since which event it is a name of which file

    def begin(self, path: str, event: int, inode: int) -> None:
        """From an event on a path is a name of a file, or of none."""
        key = self._key_issued(inode, event + 1) if inode != REMOVED else b""
        if event < 0:
            self._of[path] = _History([event], [key], [inode])
        else:
            self._of.setdefault(path, _History([-1], [b""], [REMOVED])).note([event], [key], inode)
        if inode != REMOVED:
            self._begun[path] = event, inode

    def end(self, path: str, event: int) -> None:
        """Before an event it is no longer: take what the file held until then."""
        if path not in self._begun:
            return
        begun, inode = self._begun.pop(path)
        events, keys = self._versions(inode)
        low, high = np.searchsorted(events, [begun + 1, event]).tolist()
        self._of[path].note(events[low:high].tolist(), keys[low:high], inode)

    def of_several(self, end: int, reading: Counting) -> dict[str, _History]:
        """The histories of paths that held several contents."""
        for number, path in enumerate(sorted(self._begun, key=lambda path: self._begun[path][1])):
            reading.at(number, end)
            self.end(path, end)
        return {path: history for path, history in self._of.items() if len(history.events) > 1}


def judged_by_snapshots(verdict: Verdict) -> bool:
    """Whether this oracle, and no check, found that a state fails."""
    return not verdict.signs.isdisjoint((ATOMICITY, DURABILITY))


def _passed() -> Verdict:
    return Verdict(Outcome.PASS, 0, None, "", False, 0.0)


def _failed(asked: str, text: str, paths: frozenset[str]) -> Verdict:
    signs = frozenset({asked, *(f"{asked} of {path}" for path in paths)})
    return Verdict(Outcome.FAIL, None, None, f"{asked}: {text}\n", False, 0.0, signs)
