"""A search whose choices appear while it runs: an execution asks what comes next, and others branch off there.

Stateless, as CHESS and MODIST are: an execution begins at the start each time, makes the choices of its prefix again,
and then the first that is possible. Each choice that it could have made instead is the end of a new prefix. What two
executions have reached can be compared only once both have ended.

One more user of the loop (loop.py). Prefixes are taken from the newest, _ROUND of them before the results of any is
tested: which executions there are, and in which order, does not depend on how many are under way at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from crashcheck.checker.oracles.verdict_source import Awaited
from crashcheck.checker.search.protocol import AWAIT, Candidate, Pause

E = TypeVar("E")  # an event that may come next: a message to deliver, a thread's operation
R = TypeVar("R")  # what an execution shows

_ROUND = 16

Prefix = tuple[int, ...]  # choices, each by its place among those that were possible


class Diverged(Exception):
    """An execution did not come to a choice that it made before; the text: at which one, and what was possible."""


class Path:
    """The choices of one execution: those of a prefix, and then the first that is possible."""

    def __init__(self, prefix: Prefix = ()) -> None:
        self._prefix = prefix
        self.chosen: list[int] = []
        self.possible: list[int] = []  # how many there were, for each choice

    def next(self, enabled: Sequence[E]) -> E:
        """What comes next of what may, which is in an order of its own. Raises Diverged, ValueError if it is empty."""
        place = len(self.chosen)
        choice = self._prefix[place] if place < len(self._prefix) else 0
        if not enabled:
            raise ValueError("nothing is enabled: the execution has ended")
        if choice >= len(enabled):
            raise Diverged(f"choice {place + 1} was number {choice + 1}, and now {len(enabled)} are possible")
        self.chosen.append(choice)
        self.possible.append(len(enabled))
        return enabled[choice]

    @property
    def ended_early(self) -> bool:
        """Whether the execution has made fewer choices than its prefix has."""
        return len(self.chosen) < len(self._prefix)

    def branches(self) -> Iterator[Prefix]:
        """The prefixes that part from this path after its own prefix; the last one parts first."""
        for place in range(len(self._prefix), len(self.chosen)):
            for other in range(self.possible[place] - 1, 0, -1):
                yield (*self.chosen[:place], other)


class Execution(NamedTuple, Generic[R]):
    """An execution that has ended. `reached`: equal for two executions only if they show the same."""

    path: Path
    reached: bytes
    shows: R


@dataclass(eq=False)
class Schedules(Generic[R]):
    """All executions of something (protocol.Searchable). `begin`: one along a path, which is awaited later.

    `take` is called with each execution that reaches what none before it has; `same` counts the others.
    """

    begin: Callable[[Path], Awaited[Execution[R]]]
    take: Callable[[Execution[R]], None]

    def __post_init__(self) -> None:
        self.same = 0
        self._reached: set[bytes] = set()
        self._prefixes: list[Prefix] = [()]  # the newest last

    def choices(self) -> Iterator[Prefix | Pause]:
        while self._prefixes:
            round_of, self._prefixes = self._prefixes[-_ROUND:], self._prefixes[:-_ROUND]
            yield from reversed(round_of)
            yield AWAIT

    def fingerprint(self, choice: Prefix) -> bytes:
        return repr(choice).encode()

    def execute(self, candidate: Candidate[Prefix]) -> Awaited[Execution[R]]:
        return self.begin(Path(candidate.choice))

    def describe(self, choice: Prefix) -> str:
        return "the execution with the choices " + (" ".join(str(number + 1) for number in choice) or "that are first")

    def taken(self, candidate: Candidate[Prefix], execution: Execution[R]) -> None:
        """Take the result of an execution, for the loop. Raises Diverged if it did not follow its prefix."""
        path = execution.path
        if path.ended_early:
            raise Diverged(f"it ended after {len(path.chosen)} of {len(candidate.choice)} choices")
        self._prefixes.extend(path.branches())
        if execution.reached in self._reached:
            self.same += 1
            return
        self._reached.add(execution.reached)
        self.take(execution)
