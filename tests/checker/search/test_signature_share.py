"""How far a search came: site signatures of the plainest states, and a run that tested too few of them."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from crashcheck.checker.search.signature_share import SignatureShare
from crashcheck.checker.strategies.exhaustive import Exhaustive
from crashcheck.checker.strategies.plain import first_points, site_numbers
from crashcheck.checker.strategies.plan import NOTHING, select_states
from support import settings_store
from support.command_line import run_crashcheck
from support.examples_tried import examples
from support.random_runs import SETTINGS, Step, runs, script_of
from support.scripts import space_of


@pytest.mark.parametrize("model", ["px86", "eadr", "page-cache"])
@settings(SETTINGS, max_examples=examples(12))
@given(steps=runs())
def test_the_plainest_states_are_those_of_the_first_point_of_each_set_of_pending_sites(
    model: str, steps: list[Step]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = space_of(script_of(Path(folder), steps), model)
        site = site_numbers(space.graph)
        first: dict[frozenset[int], int] = {}
        for point in range(len(space.points)):
            first.setdefault(frozenset(site[space.pending_rows(point)].tolist()), point)
        assert first_points(space, site).tolist() == sorted(first.values())


@settings(SETTINGS, max_examples=examples(12))
@given(steps=runs())
def test_an_exhaustive_search_has_tested_every_signature_and_an_empty_one_none(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        space = space_of(script_of(Path(folder), steps), "px86")
        share = SignatureShare(space)
        wanted, tested = share.counts(NOTHING)
        assert (wanted > 0, tested) == (True, 0)
        for state in select_states(space, Exhaustive()):
            share.test(state)
        assert share.counts(NOTHING) == (wanted, wanted)


def test_a_run_that_a_budget_ended_at_once_is_no_pass_and_one_to_its_end_is(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    for name, text in settings_store.files(rounds=3).items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = ("run", "--no-fixes", "--format", "json=out.json", "--format", "terminal")
    done = run_crashcheck(*words, "--states", "2", cwd=tmp_path, env=environment)
    states = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["run"]["states"]
    assert (done.returncode, states["executed"], states["signatures_tested"] <= 2) == (2, 2, True)
    assert "\nNo verdict: the budget ended the search at once" in f"\n{done.stdout}"
    done = run_crashcheck(*words, cwd=tmp_path, env=environment)
    states = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))["run"]["states"]
    assert (done.returncode, states["signatures"]) == (0, 0)
