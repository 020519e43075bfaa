"""What the oracle `snapshot` asks of a crash state, in plain Python: slow, by the rules of docs/system-calls.md.

It reads the calls of a trace and the pieces that a crash state has, and computes names and contents itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from crashcheck.analyzer.persistence.graph import PersistenceGraph
from crashcheck.analyzer.persistence.pieces import DATA, NAME, SIZE
from crashcheck.analyzer.trace.calls import Names, RemoveFolder, Rename, Unlink, name_event
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.runtime.trace_format import NAME_KINDS, Kind

PIECE = 64  # bytes of a log
FEW = 8  # fewer bytes are in many files by chance
Change = tuple[int, tuple[int, str]]  # of an entry of a directory: by an event


@dataclass
class Version:
    """What a file held before an event; no bytes if it had no name."""

    event: int
    data: bytes
    named: bool


@dataclass
class Recreated:
    """A name that was removed and given to a new file."""

    change: Change  # its removal
    old: int
    new: int


@dataclass
class Removal:
    """A name that is removed or replaced, and the file that lost it with its data."""

    change: Change
    lost: int
    replaced: bool
    scratch: bool = False  # the run made the file, and the name is gone in the end


@dataclass
class File:
    """One inode, gone through the whole run."""

    first: bytes
    existed: bool
    data: bytes = b""
    writes: list[int] = field(default_factory=list)
    syncs: list[int] = field(default_factory=list)  # ends of those after which nothing was unsynced
    clean: int | None = None  # the end of a sync of the file alone, if it was not written since
    due: int | None = None  # from when on its data have to be somewhere
    versions: list[Version] = field(default_factory=list)


def lacks(held: bytes, wanted: bytes) -> bool:
    return bool(Counter(wanted.replace(b"\0", b"")) - Counter(held))


class ReferenceSnapshot:
    """Judges the crash states of one run. `first`: the contents of the folder's files before it."""

    def __init__(self, graph: PersistenceGraph, space: StateSpace, first: dict[str, bytes]) -> None:
        self.graph, self.space = graph, space
        self.trace = graph.trace
        self.files = {
            i.id: File(first.get(i.paths[0], b"") if i.existed else b"", i.existed)
            for i in self.trace.inodes.values()
            if not i.is_folder
        }
        for file in self.files.values():
            file.data = file.first
        self.names = Names.first(self.trace)
        self.removals: list[Removal] = []
        self.published: list[tuple[Change, int, tuple[int, str]]] = []  # of new files; the old name
        self.given: dict[tuple[int, str], int] = {}  # the event that gave each name last
        self.unlinked: set[int] = set()
        self.losses: list[tuple[Change, int]] = []  # of names, and the file that had each
        self.gone: dict[tuple[int, str], tuple[Change, int]] = {}  # names that were removed, and not given again
        self.recreated: list[Recreated] = []
        self.made: list[tuple[int, int]] = []  # events that write a file or give it a name
        self.last_sync: tuple[int, int] | None = None  # its file, and when that was last written
        self.take(0)
        for event in range(len(self.trace.events)):
            self.go(event)
        self.take(len(self.trace.events))
        self.on_purpose = self.unlinked - set(self.names.entries.values())
        self.recreated = self.not_on_purpose()
        lasting = Names.first(self.trace).entries.keys() | self.names.entries.keys()
        for removal in self.removals:
            made = not self.files[removal.lost].existed
            removal.scratch = removal.replaced and made and removal.change[1] not in lasting

    def take(self, event: int, but: int = 0) -> None:
        named = set(self.names.paths().values())
        for inode, file in self.files.items():
            if inode == but:
                continue
            data = file.data if inode in named else b""
            file.versions.append(Version(event, data, inode in named))

    def go(self, event: int) -> None:
        call = self.trace.events[event]
        kind, inode = int(call["kind"]), int(call["file"])
        if kind in NAME_KINDS:
            if not isinstance(name_event(self.trace, event), Unlink | RemoveFolder):
                self.made.append((event, inode))
            self.take(event)
            self.rename(event)
            self.take(event + 1)
        elif kind == Kind.SYNC_END:
            self.take(event)
            self.sync(event, inode)
        elif kind in (Kind.WRITE, Kind.TRUNCATE):
            file, offset = self.files[inode], int(call["offset"])
            if kind == Kind.WRITE or offset != len(file.data):
                self.made.append((event, inode))
            if kind == Kind.TRUNCATE and offset == len(file.data) and offset:
                return  # nothing changes
            if self.used_again(inode):
                file.versions.append(Version(event + 1, b"", True))
            file.clean = None
            file.due = event if file.due is None else file.due
            file.writes.append(event)
            held = bool(file.data)
            if kind == Kind.WRITE:
                data = self.trace.data(event)
                file.data = file.data[:offset].ljust(offset, b"\0") + data + file.data[offset + len(data) :]
            else:
                file.data = file.data[:offset].ljust(offset, b"\0")
            if kind == Kind.TRUNCATE and not offset and held and not file.first:
                # a journal that was empty at first, or not there, is emptied again
                self.take(event + 1, but=0 if file.existed else inode)

    def used_again(self, inode: int) -> bool:
        """A log: written and synced, then what it protects written and synced, then written."""
        clean = self.files[inode].clean
        if clean is None or self.last_sync is None or self.last_sync[0] == inode:
            return False
        return clean < self.last_sync[1]

    def sync(self, event: int, inode: int) -> None:
        for some in [inode] if inode else list(self.files):
            if some in self.files and self.files[some].writes:
                self.files[some].syncs.append(event)
        if inode not in self.files:  # of a folder, or of all
            self.gone = {slot: gone for slot, gone in self.gone.items() if inode not in (0, slot[0])}
        if inode:
            writes = self.files[inode].writes if inode in self.files else []
            self.last_sync = inode, writes[-1] if writes else -1
            if inode in self.files:
                self.files[inode].clean = event

    def rename(self, event: int) -> None:
        call = name_event(self.trace, event)
        before = dict(self.names.entries)
        self.names.apply(call)
        after = self.names.entries
        self.losses += [((event, slot), inode) for slot, inode in before.items() if after.get(slot) != inode]
        self.given |= {slot: event for slot, inode in after.items() if before.get(slot) != inode}
        if isinstance(call, Rename) and call.inode in self.files and not self.files[call.inode].existed:
            to = call.to_folder, call.to_name
            if to not in before and to in after:
                self.published.append(((event, to), call.inode, (call.folder, call.name)))
        for slot, inode in after.items():
            if before.get(slot) != inode and slot in self.gone:
                change, old = self.gone.pop(slot)
                if old != inode and self.at_once(change[0], event, inode):
                    self.recreated.append(Recreated(change, old, inode))
        if isinstance(call, Unlink):
            slot = call.folder, call.name
            self.gone[slot] = (event, slot), call.inode
        if isinstance(call, Unlink) and call.inode in self.files:
            self.unlinked.add(call.inode)
            if self.files[call.inode].existed:
                self.removals.append(Removal((event, (call.folder, call.name)), call.inode, replaced=False))
        if isinstance(call, Rename):
            to = call.to_folder, call.to_name
            over = before.get(to, call.inode)
            if over in self.files and over != call.inode:
                self.removals.append(Removal((event, to), over, replaced=True))
            if call.inode in self.files and self.files[call.inode].existed:
                moved = self.files[call.inode]
                self.removals.append(Removal((event, (call.folder, call.name)), call.inode, replaced=False))
                moved.due = event - 1 if moved.due is None else moved.due

    def at_once(self, since: int, until: int, inode: int) -> bool:
        """Whether one process makes two events, and writes and names no other file in between."""
        pids = self.trace.events["pid"]
        between = [(event, file) for event, file in self.made if since < event < until and pids[event] == pids[since]]
        return bool(pids[since] == pids[until]) and all(file == inode for _, file in between)

    def not_on_purpose(self) -> list[Recreated]:
        """Of files that were there at first, and of what replaced them; but none that is removed in the end."""
        of_first = {inode for inode, file in self.files.items() if file.existed}
        for step in self.recreated:
            if step.old in of_first:
                of_first.add(step.new)
        out: list[Recreated] = []
        for step in reversed(self.recreated):
            removed = step.new in self.on_purpose and step.new not in [later.old for later in out]
            if step.old in of_first and not removed:
                out.append(step)
        return [step for step in out if {step.old, step.new} <= self.files.keys()]

    # -- crash states

    def loses(self, state: CrashState) -> bool:
        """Whether a file holds no version that counts."""
        crash = int(self.space.points.event[state.point])
        changes, held = self.image(state, crash)
        gone = self.counted_removals(changes, held)
        removed = max((removal.change[0] for removal in gone), default=None)
        named = {
            inode: change[0]
            for change, inode, old in self.published
            if change in changes and self.given.get(old, -1) < change[0]
        }
        last = {
            inode: max((e for e in (removed, named.get(inode)) if e is not None), default=None) for inode in self.files
        }
        return any(self.half_replaced(step, crash, changes, held) for step in self.recreated) or any(
            self.short(inode, crash, last[inode], held) for inode in self.files if self.matters(inode, gone)
        )

    def counted_removals(self, changes: set[Change], held: dict[int, bytes]) -> list[Removal]:
        """Those of data; of scratch files only where these held data of what had been removed before."""
        found = [
            removal
            for removal in self.removals
            if removal.change in changes and removal.lost not in held and any(self.before(removal, removal.lost))
        ]
        sure = [removal for removal in found if not removal.scratch]
        return sure + [
            removal
            for removal in found
            if removal.scratch
            and self.holds_removed(removal.lost, [other for other in sure if other.change[0] < removal.change[0]])
        ]

    def before(self, removal: Removal, inode: int) -> bytes:
        """What a file held just before a removal."""
        return [version.data for version in self.files[inode].versions if version.event <= removal.change[0]][-1]

    def half_replaced(self, step: Recreated, crash: int, changes: set[Change], held: dict[int, bytes]) -> bool:
        """Whether a name is removed, and no version with data is there of the file that it is given to."""
        if step.change not in changes or step.old in held:
            return False
        if step.new not in held and any(change in changes for change, lost in self.losses if lost == step.new):
            return False
        old = [version.data for version in self.files[step.old].versions if version.event <= step.change[0]][-1]
        versions = self.files[step.new].versions
        with_data = [place for place, version in enumerate(versions) if any(version.data)]
        if not any(old) or not with_data or self.files[step.new].due is None:
            return False
        low, high = self.counted(step.new, crash)
        counted = [v for v in versions[max(low, with_data[0]) : max(high, with_data[0] + 1)] if v.named]
        mine = held.get(step.new, b"")
        if not counted or any(not lacks(mine, version.data) for version in counted):
            return False
        asked = [(v.data, v.event, step.new) for v in counted if v.data] + [(old, step.change[0], step.old)]
        return not any(
            in_logs(mine, data, self.logs(step.new, crash, held, event, owner, data)) for data, event, owner in asked
        )

    def counted(self, inode: int, crash: int) -> tuple[int, int]:
        """The versions since the last sync of a file, until the next one if it was changed since."""
        file = self.files[inode]
        since = max((sync for sync in file.syncs if sync < crash), default=0)
        events = [version.event for version in file.versions]
        low = max(place for place, event in enumerate(events) if event <= since)
        high = sum(event <= crash for event in events)
        return low, high + any(events[high - 1] <= write < crash for write in file.writes)

    def logs(
        self, inode: int, crash: int, held: dict[int, bytes], version: int, owner: int, wanted: bytes
    ) -> list[bytes]:
        """What other files hold that were synced; or given parts of a version, before that was overwritten."""
        overwritten = (
            version if owner != inode else min((w for w in self.files[inode].writes if w >= version), default=crash)
        )
        return [
            held[other]
            for other, log in self.files.items()
            if other not in (inode, owner)
            and other in held
            and (
                any(sync < crash for sync in log.syncs)
                or (overwritten < crash and self.was_given(log, lost_parts(held.get(inode, b""), wanted), overwritten))
            )
        ]

    def was_given(self, log: File, parts: list[bytes], until: int) -> bool:
        """Whether one of these bytes was written to a file before an event, by one write or by some that join."""
        end, last = -1, b""
        for event in log.writes:
            if event >= until or int(self.trace.events[event]["kind"]) != Kind.WRITE:
                continue
            offset, data = int(self.trace.events[event]["offset"]), self.trace.data(event)
            joined = last + data if offset == end else data
            if any(part in joined for part in parts):
                return True
            end, last = offset + len(data), joined
        return False

    def matters(self, inode: int, gone: list[Removal]) -> bool:
        """Whether a file is none that the run makes and removes, or held a piece of what is removed."""
        return self.files[inode].existed or inode not in self.on_purpose or self.holds_removed(inode, gone)

    def holds_removed(self, inode: int, gone: list[Removal]) -> bool:
        """Whether a file held a piece of what is removed, or few bytes that are there, or very few that are all."""
        for removal in gone:
            mine, other = self.before(removal, inode), self.before(removal, removal.lost)
            if len(mine) < FEW:
                if mine and mine == other:
                    return True
                continue
            places = [min(at, max(len(mine) - PIECE, 0)) for at in range(0, len(mine), PIECE)]
            if any(any(mine[at : at + PIECE]) and mine[at : at + PIECE] in other for at in places):
                return True
        return False

    def image(self, state: CrashState, crash: int) -> tuple[set[Change], dict[int, bytes]]:
        """The changes of names that a state has, and the contents of files that have a name."""
        graph = self.graph
        durable = [int(id_) for id_ in self.space.finite if graph.durable_from[graph.whole(int(id_))] <= crash]
        ids = sorted({*durable, *self.space.persisted(state)}, key=lambda id_: (graph.whole(id_), id_))
        names = Names.first(self.trace)
        disk = {inode: bytearray(file.first) for inode, file in self.files.items()}
        size = {inode: len(file.first) for inode, file in self.files.items()}
        changes: set[Change] = set()
        for id_ in ids:
            row = graph.whole(id_)
            inode, kind = int(graph.file[row]), int(graph.kind[row])
            if kind == NAME:
                for slot, there in graph.names.changes[int(graph.offset[row])].entries:
                    changes.add((int(graph.event[row]), slot))
                    names.entries[slot] = there
                    if not there:
                        names.entries.pop(slot)
            elif kind == SIZE:
                size[inode] = graph.size_after(id_)
                del disk[inode][size[inode] :]
            elif kind == DATA:
                for offset, data in graph.runs(row):
                    whole = disk[inode]
                    whole.extend(bytes(max(0, offset + len(data) - len(whole))))
                    whole[offset : offset + len(data)] = data
        named = set(names.paths().values())
        return changes, {i: bytes(disk[i][: size[i]]).ljust(size[i], b"\0") for i in self.files if i in named}

    def short(self, inode: int, crash: int, removed: int | None, held: dict[int, bytes]) -> bool:
        """Whether a file lacks bytes of each version that counts, and no log has them."""
        file = self.files[inode]
        since = max((sync for sync in file.syncs if sync < crash), default=0)
        joined = removed is not None and removed + 1 >= since and file.due is not None and file.due < removed
        if file.due is None or (inode not in held and not joined):
            return False
        if not joined and (inode in self.on_purpose or (file.existed and not file.first)):
            return False
        since = removed + 1 if joined and removed is not None else since
        past = [version for version in file.versions if version.event <= crash]
        next_ = [version for version in file.versions if version.event > crash][:1]
        if any(past[-1].event <= write < crash for write in file.writes):
            past += next_
        latest = max(place for place, version in enumerate(past) if version.event <= since)
        counted = [version for version in past[latest:] if version.named or joined]
        if not counted or any(not lacks(held.get(inode, b""), version.data) for version in counted):
            return False
        if inode not in held:
            return True
        wanted = [version for version in counted if version.named and version.data]
        return not any(
            in_logs(held[inode], version.data, self.logs(inode, crash, held, version.event, inode, version.data))
            for version in wanted
        )


def lost_parts(held: bytes, wanted: bytes) -> list[bytes]:
    """Halves of the pieces that are lost, or all of a shorter file."""
    if len(wanted) < PIECE:
        return [wanted]
    places = [min(at, len(wanted) - PIECE) for at in range(0, len(wanted), PIECE)]
    lost = [wanted[at : at + PIECE] for at in places if held[at : at + PIECE] != wanted[at : at + PIECE]]
    return [part for piece in lost for part in (piece[: PIECE // 2], piece[PIECE // 2 :]) if any(part)]


def in_logs(held: bytes, wanted: bytes, logs: list[bytes]) -> bool:
    """Whether each piece that is lost is in a log; of a shorter file a log has to be a copy."""
    if not logs:
        return False
    if len(wanted) < PIECE:
        return wanted in logs
    places = [min(at, len(wanted) - PIECE) for at in range(0, len(wanted), PIECE)]
    pieces = [(held[at : at + PIECE], wanted[at : at + PIECE]) for at in places]
    return all(here == there or not any(there) or any(there in log for log in logs) for here, there in pieces)
