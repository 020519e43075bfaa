"""Strategies, one file per strategy, found by name: which crash states to test, and in which order.

Returns a `Plan` for a state space: `Choice`s, each a state and why it is tested, and the groups that they test.

Other rooms import `first`, `plain`, `plan` and `representative`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from crashcheck.checker.strategies.bounded import Bounded
from crashcheck.checker.strategies.exhaustive import Exhaustive
from crashcheck.checker.strategies.pathfinder import Pathfinder
from crashcheck.checker.strategies.plan import Choice, Plan, Planned, Strategy
from crashcheck.checker.strategies.random_ideals import Random
from crashcheck.checker.strategies.ranked import Ranked
from crashcheck.checker.strategies.witcher import Witcher
from crashcheck.errors import CrashcheckError

REGISTRY: dict[str, Callable[..., Strategy]] = {
    "ranked": Ranked,
    "pathfinder": Pathfinder,
    "witcher": Witcher,
    "bounded": Bounded,
    "exhaustive": Exhaustive,
    "random": Random,
}


def strategy(name: str, **options: Any) -> Strategy:
    """The strategy of that name. Raises CrashcheckError unknown-strategy, bad-strategy-option."""
    if name not in REGISTRY:
        raise CrashcheckError(
            "unknown-strategy",
            f"unknown strategy {name!r}, expected one of {', '.join(sorted(REGISTRY))}",
            "Set [strategy] name.",
        )
    try:
        return REGISTRY[name](**options)
    except (TypeError, ValueError) as error:
        raise CrashcheckError(
            "bad-strategy-option", f"strategy {name!r} with {options}: {error}", "Correct [strategy]."
        ) from None


__all__ = [
    "REGISTRY",
    "Bounded",
    "Choice",
    "Exhaustive",
    "Pathfinder",
    "Plan",
    "Planned",
    "Random",
    "Ranked",
    "Strategy",
    "Witcher",
    "strategy",
]
