"""The updates of a recorded run by the place in the source that made them."""

from __future__ import annotations

from functools import cached_property

from crashcheck.checker.results import Location, SourcePoint
from crashcheck.checker.subject import UPDATES, Subject


class UpdatesByPlace:
    """Of one recorded run; found when they are first asked for. An update is its event."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject

    def of_piece(self, piece: int) -> list[int]:
        """All updates of a piece's place; none if that is not known."""
        here = self._subject.place(piece)
        return self.of(here) if here is not None else []

    def of(self, place: Location) -> list[int]:
        """All updates of a place, whoever called it."""
        return self._found.get(place.point, [])

    @cached_property
    def _found(self) -> dict[SourcePoint, list[int]]:
        found: dict[SourcePoint, list[int]] = {}
        for row in self._subject.trace.rows(*UPDATES).tolist():
            here = self._subject.provenance.of(row)
            if here is not None and here.line:
                found.setdefault(here.point, []).append(row)
        return found
