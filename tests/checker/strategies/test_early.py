"""The first states of a long trace do not wait for the ranking of its groups, and do not depend on its duration."""

from __future__ import annotations

import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Budget
from crashcheck.checker.states.space import StateSpace
from crashcheck.checker.strategies import Ranked, strategy
from crashcheck.checker.strategies import ranked as ranked_module
from crashcheck.checker.strategies.plan import Infer, select_states
from crashcheck.interruption import KeepOn
from crashcheck.stages.strategy_setup import early_states
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import KEY, A, B, Inferred, Script, evidence, space_of


@pytest.fixture(autouse=True)
def short_traces_are_long() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranked_module, "LONG_RUN", 1)
        patch.setattr(ranked_module, "EVENTS_A_STATE", 1)
        yield


def two_operations(tmp_path: Path) -> Script:
    script = Script(tmp_path, A, B)
    script.at(1, 0, delta=0)
    script.at(2, 64, delta=64)
    script.persist(0, 128)
    script.at(1, 0, delta=0)
    script.persist(0)
    return script


def waiting_for(gate: threading.Event) -> Infer:
    """Inference that ends only once the gate is open."""

    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        while not gate.wait(0.001):
            keep_on()
        return Inferred((), (), "")

    return infer


@SETTINGS
@given(steps=runs())
def test_with_early_states_every_state_is_still_tested_once(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = script_of(Path(folder), steps)
        space = space_of(script, "px86")
        choices = list(Ranked(script.facts, infer=evidence(), early=4).plan(space).choices())
        assert Counter(choice.state for choice in choices) == Counter(select_states(space, strategy("exhaustive")))


def test_the_first_states_come_while_invariants_are_inferred(tmp_path: Path) -> None:
    script, gate = two_operations(tmp_path), threading.Event()
    plan = Ranked(script.facts, infer=waiting_for(gate), early=3).plan(space_of(script))
    choices = plan.choices()
    assert [next(choices).family for _ in range(3)] == ["early"] * 3
    assert plan.groups == ()
    gate.set()
    assert "early" not in {choice.family for choice in choices}
    assert plan.groups


def test_the_order_does_not_depend_on_how_long_ranking_takes(tmp_path: Path) -> None:
    script = two_operations(tmp_path)
    slow, gate = [], threading.Event()
    for choice in Ranked(script.facts, infer=waiting_for(gate), early=3).plan(space_of(script)).choices():
        slow.append(choice)
        if len(slow) == 3:
            gate.set()
    open_gate = threading.Event()
    open_gate.set()
    quick = Ranked(script.facts, infer=waiting_for(open_gate), early=3).plan(space_of(script)).choices()
    assert list(quick) == slow


def test_a_search_that_ends_before_its_groups_are_ranked_says_so_and_stops_ranking(tmp_path: Path) -> None:
    script, gate = two_operations(tmp_path), threading.Event()
    begun, ended = threading.Event(), threading.Event()
    waiting = waiting_for(gate)

    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        begun.set()
        try:
            return waiting(found, facts, keep_on=keep_on)  # type: ignore[return-value]
        finally:
            ended.set()

    plan = Ranked(script.facts, infer=infer, early=3).plan(space_of(script))
    choices = plan.choices()
    assert [next(choices).family for _ in range(2)] == ["early"] * 2
    assert begun.wait(60)
    choices.close()  # type: ignore[attr-defined]
    assert ended.wait(60)
    assert [note.partition(":")[0] for note in plan.notes] == ["the search ended before the groups were ranked"]


def test_what_ends_the_ranking_ends_the_search(tmp_path: Path) -> None:
    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        raise ZeroDivisionError

    script = two_operations(tmp_path)
    with pytest.raises(ZeroDivisionError):
        list(Ranked(script.facts, infer=infer, early=3).plan(space_of(script)).choices())


def test_early_states_are_few_where_the_budget_counts_states() -> None:
    assert early_states(Budget(states=80)) == 10
    assert early_states(Budget(seconds=60)) == early_states(Budget()) == early_states(Budget(states=100_000))


def test_a_short_trace_has_no_early_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranked_module, "LONG_RUN", 1000)
    space: StateSpace = space_of(two_operations(tmp_path))
    assert "early" not in {choice.family for choice in Ranked(early=3).plan(space).choices()}


@pytest.mark.parametrize("sites", [100, 900])
def test_a_short_trace_of_a_program_with_many_sites_has_early_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sites: int
) -> None:
    monkeypatch.setattr(ranked_module, "LONG_RUN", 900)
    monkeypatch.setattr(ranked_module, "EVENTS_A_STATE", 300)
    script = two_operations(tmp_path)
    script.trace.unit(KEY + 1, sites, "/bin/library.so")
    choices = Ranked(early=100).plan(space_of(script)).choices()
    assert sum(choice.family == "early" for choice in choices) == (3 if sites == 900 else 0)
