"""Fixes of what fails in a script, for the tests of what is proposed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from crashcheck.checker.budget import Budget, Left, endless
from crashcheck.checker.fixes.candidates import Step
from crashcheck.checker.fixes.propose import FixProposer
from crashcheck.checker.results import Edit, Fix, Location
from crashcheck.checker.search.crash_states import Search
from crashcheck.checker.strategies import Exhaustive, Strategy
from support.checked_worlds import ENTRY_SITES, World, words
from support.tracing import TraceBuilder

Propose = Callable[..., list[Fix]]


@pytest.fixture
def propose(tmp_path: Path, clauses: Path) -> Propose:
    """The fixes for what an exhaustive search finds in a script whose check makes the given claims."""

    def search(
        script: Callable[[TraceBuilder], None],
        *claims: str,
        unwritten: int = 0,
        states: int | None = None,
        seconds: float = 60,
        persists: bool = False,
        strategy: Strategy = Exhaustive(),  # noqa: B008
        left: Left = endless,
        **more: object,
    ) -> list[Fix]:
        check = words([str(clauses), "{pool}/p", "{acked}", *claims])
        world = World(tmp_path / "world", check, script, sites=ENTRY_SITES, **more)  # type: ignore[arg-type]

        def chain(row: int) -> tuple[Location, ...]:
            here = world.subject.provenance.of(row)
            return () if here is None else (here,)

        def write(steps: Sequence[Step]) -> tuple[tuple[Edit, ...], str]:
            if any(step.place.line == unwritten for step in steps):
                return (), "a macro"
            return tuple(Edit(s.place.file, s.place.line, s.before, text(s)) for s in steps), ""

        def text(step: Step) -> str:
            fence = step.fence and not (step.flush and persists)
            return "\n".join(["flush"] * step.flush + ["fence"] * fence + ["sync"] * (step.sync is not None))

        with world.executor() as executor:
            exploring = Search(world.subject, executor, Exhaustive(), Budget(states=states))
            exploring.run()
            register, tried = exploring.register, exploring.tried()
            fixes = FixProposer(world.subject, executor, strategy, register, tried, chain, write, left=left)
            return [fixes.propose(bug, seconds) for bug in exploring.register.bugs()]

    return search
