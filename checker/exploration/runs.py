"""Explores products, several at once, and picks the explored runs that fail."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from crashcheck.checker.exploration.product import Product
from crashcheck.checker.oracles.executor import Executor
from crashcheck.checker.results import Verdict
from crashcheck.runtime.exploration import End, Explored

_FAILING = 4  # ends of a product that are examined


def explored_runs(
    executor: Executor,
    products: Sequence[tuple[Product | None, Path]],
    timeout_s: float,
    until_s: float | None = None,
) -> list[Explored | None]:
    """The results for some products, whose images are in these folders; None for None. Times as in `Executor.explore`.

    All in about the time of one if there are no more than workers.
    """
    begun = [
        None if one is None else executor.explore(one.point, one.granules, folder, timeout_s, until_s)
        for one, folder in products
    ]
    return [
        None if one is None or each is None else executor.explored(each, len(one.granules), folder)
        for each, (one, folder) in zip(begun, products, strict=True)
    ]


def failing_ends(executor: Executor, explored: Explored, point: int, folder: Path) -> list[tuple[End, Verdict]]:
    """The first ends of what was explored in `folder` that fail, with their verdicts."""
    failing: list[tuple[End, Verdict]] = []
    for end in explored.ends:
        verdict = executor.judged(end, point, folder)
        if not verdict.passed:
            failing.append((end, verdict))
        if len(failing) == _FAILING:
            break
    return failing
