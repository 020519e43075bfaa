"""What makes two failing states one finding, and a finding the same one after lines have moved."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import PurePosixPath

from crashcheck.checker.result import Kind, Location
from crashcheck.checker.subject import Subject

PlaceKey = tuple[str, ...]
FindingKey = tuple[Kind, PlaceKey, PlaceKey]

AT = "at"  # opens the key of a place in the source
_ID_DIGITS = 12
_NOWHERE: PlaceKey = ("",)


@dataclass(frozen=True, slots=True)
class Identities:
    """Keys of places and of findings.

    A *key* tells places of one run apart (it has the line). An *id* must survive moved lines, other
    checkouts and other machines: it is made of the function, the file, the variable, the text of the
    source line and its ordinal among equals, and of no line number and no absolute path. Without
    program facts both are the watched file and the offset in it.
    """

    subject: Subject

    def place(self, piece: int | None) -> PlaceKey:
        if piece is None:
            return _NOWHERE
        here = self.subject.places.of(self.subject.event_of(piece))
        if here is None:
            return self._offset(piece)
        return (AT, here.file, str(here.line), str(here.column), here.function, here.variable)

    def finding(self, kind: Kind, lost: int | None, kept: int | None) -> FindingKey:
        return kind, self.place(lost), self.place(kept)

    def stable(self, kind: Kind, lost: int | None, kept: int | None, depth: int = 1) -> str:
        """The finding's id: 12 hexadecimal digits."""
        parts = [kind.value, str(depth), *self._stable_place(lost), *self._stable_place(kept)]
        return hashlib.blake2b("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:_ID_DIGITS]

    def _stable_place(self, piece: int | None) -> PlaceKey:
        if piece is None:
            return _NOWHERE
        event = self.subject.event_of(piece)
        here = self.subject.places.of(event)
        if here is None:
            return self._offset(piece)
        return (_portable(here), here.function, here.variable, here.text, str(self.subject.places.ordinal(event)))

    def _offset(self, piece: int) -> PlaceKey:
        described = self.subject.graph.piece(piece)
        offset = described.offset
        if described.kind == "data":  # of the whole store: its pieces are one place
            offset = int(self.subject.trace.events["offset"][described.event])
        return ("offset", self.subject.path_of(piece), described.kind, str(offset))


def _portable(here: Location) -> str:
    path = PurePosixPath(here.file)
    return path.name if path.is_absolute() else str(path)
