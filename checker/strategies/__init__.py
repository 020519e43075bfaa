"""Which crash states to look at, and in which order: a file each, found by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from crashcheck.checker.states import CrashState, StateSpace
from crashcheck.checker.strategies.bounded import Bounded
from crashcheck.checker.strategies.exhaustive import Exhaustive
from crashcheck.checker.strategies.pathfinder import Pathfinder
from crashcheck.errors import CrashcheckError


class Strategy(Protocol):
    """A selection of crash states. Each state is given once; what it would cost to go on is paid on demand."""

    @property
    def name(self) -> str: ...

    def states(self, space: StateSpace) -> Iterator[CrashState]: ...


REGISTRY: dict[str, Callable[..., Strategy]] = {
    "exhaustive": Exhaustive,
    "bounded": Bounded,
    "pathfinder": Pathfinder,
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


__all__ = ["REGISTRY", "Bounded", "Exhaustive", "Pathfinder", "Strategy", "strategy"]
