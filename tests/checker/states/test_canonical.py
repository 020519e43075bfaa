"""The crash point by which a state is named, and the acknowledgements between crash points."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.persistence import build
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.space import StateSpace
from support.tracing import TraceBuilder


def test_the_acknowledgement_after_an_event_is_the_next_one_or_the_end_of_the_trace(tmp_path: Path) -> None:
    t = TraceBuilder(tmp_path / "trace.cct")
    t.file("a", size=4096)  # event 0
    t.store("a", 0, 8, 1)
    t.end(1)
    t.store("a", 64, 8, 1)
    t.output(10)
    t.store("a", 128, 8, 1)
    canonical = CanonicalStates(StateSpace(build(t.trace(), "px86")))
    assert [canonical.acknowledgement_after(event) for event in range(6)] == [2, 2, 4, 4, 6, 6]
