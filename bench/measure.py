"""Repeated timing, in which what is compared takes turns, because the speed of a machine drifts."""

from __future__ import annotations

import math
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path


class CannotMeasure(RuntimeError):
    """This part needs something that is missing; the message names it."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Of several repetitions, in the unit that the figure's name ends with.

    From `low` to `high`: where the median of the distribution is, in 95 of 100 sittings (ranks of a binomial
    distribution of one half; of fewer than six repetitions, the least and the most).
    """

    median: float
    least: float
    most: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        ordered = sorted(values)
        rank, beyond = 0, 0.5 ** len(values)
        while beyond <= 0.025:
            rank += 1
            beyond += math.comb(len(values), rank) * 0.5 ** len(values)
        rank = max(rank - 1, 0)
        return cls(statistics.median(values), ordered[0], ordered[-1], ordered[rank], ordered[-1 - rank])

    def json(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in asdict(self).items()}

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.least:.3g}–{self.most:.3g})"


def interleaved(repetitions: int, ways: Mapping[str, Callable[[], float]], warm: bool = True) -> dict[str, list[float]]:
    """What each way returned, repetition by repetition; a first round is thrown away if `warm`."""
    values: dict[str, list[float]] = {name: [] for name in ways}
    for repetition in range(repetitions + warm):
        for name, way in ways.items():
            value = way()
            if repetition >= warm:
                values[name].append(value)
    return values


def ratio(values: Mapping[str, Sequence[float]], name: str, base: str) -> Spread:
    """`name` over `base`, each repetition by its own neighbour."""
    return Spread.of([one / other for one, other in zip(values[name], values[base], strict=True)])


def run(words: Sequence[str | Path], cwd: Path | None = None) -> str:
    """Standard output of a command. Raises CannotMeasure with its output if it fails."""
    result = subprocess.run(words, cwd=cwd, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if result.returncode != 0:
        output = (result.stderr or result.stdout)[-2000:]
        raise CannotMeasure(f"`{' '.join(map(str, words))}` ended with {result.returncode}: {output}")
    return result.stdout


@contextmanager
def scratch(megabytes: int) -> Iterator[Path]:
    """A folder in memory if there is room for `megabytes`, else where temporary files go."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > megabytes << 20
    with tempfile.TemporaryDirectory(prefix="crashcheck-bench-", dir=memory if roomy else None) as folder:
        yield Path(folder)
