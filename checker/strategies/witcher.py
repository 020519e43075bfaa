"""Only the states that violate a likely invariant, occurrence by occurrence (Witcher, 4.3 and 4.4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crashcheck.analyzer.behaviours import find_behaviours
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Left, OutOfTime, endless, within
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies.plan import NOTHING, Choice, Chosen, Decided, Infer, Planned
from crashcheck.checker.strategies.violations import states_of


@dataclass(frozen=True, slots=True)
class Witcher:
    """For each query of `infer` that the model allows, the smallest and the largest state; each state once."""

    facts: Facts | None = None
    infer: Infer | None = None
    name: str = "witcher"

    def plan(self, space: StateSpace, left: Left = endless, decided: Decided = NOTHING) -> WitcherPlan:
        return WitcherPlan(self, space, left)


class WitcherPlan:
    """One search; invariants are inferred when it is first asked."""

    groups: tuple[Planned, ...] = ()
    whole = False

    def __init__(self, options: Witcher, space: StateSpace, left: Left) -> None:
        self._options = options
        self._space = space
        self._keep_on = within(left)
        self._note = ""

    @property
    def notes(self) -> tuple[str, ...]:
        return (self._note,) if self._note else ()

    def choices(self) -> Iterator[Choice]:
        options = self._options
        if options.infer is None:
            return
        try:
            found = find_behaviours(self._space.graph, options.facts)
            evidence = options.infer(found, options.facts, keep_on=self._keep_on)
        except OutOfTime:
            self._note = "no state was executed: the budget's seconds ended while likely invariants were inferred"
            raise
        self._note = evidence.note
        canonical, chosen = CanonicalStates(self._space), Chosen()
        for query in evidence.queries:
            self._keep_on()
            for state in states_of(canonical, query):
                choice = Choice(state, 0, "invariant")
                if chosen.new(choice, None):
                    yield choice
