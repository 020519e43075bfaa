"""The live line of a run: states, rate, findings and time left. Without a terminal, a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from crashcheck.checker.budget import Progress
from crashcheck.config import BudgetConfig
from crashcheck.reports.view.numbers import human, seconds_text
from crashcheck.reports.view.text import line

RATE_WINDOW_S = 5.0
LOG_EVERY_S = 10.0


def time_left(done: Progress, budget: BudgetConfig, rate: float) -> float | None:
    """Seconds until the budget ends at `rate` states a second; None if unknown."""
    bounds: list[float] = []
    if budget.seconds is not None:
        bounds.append(budget.seconds - done.elapsed_s)
    if rate > 0 and budget.states is not None:
        bounds.append((budget.states - done.executed) / rate)
    return max(0.0, min(bounds)) if bounds else None


def status_line(phase: str, done: Progress, budget: BudgetConfig, rate: float) -> Text:
    """One line: `checking  412 states  83/s  7 failing  1 finding  42 s left`."""
    text = Text(line(phase, 40), "bold")
    text.no_wrap = True
    text.overflow = "ellipsis"
    if done.steps:
        text.append(f"  {human(done.step)} of {human(done.steps)} events", "default")
        return text
    text.append(f"  {human(done.executed + done.pruned + done.explored)} states", "default")
    text.append(f"  {rate:,.0f}/s" if rate >= 10 else f"  {rate:.1f}/s", "dim")
    text.append(f"  {human(done.failing)} failing", "red" if done.failing else "dim")
    noun = "finding" if done.findings == 1 else "findings"
    text.append(f"  {human(done.findings)} {noun}", "bold red" if done.findings else "dim")
    if done.explaining:
        text.append("  explaining a failure", "dim")
    left = time_left(done, budget, rate)
    if left is not None:
        text.append(f"  {seconds_text(left)} left", "dim")
    return text


def log_line(phase: str, done: Progress | None, budget: BudgetConfig, rate: float, phase_s: float) -> str:
    """One line of a log: the phase, how long it has taken so far, and how far the search is if one runs."""
    words = status_line(phase, done, budget, rate).plain if done is not None else line(phase, 40)
    return f"crashcheck: {words}  ({seconds_text(phase_s)} in this phase)"


def progress_console() -> Console:
    """Standard error. Its line is redrawn on a terminal only: FORCE_COLOR asks for colours, no more."""
    return Console(stderr=True, highlight=False, force_terminal=None if sys.stderr.isatty() else False)


class LiveProgress:
    """A context manager that shows how far a run is; on a terminal the line is gone when it ends.

    `update` may be called as often as the caller likes: the terminal is redrawn eight times a second at most.
    """

    def __init__(
        self,
        console: Console,
        budget: BudgetConfig,
        *,
        log_every_s: float = LOG_EVERY_S,
        first_log_s: float = LOG_EVERY_S,
    ) -> None:
        self._console = console
        self._log_every_s = log_every_s
        self._first_log_s = min(first_log_s, log_every_s)
        self._logger: threading.Thread | None = None
        self._over = threading.Event()
        self._latest: tuple[str, Progress | None, float] = ("starting", None, 0.0)  # the last with its rate
        self._phase_began = time.monotonic()
        self._budget = budget
        self._live: Live | None = None
        self._samples: list[tuple[float, int]] = []
        if console.is_terminal and not console.is_dumb_terminal:
            self._live = Live(console=console, refresh_per_second=8, transient=True)
        self._spinner = Spinner("dots")

    def __enter__(self) -> LiveProgress:
        if self._live is not None:
            self._live.start()
        else:
            self._logger = threading.Thread(target=self._log, daemon=True)
            self._logger.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        if self._logger is not None:
            self._over.set()
            self._logger.join()

    def rate(self, done: Progress) -> float:
        """States a second over the last few seconds."""
        self._samples.append((done.elapsed_s, done.executed + done.pruned))
        while len(self._samples) > 2 and self._samples[0][0] < done.elapsed_s - RATE_WINDOW_S:
            self._samples.pop(0)
        (start, first), (end, last) = self._samples[0], self._samples[-1]
        return (last - first) / (end - start) if end > start else 0.0

    def update(self, phase: str, done: Progress | None) -> None:
        """Show the phase ("recording", "checking"), and how far a search is if one runs."""
        if phase != self._latest[0]:
            self._phase_began = time.monotonic()
        rate = self.rate(done) if done is not None else 0.0
        self._latest = phase, done, rate
        if self._live is None:
            return
        grid = Table.grid(padding=(0, 1))
        grid.add_row(self._spinner, status_line(phase, done or Progress(), self._budget, rate))
        self._live.update(grid)

    def _log(self) -> None:
        wait_s = self._first_log_s
        while not self._over.wait(wait_s):
            wait_s = self._log_every_s
            phase, done, rate = self._latest
            text = log_line(phase, done, self._budget, rate, time.monotonic() - self._phase_began)
            self._console.print(text, markup=False, soft_wrap=True)
