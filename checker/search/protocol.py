"""The interface between the search loop and what it searches: the loop does not know what a crash state is.

Crash states (crash_states.py) and recoveries (recovery.py) are searched by the same loop (loop.py). To search
something else, describe its choices, and what to do with results; where choices appear only while something runs
(interleavings of threads, orders of messages), schedules.py describes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Generic, Protocol, TypeVar

from crashcheck.checker.verdicts.verdict_source import Awaited

C = TypeVar("C")  # a choice: a crash state and why it is tested, a schedule
R = TypeVar("R")  # what executing a choice gives: a verdict, the result of a search below it

R_co = TypeVar("R_co", covariant=True)


class Pause(Enum):
    """Instead of a choice: the next one depends on results, so all that is under way must be taken first."""

    AWAIT = "await"


AWAIT = Pause.AWAIT


@dataclass(frozen=True, slots=True)
class Candidate(Generic[C]):
    """A choice that the loop has reached. `place`: its number in the order of choices, from 0."""

    place: int
    choice: C
    fingerprint: bytes


class Searchable(Protocol[C, R_co]):
    """Something to search. Each method must be a function of its arguments and of the results taken before."""

    def choices(self) -> Iterator[C | Pause | None]:
        """Everything that may be executed, in the order of execution. None: nothing yet, check the budget."""
        ...

    def fingerprint(self, choice: C) -> bytes:
        """Equal for two choices only if executing them gives the same: the second is then not executed."""
        ...

    def execute(self, candidate: Candidate[C]) -> Awaited[R_co]:
        """Begin to execute a choice; the result is awaited later, after those of earlier choices."""
        ...

    def describe(self, choice: C) -> str:
        """One line that names a choice to a person, and lets them execute it again if that is possible."""
        ...
