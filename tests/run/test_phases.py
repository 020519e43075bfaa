"""How long each phase of a run took."""

from __future__ import annotations

from crashcheck.checker.budget import Progress
from crashcheck.stages.phases import TimedPhases


def test_phases_are_passed_on_and_timed_in_the_order_in_which_they_began() -> None:
    passed: list[tuple[str, Progress | None]] = []
    timed = TimedPhases(lambda phase, progress: passed.append((phase, progress)))
    steps = [("building", None), ("checking", Progress()), ("trying fixes", None), ("checking", Progress())]
    for phase, progress in steps:
        timed.at(phase, progress)
    phases = timed.phases()
    assert passed == steps
    assert [phase.name for phase in phases] == ["building", "checking", "trying fixes"]
    assert all(phase.seconds >= 0 for phase in phases)
