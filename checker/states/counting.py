"""Counts the crash states, in all and by stretch of crash points; counting can be paused and continued.

In a *stretch* of crash points nothing becomes durable and nothing is acknowledged: each of its images is one of the
last point's.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from crashcheck.analyzer.arrays import fresh_rows
from crashcheck.checker.results import COUNTED
from crashcheck.checker.states.partial_order import COUNT_BUDGET
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.states.sweep import Sweep
from crashcheck.interruption import KeepOn, always

_BETWEEN_PAUSES = 64  # granules: some are counted in milliseconds


@dataclass(frozen=True, slots=True)
class Feasible:
    """How many distinct crash states there are; a bound, named in `note`, unless `exact`."""

    value: int
    exact: bool
    note: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """Crash points `first` to `last`. An image of an earlier one is an image of the last, in which what was issued in
    between is lost.

    `states`: how many are new at its points; an upper bound where they take long to count.
    """

    first: int
    last: int
    states: int


class StateCount:
    """Counts the states of a run, crash point by crash point."""

    def __init__(self, space: StateSpace) -> None:
        self._last = _ends_of_stretches(space)
        self._by_point = count_by_point(space)
        self._points = len(space.points)
        self._counted = 0  # points
        self._bounded = 0  # of these, with an upper bound
        self._total = 0
        self._states: list[int] = []  # of each stretch that is counted
        self._since = 0  # the total where the present one began

    def advance(self, keep_on: KeepOn = always) -> None:
        """Count on to the end, or until `keep_on` raises: then the next call continues."""
        for counted in self._by_point:
            if counted is None:
                keep_on()
                continue
            states, exact = counted
            self._total += states
            self._bounded += not exact
            if self._counted == self._last[len(self._states)]:
                self._states.append(self._total - self._since)
                self._since = self._total
            self._counted += 1
            keep_on()

    @property
    def stretches(self) -> Iterator[Stretch]:
        """Those that are counted, in order."""
        first = 0
        for last, states in zip(self._last, self._states, strict=False):
            yield Stretch(first, last, states)
            first = last + 1

    def stretch_at(self, point: int) -> bytes:
        """A name of the stretch that a crash point is in."""
        return b"%d" % bisect_left(self._last, point)

    def feasible(self) -> Feasible:
        """All states, or those that are counted."""
        notes = []
        if self._counted < self._points:
            notes.append(f"only those of the first {self._counted:,} of {self._points:,} {COUNTED}")
        if self._bounded:
            notes.append(
                f"upper bound: at {self._bounded} crash points the ideals of one granule take more than {COUNT_BUDGET} "
                "steps to count and are bounded by the product over a chain cover"
            )
        return Feasible(self._total, not notes, "; ".join(notes))


def count_states(space: StateSpace) -> Feasible:
    """Count the distinct states over all points."""
    count = StateCount(space)
    count.advance()
    return count.feasible()


def _ends_of_stretches(space: StateSpace) -> list[int]:
    """The last point of each stretch."""
    points = space.points
    durable = np.searchsorted(space.graph.durable_from[space.finite], points.event, side="right")
    begins = np.flatnonzero(fresh_rows(durable, points.acked, points.begun, points.stdout_bytes))
    return [*(begins[1:] - 1).tolist(), len(points) - 1]


def count_by_point(space: StateSpace) -> Iterator[tuple[int, bool] | None]:
    """For each crash point: how many states are new there, and whether that is exact rather than an upper bound.

    In between, None where the count may be paused: one point of a long run may have granules for seconds.
    """
    product = _Product()
    sweep = Sweep(space)
    while sweep.advance():
        yield from product.update(sweep, sweep.removed)
        before_new, before_inexact = product.value, product.inexact
        yield from product.update(sweep, sweep.add())
        if space.points.acknowledged_more[sweep.point] or sweep.all_new:
            yield product.value, not product.inexact
        elif not sweep.has_new:
            yield 0, True
        elif product.inexact or before_inexact:
            yield product.value, False  # the difference of two bounds bounds nothing
        else:
            yield product.value - before_new, True


class _Product:
    """The number of ideals at the sweep's point: the product over the granules that have something pending."""

    def __init__(self) -> None:
        self.value = 1
        self.inexact = 0  # granules whose number is an upper bound
        self._by_granule: dict[int, tuple[int, bool]] = {}

    def update(self, sweep: Sweep, changed: Iterable[int]) -> Iterator[None]:
        """Count the changed granules again, with a pause after some of them."""
        for number, granule in enumerate(changed, 1):
            if not number % _BETWEEN_PAUSES:
                yield
            old, old_exact = self._by_granule.pop(granule, (1, True))
            ideals = sweep.ideals(granule)
            new, exact = ideals.count() if ideals is not None else (1, True)
            if ideals is not None:
                self._by_granule[granule] = (new, exact)
            self.value = self.value // old * new
            self.inexact += (not exact) - (not old_exact)
