"""A search asks whatever source it is given, and does not know which one of several answers."""

from __future__ import annotations

from pathlib import Path

from crashcheck.checker.budget import Budget, endless
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.checker.search.crash_states import Search
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Exhaustive
from crashcheck.checker.verdicts.kept_verdicts import Above
from crashcheck.checker.verdicts.verdict_source import Asked, Awaited, VerdictSource
from support.checked_worlds import World, two_stores, words

PASSED = Verdict(Outcome.PASS, 0, None, "", False, 0.0)


def every_state(world: World) -> list[CrashState]:
    choices = Exhaustive().plan(world.space, endless).choices()
    return [choice.state for choice in choices if choice is not None]


class SaidToPass(Above):
    """Knows of some states that they pass."""

    notes = ("some are known",)

    def __init__(self, below: VerdictSource, passing: set[bytes]) -> None:
        super().__init__(below)
        self._passing = passing
        self.answered = 0

    def ask(self, asked: Asked) -> Awaited[Verdict]:
        if asked.fingerprint not in self._passing:
            return super().ask(asked)
        self.answered += 1
        return lambda left_s: PASSED


def test_what_an_upper_source_knows_is_not_executed_and_the_rest_is(tmp_path: Path) -> None:
    world = World(tmp_path / "w", words(["false"]), two_stores)
    with world.executor() as executor:
        plain = Search(world.subject, executor, Exhaustive(), Budget()).run()
        fails = world.content.fingerprint(world.space.full(len(world.space.points) - 1))
        every = {world.content.fingerprint(state) for state in every_state(world)}
        source = SaidToPass(executor, every - {fails})
        found = Search(world.subject, source, Exhaustive(), Budget()).run()
    assert plain.states.failing == plain.states.executed == len(every)
    assert (source.answered, found.states.executed, found.states.failing) == (len(every) - 1, len(every), 1)
    assert "some are known" in found.warnings
