"""One mutant, and how far its search for a crash state that fails has come."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum

from crashcheck.checker.mutation.mutant_states import MutantStates, NewStates
from crashcheck.checker.states.points import CrashPoint
from crashcheck.checker.states.space import CrashState

MOST_COUNTED = 1_000_000  # new states of a mutant


class Fate(StrEnum):
    FOUND = "found"  # a crash state failed, twice
    EQUIVALENT = "equivalent"  # by the persistence graph, it has no crash state that the original does not have
    HARMLESS = (
        "harmless"  # every crash state that only the mutant has was run, or ends as one that was run; none failed
    )
    SURVIVED = "survived"  # none failed before the budget was used up


class MutantProgress:
    """A mutant, and how far its search has come."""

    def __init__(self, exposure: MutantStates) -> None:
        self.exposure = exposure
        # What changes during the search:
        self.states = 0  # images that were checked
        self.granules = 0  # among them all with losses in up to so many granules
        self.decided = False  # every new state was run, or has the end of an explored run
        self.proved = 0  # new states that explored runs decided
        self.ends = 0  # of explored runs
        self.explored: list[int] = []  # the moments that these decided
        self.unexplored = ""  # why some moment was not decided
        self._seen: set[bytes] = set()  # fingerprints of images that were met
        self._before_any = True  # every state so far is from before the first operation
        self._count: NewStates | None = None

    def first_of(self, fingerprint: bytes) -> bool:
        """Whether an image has not been met; now it has."""
        if fingerprint in self._seen:
            return False
        self._seen.add(fingerprint)
        return True

    def checked(self, point: CrashPoint) -> None:
        self.states += 1
        self._before_any &= not point.begun

    def choices(self) -> Iterator[CrashState]:
        """All new states, and how far that has come."""
        for many in range(1, self.exposure.granules + 1):
            yield from self.exposure.lacking(many)
            self.granules = many

    @property
    def count(self) -> NewStates:
        """How many new states there are."""
        if self._count is None:
            self._count = self.exposure.count(MOST_COUNTED)
        return self._count

    def because(self, fate: Fate) -> str:
        if fate is Fate.EQUIVALENT:
            if not self.exposure.pieces():
                return "every update persists when it did"
            if not len(self.exposure.exposed):
                return "the updates that persist later write what was there already"
            return "each image that it may leave, the program may leave as well"
        if fate is Fate.FOUND:
            return ""
        if fate is Fate.SURVIVED and (self.granules or self.unexplored):
            tried = [f"not explored, as {self.unexplored}"] if self.unexplored else []
            if self.granules:
                many = f"{self.granules} granule{'s' * (self.granules > 1)}"
                tried.append(f"all with losses in at most {many} among them")
            return ", ".join(tried)
        return "all of them before the first operation" if self.states and self._before_any else ""
