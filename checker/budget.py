"""What a search may spend: seconds and states, with a little over for explaining what was found last."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from crashcheck.errors import CrashcheckError
from crashcheck.interruption import KeepOn, always


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one search; None: no limit. `fixes_s`: of the seconds, those kept for fixes once something is found.

    `after_finding`: states from the newest finding to the end; more than are under way at once.
    """

    seconds: float | None = None
    states: int | None = None
    fixes_s: float = 0.0
    after_finding: int | None = None


class OutOfTime(Exception):
    """The seconds are spent."""


class BrokenOff(CrashcheckError):
    """The machine ends a search; what was found so far stays valid."""


OVERRUN = 0.1  # of the budget's seconds, that explaining, counting and reporting may take beyond them
_SHOWN_S = 0.1  # from one progress to the next

Left = Callable[[], float | None]  # seconds that are left of a budget; None without one


endless: Left = always  # where nothing limits the seconds, None is left of them


def within(left: Left, share: float = 1.0) -> KeepOn:
    """Raises OutOfTime when called after `share` of the seconds that are left now."""
    begun = left()
    if begun is None:
        return always
    stop_s = begun * (1 - share)

    def keep_on() -> None:
        now = left()
        if now is not None and now <= stop_s:
            raise OutOfTime

    return keep_on


def for_seconds(seconds: float, clock: Callable[[], float] = time.monotonic) -> KeepOn:
    """Raises OutOfTime when called more than so many seconds from now."""
    end = clock() + seconds

    def keep_on() -> None:
        if clock() > end:
            raise OutOfTime

    return keep_on


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search is, or with `steps` what is prepared for one."""

    elapsed_s: float = 0.0
    executed: int = 0
    pruned: int = 0
    explored: int = 0  # states that explored runs decided, or earlier runs
    failing: int = 0
    findings: int = 0
    explaining: bool = False  # a state that failed, by further runs of the check
    step: int = 0
    steps: int = 0  # in all; 0: this is a search


class Counting:
    """How far a phase is that goes through a run: shown, and ended when its time is over."""

    def __init__(self, show: Callable[[Progress], None] = lambda progress: None, keep_on: KeepOn = always) -> None:
        self._show = show
        self._keep_on = keep_on
        self._began = time.monotonic()
        self._shown = self._began
        self._step = self._steps = 0

    def at(self, step: int, steps: int) -> None:
        """So many of all steps are done. Raises what `keep_on` raises."""
        self._step, self._steps = step, steps
        now = time.monotonic()
        if now - self._shown >= _SHOWN_S:
            self._shown = now
            self._show(Progress(now - self._began, step=step, steps=steps))
        self._keep_on()

    @property
    def text(self) -> str:
        return f"{self._step:,} of {self._steps:,} events"


class Meter:
    """A budget being spent. Probes (runs that explain a failing state) may overrun the seconds a little."""

    def __init__(self, budget: Budget, clock: Callable[[], float] = time.monotonic) -> None:
        self._budget = budget
        self._clock = clock
        self._started = clock()
        self._kept_s = 0.0  # for what follows the search
        self._most_states = budget.states

    def found(self, executed: int) -> None:
        """A finding is new, after so many states: the search ends so much earlier that fixes can be tried within the
        budget, and with `after_finding` unless another one follows."""
        self._kept_s = self._budget.fixes_s
        states, after = self._budget.states, self._budget.after_finding
        if after is not None:
            self._most_states = executed + after if states is None else min(states, executed + after)

    @property
    def elapsed_s(self) -> float:
        return self._clock() - self._started

    @property
    def left_s(self) -> float | None:
        seconds = self._budget.seconds
        return None if seconds is None else max(0.0, seconds - self._kept_s - self.elapsed_s)

    def left(self) -> float | None:
        """`left_s` as a function: what asks for it again and again need not hold whoever has the meter."""
        return self.left_s

    @property
    def explaining_left_s(self) -> float | None:
        """Until OVERRUN beyond the budget's end: a finding without an explanation helps nobody."""
        seconds = self._budget.seconds
        return None if seconds is None else max(0.0, seconds * (1 + OVERRUN) - self.elapsed_s)

    def explaining_left(self) -> float | None:
        """`explaining_left_s` as a function, as `left`."""
        return self.explaining_left_s

    def reporting_left(self) -> float | None:
        """As `explaining_left_s`, but half of the time beyond the end is left to the steps after the search."""
        seconds = self._budget.seconds
        return None if seconds is None else max(0.0, seconds * (1 + OVERRUN / 2) - self.elapsed_s)

    @property
    def in_last_quarter(self) -> bool:
        """Whether less than a quarter of the seconds is left."""
        left_s, seconds = self.left_s, self._budget.seconds
        return left_s is not None and seconds is not None and left_s < seconds / 4

    def out_of_seconds(self) -> bool:
        return self.left_s == 0.0

    def out_of_states(self, executed: int) -> bool:
        return self._most_states is not None and executed >= self._most_states
