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
    executor: Executor, products: Sequence[tuple[Product | None, Path]], timeout_s: float
) -> list[Explored | None]:
    """The results for some products, whose images are in these folders; None for None.

    All in about the time of one if there are no more than workers.
    """
    begun = [
        None if product is None else (executor.explore(product.point, product.granules, folder, timeout_s), product)
        for product, folder in products
    ]
    return [
        None if each is None else executor.explored(each[0], len(each[1].granules), folder)
        for each, (_, folder) in zip(begun, products, strict=True)
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
