"""Litmus tests: a name, the rule of crash-model.md that it pins down, a program, and exactly what may survive.

`watch` lists what is read from a surviving image: an offset in file "a" (its byte), "size", "exists", or
"acked". `expected` is the set of all combinations that any crash may leave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from crashcheck.analyzer.persistence import Options
from support.tracing import TraceBuilder

X, Z, W = 0, 8, 16  # one cache line
Y = 64  # another line, the same page
P, Q = 4096, 8192  # other pages

Watch = tuple[int | str, ...]
ALL = {(0, 0), (0, 1), (1, 0), (1, 1)}
IN_ORDER = {(0, 0), (1, 0), (1, 1)}


@dataclass(frozen=True)
class Litmus:
    name: str
    model: str
    rule: str
    watch: Watch
    program: Callable[[TraceBuilder], object]
    expected: frozenset[tuple[int, ...]]
    options: Options
    size: int  # of file "a" at first; -1: it does not exist


LITMUS: list[Litmus] = []


def litmus(
    model: str,
    rule: str,
    watch: Watch,
    expected: set[tuple[int, ...]],
    options: Options | None = None,
    size: int = 3 * 4096,
) -> Callable[[Callable[[TraceBuilder], object]], Callable[[TraceBuilder], object]]:
    def add(program: Callable[[TraceBuilder], object]) -> Callable[[TraceBuilder], object]:
        name = f"{model}-{program.__name__.replace('_', '-')}"
        LITMUS.append(Litmus(name, model, rule, watch, program, frozenset(expected), options or Options(), size))
        return program

    return add


def one(t: TraceBuilder, offset: int, value: int = 1) -> None:
    t.store("a", offset, 8, value)
