"""Likely invariants and crash states that a test asks for by hand, in place of inferred ones."""

from __future__ import annotations

from dataclasses import dataclass

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.persistence import Options, build
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies.plan import Infer
from crashcheck.interruption import KeepOn
from support.scripts import Script, site

A = site("pair.a", ("pair", "a", 0, 8), line=1)
B = site("pair.b", ("pair", "b", 64, 8), line=2)
X = site("other.x", ("other", "x", 0, 8), line=3)
Y = site("third.y", ("third", "y", 0, 8), line=4)


@dataclass(frozen=True)
class Wanted:
    """A query; also the invariant that it violates."""

    persisted: tuple[int, ...]
    unpersisted: tuple[int, ...]
    event: int = 0
    invariant: int = 1
    signature: object = 1
    held: int = 9
    violated: int = 1

    @property
    def number(self) -> int:
        return self.invariant

    @property
    def text(self) -> str:
        return f"invariant {self.invariant}"


@dataclass(frozen=True)
class Inferred:
    invariants: tuple[Wanted, ...]
    queries: tuple[Wanted, ...]
    note: str = ""


def evidence(*wanted: Wanted) -> Infer:
    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        return Inferred(tuple({each.number: each for each in wanted}.values()), wanted)

    return infer


def space_of(script: Script, model: str = "px86") -> StateSpace:
    return StateSpace(build(script.trace.trace(), model, Options()))
