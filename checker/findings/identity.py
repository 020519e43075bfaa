"""What makes two failing states one finding, and a finding the same one after lines have moved."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePosixPath

import numpy as np
from numpy.typing import NDArray

from crashcheck.analyzer.arrays import number_rows, ranges, unique
from crashcheck.analyzer.persistence.graph import PIECE_KINDS
from crashcheck.analyzer.persistence.names import REMOVED, NameChange
from crashcheck.analyzer.persistence.pieces import DATA, NAME, SIZE, Ints
from crashcheck.analyzer.persistence.shown_names import pattern_of
from crashcheck.checker.findings.templates import of_template
from crashcheck.checker.findings.uses import find_uses
from crashcheck.checker.results import FindingKind, Location
from crashcheck.checker.subject import Subject
from crashcheck.runtime.trace_format import Kind as EventKind

# Where an update comes from: (AT, file, line, column, which use of it that is, function, variable) in the source;
# where nothing is known of that, ("offset", watched file, what of it, offset), and _END for the offset of what a call
# appends; _NOWHERE of no update.
Origin = tuple[str, ...]
FindingKey = tuple[FindingKind, Origin, Origin]

AT = "at"  # opens the origin of what has a place in the source
_ID_DIGITS = 12
_END = "end"  # instead of an offset
# Of a stable place in the source: file, function, variable, text, ordinal. A sixth is which use of it that is.
PLACE_PARTS = 5
_NOWHERE: Origin = ("",)
# One section that is not atomic: how the check ends on it may change with the data, so that is not in the id.
_SAME_BUG = (FindingKind.ATOMICITY, FindingKind.RECOVERY_FAILURE)


@dataclass(frozen=True, eq=False)
class Identities:
    """Keys of origins and of findings.

    A *key* distinguishes origins within one run (it has the line). An *id* must survive moved lines, other
    checkouts and other machines: it is made of the function, the file, the variable, the text of the
    source line and its ordinal among equals, and of no line number and no absolute path. Without
    program facts both are the watched file and the offset in it. Neither has template arguments.
    """

    subject: Subject

    def origin(self, piece: int | None) -> Origin:
        """The key of where an update comes from, within this run."""
        if piece is None:
            return _NOWHERE
        here = self.subject.place(piece)
        if here is None:
            return self._offset(piece)
        use = self._use(self.subject.event_of(piece))
        return (AT, here.file, str(here.line), str(here.column), use, of_template(here.function), here.variable)

    @cached_property
    def _uses(self) -> dict[int, str]:
        return find_uses(self.subject)

    def _use(self, event: int) -> str:
        """Which use of its place a change is; "" where it has a single one."""
        return self._uses.get(int(self.subject.trace.calls(np.array([event]))[0]), "")

    def finding(self, kind: FindingKind, lost: int | None, kept: int | None) -> FindingKey:
        return kind, self.origin(lost), self.origin(kept)

    def stable(self, kind: FindingKind, lost: int | None, kept: int | None, depth: int = 1) -> str:
        """The finding's id: 12 hexadecimal digits."""
        kind = FindingKind.ATOMICITY if kind in _SAME_BUG else kind
        return _id(kind, depth, self.stable_place(lost), self.stable_place(kept))

    def likenesses(self, kind: FindingKind, lost: int | None, kept: int | None, depth: int = 1) -> tuple[str, ...]:
        """What a finding is still known by after its function or file got another name, or its lines another text.

        Each leaves something out of the id, so two bugs may share one: to be asked only where the id is not found.
        Of a template, one is the id that version 0.1 gave this instantiation. Of a section, the last is the id that
        it gave it when the check died of it.
        """
        whole = self.stable_place(lost), self.stable_place(kept)
        former = (_id(FindingKind.RECOVERY_FAILURE, depth, *whole),) if kind in _SAME_BUG else ()
        kind = FindingKind.ATOMICITY if kind in _SAME_BUG else kind
        of_instance = _id(kind, depth, self._of_instance(lost), self._of_instance(kept))
        if of_instance != _id(kind, depth, *whole):
            former = (of_instance, *former)
        if any(len(place) > PLACE_PARTS for place in whole):  # another version may have this use of it alone
            former = (_id(kind, depth, *(place[:PLACE_PARTS] for place in whole)), *former)
        in_part = (
            digest_of([name, kind.value, str(depth), *_part(whole[0], named), *_part(whole[1], named)])
            for name, named in (("by text", slice(2, 4)), ("by name", slice(3)))
        )
        return (*in_part, *former)

    def stable_place(self, piece: int | None) -> Origin:
        """Where an update comes from, without line numbers and absolute paths: equal in another version's recording."""
        if piece is None:
            return _NOWHERE
        place = self._line(piece)
        use = self._use(self.subject.event_of(piece)) if len(place) == PLACE_PARTS else ""
        return (*place, use) if use else place

    def place_of_files(self, piece: int) -> Origin:
        """The stable place of an update, with the name of the file that it changes, without numbers, for its use."""
        place = self._line(piece)
        named = len(place) == PLACE_PARTS and self.subject.graph.family.names
        return (*place, pattern_of(self.subject.path_of(piece))) if named else place

    def _line(self, piece: int) -> Origin:
        """The stable place of an update, in whichever use."""
        event = self.subject.event_of(piece)
        here = self.subject.provenance.of(event)
        if here is None:
            return self._offset(piece)
        ordinal = str(self.subject.provenance.ordinal(event))
        return (_portable(here), of_template(here.function), here.variable, here.text, ordinal)

    def _of_instance(self, piece: int | None) -> Origin:
        """The stable place, with the template arguments of the function."""
        place = self.stable_place(piece)
        here = None if piece is None else self.subject.place(piece)
        return place if here is None else (place[0], here.function, *place[2:])

    def _offset(self, piece: int) -> Origin:
        graph = self.subject.graph
        described = graph.piece(piece)
        if described.kind == "name":
            change = graph.names.changes[described.offset]
            return ("offset", self._replaced(change, described.event) or change.text, described.kind, "0")
        path, inode = self.subject.path_of(piece), int(graph.file[graph.whole(piece)])
        later = graph.names.next_path(inode, described.event)
        if later and graph.names.is_new(inode, described.event):
            path = f"{later}, new"
        if self._appends(described.event):
            return ("offset", path, described.kind, _END)
        offset = described.offset
        if described.kind == "data":  # of the whole store: its pieces are one place
            offset = int(self.subject.trace.events["offset"][described.event])
        return ("offset", path, described.kind, str(offset))

    def of_place(self, pieces: Ints, place: Origin) -> Ints:
        """Those of some pieces without a place in the source whose origin is this one, of one by offset."""
        graph, kind, at = self.subject.graph, PIECE_KINDS.index(place[2]), place[3]
        pieces = pieces[graph.kind[pieces] == kind]
        events = graph.event[pieces]
        if kind != NAME:  # of each file and path the pieces at one offset have one origin
            ends = self._appending(events)
            offsets = self.subject.trace.events["offset"][events] if kind == DATA else graph.offset[pieces]
            same = ends if at == _END else ~ends & (offsets == int(at))
            pieces, events = pieces[same], events[same]
        epoch = np.arange(len(pieces))
        if kind != NAME and graph.family.names:
            files = graph.file[pieces]
            epoch = np.zeros(len(pieces), dtype=np.int64)
            for number in unique(files).tolist():
                known = np.array(graph.names.paths.get(number, ([], []))[0], dtype=np.int64)
                epoch[files == number] = known.searchsorted(events[files == number], side="right")
        number, first = number_rows(graph.file[pieces], epoch)
        mine = np.array([self.origin(piece) == place for piece in pieces[first].tolist()], dtype=np.bool_)
        return pieces[mine[number]]

    def _replaced(self, change: NameChange, event: int) -> str:
        """What a rename of a file that the run made replaces; empty for other changes.

        Each time is one place: the name that such a file has until then is often chosen at random.
        """
        names = self.subject.graph.names
        slots = [(slot, inode) for slot, inode in change.entries if inode != REMOVED]
        if len(change.entries) != 2 or len(slots) != 1 or not names.is_new(slots[0][1], event - 1):
            return ""
        (folder, name), _ = slots[0]
        return f"a rename to {names.shown_path(name)} in {names.path(folder, event)}"

    def _appends(self, event: int) -> bool:
        """Whether a recorded call writes at the end of a file: each record of a log is one place."""
        return bool(self._appending(np.array([event]))[0])

    def _appending(self, events: Ints) -> NDArray[np.bool_]:
        """`_appends` of each."""
        graph, rows = self.subject.graph, self.subject.trace.events[events]
        if not graph.family.names:
            return np.zeros(len(events), dtype=np.bool_)
        first, end = (np.searchsorted(graph.event, events + more) for more in (0, 1))
        pieces, whose = ranges(first, end - first), np.repeat(np.arange(len(events)), end - first)
        out = np.zeros(len(events), dtype=np.bool_)
        out[whose[(graph.kind[pieces] == SIZE) & (graph.old_size[pieces] == rows["offset"][whose])]] = True
        out &= rows["kind"] == EventKind.WRITE
        return out


def _id(kind: FindingKind, depth: int, lost: Origin, kept: Origin) -> str:
    return digest_of([kind.value, str(depth), *lost, *kept])


def _part(place: Origin, named: slice) -> Origin:
    return (*place[named], *place[PLACE_PARTS:]) if len(place) >= PLACE_PARTS else place


def line_of(place: Origin) -> Origin:
    """An origin, whichever use of its place that is."""
    return (*place[:4], *place[5:]) if place[0] == AT else place


def digest_of(parts: list[str]) -> str:
    return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:_ID_DIGITS]


def _portable(here: Location) -> str:
    path = PurePosixPath(here.file)
    return path.name if path.is_absolute() or ".." in path.parts else str(path)
