"""Stretches of crash points in which nothing persists or is acknowledged: every image is one of the last point's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.states.sweep import count_by_point


@dataclass(frozen=True, slots=True)
class Stretch:
    """Crash points `first` to `last`. An image of an earlier one is an image of the last, in which what was issued in
    between is lost.

    `states`: how many are new at its points; an upper bound unless `exact`.
    """

    first: int
    last: int
    states: int
    exact: bool


def stretches(space: StateSpace) -> Iterator[Stretch]:
    """All of a run, in order."""
    points = space.points
    durable = np.searchsorted(space.graph.durable_from[space.finite], points.event, side="right")
    same = np.ones(max(len(points) - 1, 0), dtype=np.bool_)
    for column in (durable, points.acked, points.begun, points.stdout_bytes):
        same &= column[1:] == column[:-1]
    first = states = 0
    exact = True
    for point, (value, known) in enumerate(count_by_point(space)):
        states, exact = states + value, exact and known
        if point == len(same) or not same[point]:
            yield Stretch(first, point, states, exact)
            first, states, exact = point + 1, 0, True
