"""Calls of nodes that are named, where that is asked for: each is a place in the trace of its machine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from crashcheck.runtime.nodes.machines import Call, NameCalls
from crashcheck.runtime.seal import seal


class PlacedCalls:
    """The calls of one execution, numbered from 1. `name`: names those of a trace."""

    def __init__(self, name: NameCalls) -> None:
        # constant
        self._name = name
        # changing
        self._calls: list[tuple[Path, Call]] = []
        self._next = 0  # the call that the next event is about

    def called(self, trace: Path, call: Call) -> None:
        """Take note of the call that the next event is about."""
        self._calls.append((trace, call))
        self._next = len(self._calls)

    def take(self) -> int:
        """The number of the call of this event; 0: it is of none that is known."""
        number, self._next = self._next, 0
        return number

    def named(self) -> Mapping[int, tuple[str, ...]]:
        """The stack of each call. Nobody may write the traces any more."""
        found: dict[int, tuple[str, ...]] = {}
        for trace in dict.fromkeys(trace for trace, _ in self._calls):
            seal(trace)
            numbers = [number for number, (of, _) in enumerate(self._calls, 1) if of == trace]
            stacks = self._name(trace, [self._calls[number - 1][1] for number in numbers])
            found.update(zip(numbers, stacks, strict=True))
        return found
