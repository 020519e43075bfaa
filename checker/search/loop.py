"""The loop of every search: choices in order, each distinct one executed once, until they or the budget end.

Invariants that the code below keeps:

1. Choices are executed, and their results taken, in the order of `choices`, except that those put off come last. So
   what a search finds does not depend on how many executions are under way at once.
2. Of choices with equal fingerprints the first is executed; the others are counted as pruned.
3. A budget of states is kept exactly. A budget of seconds ends it at the next choice or result.
4. When `run` returns, each choice that the loop has reached was executed, was pruned, or is in `left`.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic

from crashcheck.checker.budget import DiskFull, Meter, OutOfTime
from crashcheck.checker.results import StopReason
from crashcheck.checker.search.protocol import Awaited, C, Candidate, R, Searchable
from crashcheck.interruption import interruptible

MOST_PUT_OFF = 20_000  # with so many put off, further ones are executed when they come up


class Stopped(Exception):
    """Raised by whoever takes a result, to end the search for a reason of its own."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Execution(Generic[C, R]):
    """A choice under way."""

    candidate: Candidate[C]
    awaited: Awaited[R]


class Loop(Generic[C, R]):
    """One search; `run` once."""

    def __init__(
        self,
        searched: Searchable[C, R],
        meter: Meter,
        *,
        ahead: int = 0,
        lag: int = sys.maxsize,
        put_off: Callable[[Candidate[C]], bool] = lambda candidate: False,
        pruned: Callable[[Candidate[C], int], None] = lambda candidate, same_as: None,
        cost: Callable[[R], int] = lambda result: 1,
    ) -> None:
        """`ahead`: executions begun before the first of them is taken. `cost`: of the budget of states, by a result.

        `put_off`: whether a choice is executed only after all others. When it is asked, the results of all choices at
        least `lag` places before have been taken, whatever `ahead` is. `pruned` is called with a choice that is not
        executed and the place of the one that is executed instead.
        """
        # constant
        self._searched = searched
        self._meter = meter
        self._ahead = ahead
        self._lag = lag
        self._is_put_off = put_off
        self._on_pruned = pruned
        self._cost = cost
        # changing
        self.executed = 0  # choices whose results were taken
        self.pruned = 0
        self.left: list[tuple[int, C]] = []  # reached and not executed, with their places; once `run` has returned
        self.warnings: list[str] = []  # what ended the search, if not the choices, the budget or the user
        self._spent = 0  # states, by the executions that were taken
        self._seen: dict[bytes, int] = {}  # the place of the first choice of each fingerprint
        self._waiting: deque[_Execution[C, R]] = deque()  # under way, the next to be taken first
        self._later: deque[Candidate[C]] = deque()  # put off

    @property
    def put_off(self) -> int:
        """How many choices are put off and not executed."""
        return len(self._later)

    def run(self, take: Callable[[Candidate[C], R], None]) -> StopReason:
        """Search, and hand each result to `take`. Ctrl-C, SIGTERM and a full disk end it as a spent budget does.

        Any other exception names the choice that it was raised for, in a note.
        """
        with interruptible():
            try:
                stop = self.run_through(take)
            except KeyboardInterrupt:
                stop = StopReason.INTERRUPTED
            except OutOfTime:
                stop = StopReason.BUDGET_SECONDS
            except Stopped as stopped:
                stop = stopped.reason
            except DiskFull as error:
                stop = StopReason.DISK_FULL
                self.warnings.append(f"{error.message}. {error.hint}")
        self.left += [(each.candidate.place, each.candidate.choice) for each in self._waiting]
        self.left += [(candidate.place, candidate.choice) for candidate in self._later]
        self._waiting.clear()
        return stop

    def run_through(self, take: Callable[[Candidate[C], R], None]) -> StopReason:
        """Search as `run`, but let Ctrl-C, OutOfTime, Stopped and DiskFull out: they end what this is a part of."""
        for place, choice in enumerate(self._searched.choices()):
            if self._meter.out_of_seconds():
                self._leave(place, choice)
                return StopReason.BUDGET_SECONDS
            candidate = self._first_of_its_kind(place, choice)
            if candidate is None:
                continue
            if self._out_of_states():
                self._leave(place, choice)
                self._take_all(take)
                return StopReason.BUDGET_STATES
            self._seen[candidate.fingerprint] = place
            while self._waiting and self._waiting[0].candidate.place <= place - self._lag:
                self._take(take)
            if len(self._later) < MOST_PUT_OFF and self._is_put_off(candidate):
                self._later.append(candidate)
            else:
                self._execute(candidate, take)
        while self._later:
            if self._meter.out_of_seconds():
                return StopReason.BUDGET_SECONDS
            if self._out_of_states():
                self._take_all(take)
                return StopReason.BUDGET_STATES
            self._execute(self._later.popleft(), take)
        self._take_all(take)
        return StopReason.EXHAUSTED

    def _first_of_its_kind(self, place: int, choice: C | None) -> Candidate[C] | None:
        """The choice, if none with its fingerprint was reached before."""
        if choice is None:
            return None
        candidate = Candidate(place, choice, self._searched.fingerprint(choice))
        same_as = self._seen.get(candidate.fingerprint)
        if same_as is None:
            return candidate
        self.pruned += 1
        self._on_pruned(candidate, same_as)
        return None

    def _out_of_states(self) -> bool:
        return self._meter.out_of_states(self._spent + len(self._waiting))

    def _leave(self, place: int, choice: C | None) -> None:
        if choice is not None:
            self.left.append((place, choice))

    def _execute(self, candidate: Candidate[C], take: Callable[[Candidate[C], R], None]) -> None:
        with self._naming(candidate):
            self._waiting.append(_Execution(candidate, self._searched.execute(candidate)))
        while len(self._waiting) > self._ahead:
            self._take(take)

    def _take_all(self, take: Callable[[Candidate[C], R], None]) -> None:
        while self._waiting:
            self._take(take)

    def _take(self, take: Callable[[Candidate[C], R], None]) -> None:
        """Wait for the result of the execution that has waited longest, and hand it on."""
        first = self._waiting[0]
        with self._naming(first.candidate):
            result = first.awaited(self._meter.left_s)
            if result is None:
                raise OutOfTime
            self._waiting.popleft()
            self.executed += 1
            self._spent += self._cost(result)
            take(first.candidate, result)

    @contextmanager
    def _naming(self, candidate: Candidate[C]) -> Iterator[None]:
        try:
            yield
        except (OutOfTime, Stopped, DiskFull):
            raise
        except Exception as error:
            error.add_note(f"while the search executed {self._searched.describe(candidate.choice)}")
            raise
