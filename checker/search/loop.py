"""The loop of every search: choices in order, each distinct one executed once, until they or the budget end.

What a result calls for (explaining a failure) is done between two results. While it waits, the loop may continue.

Invariants that the code below keeps:

1. Choices are executed, and their results taken, in the order of `choices`, except that those postponed are last.
   Whether one is postponed depends on the results before it alone. So what a search finds does not depend on how many
   executions are under way at once.
2. Of choices with equal fingerprints the first is executed; the others are counted as pruned.
3. A budget of states is kept exactly. A budget of seconds ends it at the next choice or result.
4. When `run` returns, each choice that the loop has reached was executed, was pruned, or is in `left`.
5. How many results are taken meanwhile is counted in results, never in seconds: invariant 1 holds for explaining, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Generic

from crashcheck.checker.budget import BrokenOff, Meter, OutOfTime
from crashcheck.checker.results import StopReason
from crashcheck.checker.search.protocol import AWAIT, C, Candidate, Pause, R, Searchable
from crashcheck.checker.verdicts.verdict_source import Awaited
from crashcheck.interruption import interruptible

MOST_PUT_OFF = 20_000  # with so many postponed, further ones are executed when they come up
_MOST_WAITING = 64  # choices whose turn has not come
_STOPPED_BY = {"disk-full-checking": StopReason.DISK_FULL, "worker-died": StopReason.WORKER_LOST}  # BrokenOff's slugs


class Stopped(Exception):
    """Raised by whoever takes a result, to end the search for a reason of its own."""

    def __init__(self, reason: StopReason) -> None:
        super().__init__(reason.value)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class _Execution(Generic[C, R]):
    """A choice whose result was not taken. `awaited`: None if it is not under way."""

    candidate: Candidate[C]
    awaited: Awaited[R] | None


@dataclass(slots=True, eq=False)
class Reached(Generic[C]):
    """How far a loop is. It outlives the loop, which holds what it searches."""

    executed: int = 0  # choices whose results were taken
    pruned: int = 0
    put_off: int = 0  # choices that are postponed and not taken
    left: list[tuple[int, C]] = field(default_factory=list)  # not executed, with their places; once `run` has returned
    warnings: list[str] = field(default_factory=list)  # what ended the search, unless the choices, budget or user did


class Loop(Generic[C, R]):
    """One search; `run` once."""

    def __init__(
        self,
        searched: Searchable[C, R],
        meter: Meter,
        reached: Reached[C] | None = None,
        *,
        ahead: int = 0,
        put_off: Callable[[Candidate[C]], bool] = lambda candidate: False,
        between: Callable[[bool], bool] = lambda ended: False,
        pruned: Callable[[Candidate[C], int], None] = lambda candidate, same_as: None,
        cost: Callable[[Candidate[C], R], int] = lambda candidate, result: 1,
    ) -> None:
        """`ahead`: executions begun before the first of them is taken. `cost`: of a choice and its result, in states.

        `put_off`: whether a choice is taken only after all others, given the results that were taken before it; once
        it does so for a choice, it must keep doing so. `between` is called after each result, with whether it was the
        last, until it finds nothing to do for those that were taken (False); it may call `go_on`. `pruned` is called
        with a choice that is not executed and the place of the one that is executed instead.
        """
        # constant
        self._searched = searched
        self._meter = meter
        self._ahead = ahead
        self._is_put_off = put_off
        self._between = between
        self._on_pruned = pruned
        self._cost = cost
        # changing
        self.reached: Reached[C] = Reached() if reached is None else reached
        self._spent = 0  # states, by the executions that were taken
        self._seen: dict[bytes, int] = {}  # the place of the first choice of each fingerprint
        self._waiting: deque[_Execution[C, R]] = deque()  # the next to be taken first
        self._under_way = 0  # of these
        self._later: deque[_Execution[C, R]] = deque()  # postponed
        self._steps: Generator[bool, None, StopReason] | None = None  # one for each result; None once all were taken
        self._awaits = False  # whether there is none before what was taken has been dealt with
        self._stop = StopReason.EXHAUSTED  # why there are no more

    def run(self, take: Callable[[Candidate[C], R], None]) -> StopReason:
        """Search, and hand each result to `take`. Ctrl-C, SIGTERM and BrokenOff end it as a spent budget does.

        Any other exception names the choice that it was raised for, in a note.
        """
        with interruptible():
            try:
                stop = self._run_through(take)
            except KeyboardInterrupt:
                stop = StopReason.INTERRUPTED
            except OutOfTime:
                stop = StopReason.BUDGET_SECONDS
            except Stopped as stopped:
                stop = stopped.reason
            except BrokenOff as error:
                stop = _STOPPED_BY[error.slug]
                self.reached.warnings.append(f"{error.message}. {error.hint}")
            finally:
                self.reached.put_off = len(self._later)
        waiting = (each.candidate for each in (*self._waiting, *self._later))
        self.reached.left += [(candidate.place, candidate.choice) for candidate in waiting]
        self._waiting.clear()
        return stop

    def _run_through(self, take: Callable[[Candidate[C], R], None]) -> StopReason:
        self._steps = self._stepped(take)
        try:
            while not self._ended:
                self._awaits = False
                self._step()
                while self._between(self._ended):
                    pass
        finally:
            self._steps = None
        return self._stop

    @property
    def _ended(self) -> bool:
        return self._steps is None

    def go_on(self, results: int) -> None:
        """Take so many more results, if there are. For what is done between two of them, while it waits."""
        for _ in range(results):
            if not self._ended and not self._awaits:
                self._step()

    def _step(self) -> None:
        """Take the next result, if there is one before what was taken has been dealt with."""
        try:
            taken = None if self._steps is None else next(self._steps)
        except StopIteration as ended:
            self._steps, self._stop = None, ended.value
        except OutOfTime:
            self._steps, self._stop = None, StopReason.BUDGET_SECONDS
        else:
            self._awaits = not taken

    def _stepped(self, take: Callable[[Candidate[C], R], None]) -> Generator[bool, None, StopReason]:
        """Search; pause after each result (True), and where all that were taken must be dealt with first (False)."""
        for place, choice in enumerate(self._searched.choices()):
            if self._meter.out_of_seconds():
                self._leave(place, choice)
                return StopReason.BUDGET_SECONDS
            if choice is AWAIT:
                yield from self._all_taken(take)
                yield False
                continue
            candidate = self._first_of_its_kind(place, choice)
            if candidate is None:
                continue
            while self._waiting and self._out_of_states():
                self._take(take)
                yield True
            if self._out_of_states():
                self._leave(place, choice)
                return StopReason.BUDGET_STATES
            self._seen[candidate.fingerprint] = place
            self._execute(candidate)
            while self._under_way > self._ahead or len(self._waiting) > max(_MOST_WAITING, self._ahead):
                self._take(take)
                yield True
        yield from self._all_taken(take)
        while self._later:
            if self._meter.out_of_seconds():
                return StopReason.BUDGET_SECONDS
            if self._out_of_states():
                return StopReason.BUDGET_STATES
            self._take_first(self._later, take)
            yield True
        return StopReason.EXHAUSTED

    def _all_taken(self, take: Callable[[Candidate[C], R], None]) -> Iterator[bool]:
        while self._waiting:
            self._take(take)
            yield True

    def _first_of_its_kind(self, place: int, choice: C | None) -> Candidate[C] | None:
        """The choice, if none with its fingerprint was reached before."""
        if choice is None:
            return None
        candidate = Candidate(place, choice, self._searched.fingerprint(choice))
        same_as = self._seen.get(candidate.fingerprint)
        if same_as is None:
            return candidate
        self.reached.pruned += 1
        self._on_pruned(candidate, same_as)
        return None

    def _out_of_states(self) -> bool:
        return self._meter.out_of_states(self._spent + self._under_way)

    def _leave(self, place: int, choice: C | Pause | None) -> None:
        if choice is not None and choice is not AWAIT:
            self.reached.left.append((place, choice))

    def _execute(self, candidate: Candidate[C]) -> None:
        """Begin to execute a choice, unless it is known already that it will be postponed."""
        waits = len(self._later) + len(self._waiting) - self._under_way < MOST_PUT_OFF
        known = waits and self._is_put_off(candidate)
        self._waiting.append(_Execution(candidate, None if known else self._begun(candidate)))
        self._under_way += not known

    def _begun(self, candidate: Candidate[C]) -> Awaited[R]:
        with self._naming(candidate):
            return self._searched.execute(candidate)

    def _take(self, take: Callable[[Candidate[C], R], None]) -> None:
        """Take the result of the choice that has waited longest, or postpone it, by the results before it."""
        first = self._waiting[0]
        if len(self._later) < MOST_PUT_OFF and self._is_put_off(first.candidate):
            self._waiting.popleft()
            self._later.append(first)
        else:
            self._take_first(self._waiting, take)
        self._under_way = sum(each.awaited is not None for each in self._waiting)

    def _take_first(self, executions: deque[_Execution[C, R]], take: Callable[[Candidate[C], R], None]) -> None:
        """Wait for the result of the first of some executions, and hand it on."""
        first = executions[0]
        candidate = first.candidate
        awaited = first.awaited or self._begun(candidate)
        with self._naming(candidate):
            result = awaited(self._meter.left_s)
            if result is None:
                raise OutOfTime
            executions.popleft()
            self._spent += self._cost(candidate, result)
            self.reached.executed += 1
            take(candidate, result)

    @contextmanager
    def _naming(self, candidate: Candidate[C]) -> Iterator[None]:
        try:
            yield
        except (OutOfTime, Stopped, BrokenOff):
            raise
        except Exception as error:
            error.add_note(f"while the search executed {self._searched.describe(candidate.choice)}")
            raise
