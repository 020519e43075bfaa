"""The crash point by which a state is named, and the acknowledgements between crash points."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

from crashcheck.analyzer.persistence import build
from crashcheck.analyzer.persistence.pieces import IN_ORDER
from crashcheck.checker.states import space as states
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.states.signature import SiteSignatures
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.states.sweep import Sweep
from support.examples_tried import examples
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import space_of
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


@pytest.mark.parametrize("few", [0, 64], ids=["as arrays", "one by one"])
@pytest.mark.parametrize("model", ["px86", "eadr", "page-cache"])
@settings(SETTINGS, max_examples=examples(15))
@given(steps=runs())
def test_a_state_has_one_name_whether_what_persisted_is_given_or_what_was_lost(
    model: str, few: int, steps: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "_FEW", few)
        space = space_of(script_of(Path(folder), steps), model)
        canonical = CanonicalStates(space)
        sites = np.arange(len(space.graph)) % 3
        signatures = SiteSignatures(space, lambda: sites)
        for point in range(len(space.points)):
            pending = space.pending(point)
            assert pending == tuple(space.pending_rows(point).tolist())
            for id_ in pending:
                for state in (space.drop(point, [id_]), space.keep(point, [id_])):
                    kept, lost = set(space.persisted(state)), set(space.lost(state))
                    assert kept | lost == set(pending)
                    name = canonical.state(point, kept)
                    assert name == canonical.lacking(point, lost) == canonical.first(state)
                    other = CrashState(point, not state.dropped, tuple(sorted(kept if state.dropped else lost)))
                    assert signatures.of(state) == signatures.of(other)
                since = int(space.graph.event[id_])
                older = [other for other in pending if space.graph.event[other] < since]
                for more in ((), (id_,), pending[-1:]):
                    expected = canonical.first(space.keep(point, (*older, *more)))
                    assert canonical.with_only(point, more, since) == expected


@pytest.mark.parametrize("model", ["px86", "eadr", "page-cache"])
@settings(SETTINGS, max_examples=examples(15))
@given(steps=runs())
def test_pieces_that_are_unordered_neither_need_another_pending_one_nor_are_needed(
    model: str, steps: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = space_of(script_of(Path(folder), steps), model)
        sweep = Sweep(space)
        for point in range(len(space.points)):
            rows = space.pending_rows(point)
            pending = tuple(rows.tolist())
            needs = dict(zip(pending, space.graph.direct_before(pending), strict=True))
            bound = {id_ for pair in ((one, two) for one in pending for two in needs[one]) for id_ in pair}
            free = set(rows[sweep.unordered(rows)].tolist())
            assert free.isdisjoint(bound)
            if model == "px86" and (space.graph.mode == IN_ORDER).all():
                assert free == set(pending) - bound
