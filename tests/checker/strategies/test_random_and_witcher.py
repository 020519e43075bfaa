"""Selections that the ranked search is compared with: at random, and violating states of invariants alone."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.invariants import StateQuery
from crashcheck.checker.states.canonical import CanonicalStates
from crashcheck.checker.strategies import Random, Witcher, strategy, violations
from crashcheck.checker.strategies.plan import select_states
from crashcheck.checker.strategies.violations import states_of, violating
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import A, B, Script, Wanted, evidence, site, space_of
from support.worlds import deviation


@pytest.mark.parametrize("model", ["px86", "eadr", "page-cache"])
@SETTINGS
@given(steps=runs(), seed=st.integers(0, 3))
def test_random_gives_every_state_once_and_the_same_for_the_same_seed(model: str, steps: list[Step], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = space_of(script_of(Path(folder), steps), model)
        states = list(select_states(space, Random(seed)))
        assert Counter(states) == Counter(select_states(space, strategy("exhaustive")))
        assert states == list(select_states(space, Random(seed)))


def test_random_reaches_deep_into_a_space_that_has_no_end(tmp_path: Path) -> None:
    script = Script(tmp_path, A)
    for line in range(100):
        script.at(1, 64 * line, delta=0)
    space = space_of(script)
    states = list(islice(select_states(space, Random()), 50))
    assert len(set(states)) == 50
    assert all(20 < deviation(space, state) <= 50 for state in states)


def test_random_ideals_of_wide_stores_are_uniform(tmp_path: Path) -> None:
    """Two stores of three words to one line: 1 + 7 + 7 states, each as likely as another."""
    script = Script(tmp_path, A, site(line=9))
    for _ in range(2):
        script.at(2, 0, size=24)
    space = space_of(script)
    first = Counter(next(iter(select_states(space, Random(seed)))) for seed in range(3000))
    assert len(first) == 15
    assert min(first.values()) > 140
    assert max(first.values()) < 265


@SETTINGS
@given(steps=runs(), pieces=st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=4))
def test_witcher_gives_the_states_of_all_queries_in_their_order_and_ends(
    steps: list[Step], pieces: list[tuple[int, int]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        script = script_of(Path(folder), steps)
        space = space_of(script)
        wanted = [Wanted((a,), (b,), 0, n) for n, (a, b) in enumerate(pieces) if max(a, b) < len(space.graph)]
        states = list(select_states(space, Witcher(script.facts, evidence(*wanted))))
        canonical = CanonicalStates(space)
        assert states == list(dict.fromkeys(state for query in wanted for state in states_of(canonical, query)))
        assert set(states) <= set(select_states(space, strategy("exhaustive")))


def test_witcher_without_invariants_tests_nothing(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B)
    script.at(1, 0, delta=0)
    assert list(select_states(space_of(script), strategy("witcher"))) == []


def queries_of(script: Script, many: int) -> list[StateQuery]:
    """Of an update and the one after it, `many` of each signature in sequence."""
    return [
        StateQuery((number + 1,), (number,), 0, 1, ("order", number // many, 0)) for number in range(script.value - 1)
    ]


def lines(folder: Path, many: int) -> Script:
    """Stores to as many lines, none of them durable."""
    script = Script(folder, A, B)
    for line in range(many):
        script.at(1, 64 * line, delta=0)
    return script


@SETTINGS
@given(many=st.integers(1, 5), at_once=st.integers(1, 9))
def test_of_each_signature_the_first_query_is_tested_the_largest_states_first(many: int, at_once: int) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(violations, "_AT_ONCE", at_once)
        script = lines(Path(folder), 20)
        canonical, queries = CanonicalStates(space_of(script)), queries_of(script, many)
        firsts = [states for query in queries[::many] if (states := states_of(canonical, query))]
        assert list(violating(canonical, queries)) == [*(each[1] for each in firsts), *(each[0] for each in firsts)]
