"""How many distinct crash states a run allows, without listing them.

Over a run of points with equal acknowledgements each ideal counts once (StateSpace): at point k there are
ideals(D_k, U_k) - ideals(D_k, U_(k-1)) new ones, where D is what is durable and U what was issued. Granules are
independent, so that the ideals of a point are a product over its granules, kept up to date from point to point.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from crashcheck.checker.states.ideals import COUNT_BUDGET
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.states.sweep import Sweep


@dataclass(frozen=True, slots=True)
class Feasible:
    """How many distinct crash states there are; an upper bound, named in `note`, unless `exact`."""

    value: int
    exact: bool
    note: str


def count_states(space: StateSpace) -> Feasible:
    """Count the distinct states over all points."""
    total, bounded = 0, 0
    product = _Product()
    sweep = Sweep(space)
    while sweep.advance():
        product.update(sweep, sweep.removed)
        before_new, before_inexact = product.value, product.inexact
        product.update(sweep, sweep.add())
        if space.points.acknowledged_more[sweep.point] or sweep.all_new:
            total += product.value
            bounded += product.inexact > 0
        elif not sweep.has_new:
            continue
        elif product.inexact or before_inexact:
            total += product.value  # the difference of two bounds bounds nothing
            bounded += 1
        else:
            total += product.value - before_new
    if not bounded:
        return Feasible(total, True, "")
    return Feasible(
        total,
        False,
        f"upper bound: at {bounded} crash points the ideals of one granule take more than {COUNT_BUDGET} steps "
        "to count and are bounded by the product over a chain cover",
    )


class _Product:
    """The number of ideals at the sweep's point: the product over the granules that have something pending."""

    def __init__(self) -> None:
        self.value = 1
        self.inexact = 0  # granules whose number is an upper bound
        self._by_granule: dict[int, tuple[int, bool]] = {}

    def update(self, sweep: Sweep, changed: Iterable[int]) -> None:
        """Count the changed granules again."""
        for granule in changed:
            old, old_exact = self._by_granule.pop(granule, (1, True))
            ideals = sweep.ideals(granule)
            new, exact = ideals.count() if ideals is not None else (1, True)
            if ideals is not None:
                self._by_granule[granule] = (new, exact)
            self.value = self.value // old * new
            self.inexact += (not exact) - (not old_exact)
