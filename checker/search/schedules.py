"""A search whose choices appear while it runs: an execution asks what comes next, and others branch off there.

Stateless, as CHESS and MODIST are: an execution begins at the start each time, makes the choices of its prefix again,
and then picks freely. A state is the list of choices that leads to it. What two executions have reached can be compared
only once both have ended.

One more user of the loop (loop.py). Which executions there are, a frontier decides from those that have ended; it hands
out ROUND of them before the results of any is tested, so that which ones there are, and in which order, does not depend
on how many are under way at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

from crashcheck.checker.search.protocol import AWAIT, C, Candidate, Pause
from crashcheck.checker.verdicts.verdict_source import Awaited

E = TypeVar("E", bound=Hashable)  # an event that may come next: a message to deliver, a thread's operation
R = TypeVar("R")  # what an execution shows

ROUND = 16


class Diverged(Exception):
    """An execution did not come to a choice that it made before; the text: at which one, and what was possible."""


def first(enabled: Sequence[E]) -> E:
    """What comes next by default."""
    return enabled[0]


class Path(Generic[E]):
    """The choices of one execution: those of a prefix, and then what `pick` takes of what is possible."""

    def __init__(self, prefix: Sequence[E] = (), pick: Callable[[Sequence[E]], E] = first) -> None:
        # constant
        self._prefix = prefix
        self._pick = pick
        # changing
        self.chosen: list[E] = []
        self.enabled: list[Sequence[E]] = []  # what was possible, for each choice

    def next(self, enabled: Sequence[E]) -> E:
        """What comes next of what may, which is in an order of its own. Raises Diverged, ValueError if it is empty."""
        place = len(self.chosen)
        if not enabled:
            raise ValueError("nothing is enabled: the execution has ended")
        if place < len(self._prefix) and self._prefix[place] not in enabled:
            raise Diverged(f"choice {place + 1} was {self._prefix[place]}, and now {len(enabled)} others are possible")
        choice = self._prefix[place] if place < len(self._prefix) else self._pick(enabled)
        self.chosen.append(choice)
        self.enabled.append(enabled)
        return choice

    @property
    def ended_early(self) -> bool:
        """Whether the execution has made fewer choices than its prefix has."""
        return len(self.chosen) < len(self._prefix)

    def check_prefix(self) -> None:
        """Raise Diverged if it has."""
        if self.ended_early:
            raise Diverged(f"it ended after {len(self.chosen)} choices, before its prefix did")

    def branches(self) -> Iterator[tuple[E, ...]]:
        """The prefixes that part from this path after its own prefix; the last one parts first."""
        for place in range(len(self._prefix), len(self.chosen)):
            for other in reversed(self.enabled[place]):
                if other != self.chosen[place]:
                    yield (*self.chosen[:place], other)


class Execution(NamedTuple, Generic[E, R]):
    """An execution that has ended. `reached`: equal for two executions only if they show the same; None if it was cut
    because whatever it could come to, another one does."""

    path: Path[E]
    reached: bytes | None
    shows: R


class Frontier(Protocol[C, E, R]):
    """Which executions there are. Each method must be a function of its arguments and of what has ended before."""

    def round(self) -> Sequence[C]:
        """Executions to begin before any of them is examined, at most ROUND; empty: there are no more."""
        ...

    def ended(self, choice: C, execution: Execution[E, R]) -> None:
        """Take note of an execution."""
        ...


class EveryOrder(Generic[E, R]):
    """Depth first: each choice that an execution could have made instead is the end of a new prefix."""

    def __init__(self) -> None:
        self._prefixes: list[tuple[E, ...]] = [()]  # the newest last

    def round(self) -> Sequence[tuple[E, ...]]:
        round_of, self._prefixes = self._prefixes[-ROUND:], self._prefixes[:-ROUND]
        return round_of[::-1]

    def plan(self, prefix: tuple[E, ...]) -> None:
        """Begin one more execution, whose last choice no state has offered."""
        self._prefixes.append(prefix)

    def ended(self, choice: tuple[E, ...], execution: Execution[E, R]) -> None:
        self._prefixes.extend(execution.path.branches())


@dataclass(eq=False)
class Schedules(Generic[C, E, R]):
    """All executions of something (protocol.Searchable). `begin`: one of the frontier's, which is awaited later.

    `take` is called with each execution that reaches what none before it has; `same` counts the others, `cut` those
    that were cut.
    """

    frontier: Frontier[C, E, R]
    begin: Callable[[C], Awaited[Execution[E, R]]]
    take: Callable[[Execution[E, R]], None]

    def __post_init__(self) -> None:
        self.same = self.cut = 0
        self._reached: set[bytes] = set()

    def choices(self) -> Iterator[C | Pause]:
        while round_of := self.frontier.round():
            yield from round_of
            yield AWAIT

    def fingerprint(self, choice: C) -> bytes:
        return repr(choice).encode()

    def execute(self, candidate: Candidate[C]) -> Awaited[Execution[E, R]]:
        return self.begin(candidate.choice)

    def describe(self, choice: C) -> str:
        return f"the execution with the choices {choice}"

    def taken(self, candidate: Candidate[C], execution: Execution[E, R]) -> None:
        """Take the result of an execution, for the loop. Raises Diverged if it did not follow its prefix."""
        execution.path.check_prefix()
        self.frontier.ended(candidate.choice, execution)
        if execution.reached is None:
            self.cut += 1
        elif execution.reached in self._reached:
            self.same += 1
        else:
            self._reached.add(execution.reached)
            self.take(execution)
