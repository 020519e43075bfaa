"""The live line of a run: states, rate, findings and time left. Silent where there is no terminal."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from crashcheck.reports.view.numbers import human, seconds_text
from crashcheck.reports.view.text import line

RATE_WINDOW_S = 5.0


@dataclass(frozen=True, slots=True)
class ProgressState:
    """How far a search is. Times in seconds; None where there is no such budget or count yet."""

    phase: str  # "checking", "minimising", "recording"
    elapsed_s: float
    executed: int = 0
    pruned: int = 0
    failing: int = 0
    findings: int = 0
    feasible: int | None = None
    budget_s: float | None = None
    budget_states: int | None = None


def time_left(state: ProgressState, rate: float) -> float | None:
    """Seconds until the first budget, or the last state, is reached at `rate` states a second; None if unknown."""
    bounds: list[float] = []
    if state.budget_s is not None:
        bounds.append(state.budget_s - state.elapsed_s)
    if rate > 0:
        if state.budget_states is not None:
            bounds.append((state.budget_states - state.executed) / rate)
        rest = state.feasible - state.executed - state.pruned if state.feasible is not None else None
        if rest is not None and rest < 1e12:  # beyond that the states are not what ends the run
            bounds.append(rest / rate)
    return max(0.0, min(bounds)) if bounds else None


def status_line(state: ProgressState, rate: float) -> Text:
    """One line: `checking  412 of 10^77 states  83/s  1 finding  42 s left`."""
    done = state.executed + state.pruned
    text = Text(line(state.phase, 40), "bold")
    scope = f" of {human(state.feasible)}" if state.feasible is not None else ""
    text.append(f"  {human(done)}{scope} states", "default")
    text.append(f"  {rate:,.0f}/s" if rate >= 10 else f"  {rate:.1f}/s", "dim")
    text.append(f"  {human(state.failing)} failing", "red" if state.failing else "dim")
    noun = "finding" if state.findings == 1 else "findings"
    text.append(f"  {human(state.findings)} {noun}", "bold red" if state.findings else "dim")
    left = time_left(state, rate)
    if left is not None:
        text.append(f"  {seconds_text(left)} left", "dim")
    text.no_wrap = True
    text.overflow = "ellipsis"
    return text


class LiveProgress:
    """A context manager that shows the newest `ProgressState`; the line is gone when it ends.

    `update` may be called as often as the caller likes: the terminal is redrawn eight times a second at most.
    """

    def __init__(self, console: Console) -> None:
        self._live: Live | None = None
        self._samples: list[tuple[float, int]] = []
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._spinner = Spinner("dots")

    def __enter__(self) -> LiveProgress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def rate(self, state: ProgressState) -> float:
        """States a second over the last few seconds."""
        self._samples.append((state.elapsed_s, state.executed + state.pruned))
        while len(self._samples) > 2 and self._samples[0][0] < state.elapsed_s - RATE_WINDOW_S:
            self._samples.pop(0)
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end > start else 0.0

    def update(self, state: ProgressState) -> None:
        """Show `state`."""
        if self._live is None:
            return
        grid = Table.grid(padding=(0, 1))
        grid.add_row(self._spinner, status_line(state, self.rate(state)))
        self._live.update(grid)
