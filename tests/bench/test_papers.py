"""The evaluation: counted states are those of brute force, and the page shows nothing but its measurements."""

from __future__ import annotations

import statistics
import tempfile
from collections import Counter
from itertools import permutations
from pathlib import Path

import pytest
from bench.papers import correlated, curves, page, reorderings
from bench.papers.__main__ import PAGE
from bench.papers.collect import First, Measured
from bench.papers.variants import variants
from bench.programs import CHECKOUT
from bench.recall import STRATEGIES
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.checker.states.counting import count_states
from crashcheck.checker.strategies import Ranked, strategy
from crashcheck.checker.strategies.plan import select_states
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import A, B, Script, space_of


@SETTINGS
@given(steps=runs(), chosen=st.sets(st.integers(0, 12), max_size=3))
def test_correlated_states_are_counted_as_if_each_were_listed(steps: list[Step], chosen: set[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = space_of(script_of(Path(folder), steps))
        culprits = [piece for piece in chosen if piece < len(space.graph)]
        states = list(select_states(space, strategy("exhaustive")))
        listed = correlated.of_states(space, states, culprits)
        counted = correlated.of_all(space, culprits)
        assert counted == listed
        assert counted.total == count_states(space).value
        acked = Counter(space.points[state.point].acked for state in states)
        assert correlated.all_by_operation(space) == [acked[operation] for operation in range(max(acked) + 1)]
        assert correlated.by_operation(space, states) == correlated.all_by_operation(space)


@pytest.mark.parametrize("stores", range(6))
def test_pmreorder_tries_every_order_of_every_subset(stores: int) -> None:
    tried = sum(1 for chosen in range(stores + 1) for _ in permutations(range(stores), chosen))
    assert reorderings.sequences(stores) == (tried if stores else 0)


def test_only_what_was_flushed_before_a_fence_is_reordered(tmp_path: Path) -> None:
    script = Script(tmp_path, A, B)
    script.trace.begin(1)
    script.at(1, 0)
    script.at(2, 64)
    script.at(1, 128)  # never flushed
    script.persist(0, 128)
    script.trace.end(1)
    script.trace.begin(2)
    script.at(1, 192)
    script.persist(192)
    script.trace.end(2)
    assert reorderings.by_operation(space_of(script).graph.trace, 3) == [5, 2, 0]


def test_the_page_is_what_its_figures_give(tmp_path: Path) -> None:
    page.write(page.read(PAGE.with_suffix(".json")), tmp_path / PAGE.name)
    for name in (PAGE.name, "evaluation-bugs.svg", "evaluation-space.svg"):
        assert (tmp_path / name).read_text() == PAGE.with_name(name).read_text()


def test_the_readme_gives_figures_of_the_page() -> None:
    planted = [one for one in page.read(PAGE.with_suffix(".json")).bugs if one.bug]
    states = [one.strategies["ranked"].states or 0 for one in planted]
    assert min(states) > 0  # all were found
    text = " ".join((CHECKOUT / "README.md").read_text().split())
    assert f"Of the {len(planted)} bugs planted" in text
    assert f"half of them within {statistics.median(states):g} crash states" in text
    assert f"none later than the {max(states)}th" in text


def test_each_variant_differs_from_the_search_in_one_thing_and_has_a_name_of_its_own() -> None:
    base = Ranked()
    made = list(variants(base, weights=True))
    assert len({variant.name for variant in made}) == len(made)
    differing = ("infer", "deviance", "weights", "seed", "similar_wait", "scores")
    for variant in made:
        changed = [name for name in differing if getattr(variant.strategy, name) != getattr(base, name)]
        assert len(changed) == (variant.name not in ("without invariants", "without anticipating sets"))


def measured(bug: int, found: int | None) -> Measured:
    one = Measured("tree", bug, "ordering" if bug else "", "The root is linked too early.", 100, "1000", True)
    if not bug:
        one.operations = {name: ["1", "20", "3"] for name in curves.SPACES}
        return one
    one.strategies = {name: First(found, 1.0) for name in STRATEGIES}
    one.variants = {"search": {"ranked": First(found, 1.0)}, "part": {"without groups": First(None, 1.0)}}
    one.representatives = {"states": 10, "all": True, "correlated": 2, "exhaustive": str(10**40)}
    one.representatives |= {"exhaustive_correlated": "500", "exhaustive_exact": True}
    one.invariants = dict.fromkeys(("ordering", "atomicity", "images", "mismatches", "clusters", "findings"), 3)
    one.invariants |= {"inference_seconds": 0.5, "seconds": 2.0, "ended": "exhausted"}
    return one


def test_the_page_shows_what_was_measured_and_names_what_was_missed(tmp_path: Path) -> None:
    report = page.Report(200, 10.0, page.machine(), [measured(0, None), measured(1, 7), measured(2, None)])
    page.write(report, tmp_path / "evaluation.md")
    text = (tmp_path / "evaluation.md").read_text()
    assert "| ranked | 1 of 2" not in text  # the number alone, the header has the total
    assert "| ranked | 1 | – | 0.496 | 2 |" in text
    assert "| tree | 2.0×10^40 | 20 | 1,000 | 4 | 1.0×10^39 |" in text
    assert "| without a part | without groups | 0 of 2 | – (–) | 0.000 | -0.496 | tree 1, tree 2 |" in text
    assert "| tree | 2 | 6 | 6 | 6 | 6 | 6 | 6 | 1 | 4 | 0 |" in text
    assert text.count("| tree | 2 | ordering | The root is linked too early. | 1 |") == len(STRATEGIES)
    for picture in ("evaluation-bugs.svg", "evaluation-space.svg"):
        assert picture in text
        assert (tmp_path / picture).read_text().startswith("<svg")
