"""Where the verdicts of a search come from: sources on top of one another, each of which answers or asks the next.

At the bottom an executor runs the check: by its own workers, by copies of a check that waits, by a cluster's machines.
A source above it (kept_verdicts.py) may know the answer already, may leave it to another search, or may write down what
the one below shows. A search asks the uppermost source and does not know which one answers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Set
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from crashcheck.checker.execution.tasks import Run
from crashcheck.checker.results import Verdict
from crashcheck.checker.states.space import CrashState
from crashcheck.runtime.exploration import Explored

if TYPE_CHECKING:
    from crashcheck.checker.verdicts.executor import Executor

R = TypeVar("R")
Awaited = Callable[[float | None], R | None]  # waits for a result, so many seconds at most; None: it was not there


class Asked(NamedTuple):
    """A state, the fingerprint of its image, and what decides which shard runs it."""

    state: CrashState
    fingerprint: bytes
    part: bytes


class JudgedRun(NamedTuple):
    """A verdict, and the run of the check that it is about."""

    verdict: Verdict
    run: Run


class VerdictSource(ABC):
    """Answers how the check ends on crash states, and on products of them. By default it keeps nothing."""

    keeps = False  # whether it asks for the keys of products
    leaves_failures = False  # whether another search explains what fails
    since = ""  # when the search ended whose verdicts count here; empty if there is none

    @property
    @abstractmethod
    def executor(self) -> Executor:
        """The source at the bottom, which runs the check."""

    @property
    @abstractmethod
    def ahead(self) -> int:
        """How many states may be asked for before the first verdict is taken."""

    @abstractmethod
    def ask(self, asked: Asked) -> Awaited[Verdict]:
        """Begin to find a verdict; each is awaited once, in the order in which they were asked for."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What a report mentions of where verdicts came from."""
        return ()

    @property
    def reused(self) -> Set[bytes]:
        """Fingerprints of states that passed in the search before, and were not executed for that."""
        return frozenset()

    def is_last(self, asked: Asked) -> bool:
        """Whether a state is better asked for after all others."""
        return False

    def is_elsewhere(self, part: bytes) -> bool:
        """Whether another search runs what has this name, and decides what this one takes for passed."""
        return False

    def product(self, key: bytes) -> tuple[Explored, Path] | None:
        """What explored runs have shown of a product, and in which folder, if that is known."""
        return None

    def explored(self, key: bytes, result: Explored, folder: Path) -> None:
        """Take note of what explored runs have shown of a product."""
        return

    def end(self, *, complete: bool) -> None:
        """The search has ended; `complete`: with all its states."""
        return
