"""The phases of a run: passed on to whoever shows progress, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from crashcheck.checker.budget import Progress
from crashcheck.checker.results import Phase
from crashcheck.config import Config

OnProgress = Callable[[str, Progress | None], None]


class TimedPhases:
    """Passes progress on, and measures how long each phase takes."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress
        self._seconds: dict[str, float] = {}
        self._phase = ""
        self._since = 0.0

    def at(self, phase: str, progress: Progress | None) -> None:
        """A phase begins or continues."""
        if phase != self._phase:
            self._end()
            self._phase = phase
        self._on_progress(phase, progress)

    def phases(self) -> tuple[Phase, ...]:
        """All of them, the present one up to now."""
        self._end()
        return tuple(Phase(name, seconds) for name, seconds in self._seconds.items())

    def _end(self) -> None:
        now = time.monotonic()
        if self._phase:
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._since
        self._since = now


def left_of(config: Config, began: float) -> Config:
    """The configuration with the seconds that are left of its budget. `began`: when what it spent on began."""
    seconds = config.budget.seconds
    if seconds is None:
        return config
    left_s = max(0.0, seconds - (time.monotonic() - began))
    return replace(config, budget=replace(config.budget, seconds=left_s))
