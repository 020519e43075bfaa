"""Groups that only a library updates are tested after the project's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.analyzer.behaviours import StaticSite
from crashcheck.checker.strategies import Ranked, strategy
from crashcheck.checker.strategies.plan import select_states
from crashcheck.config import Config
from crashcheck.config import load as load_config
from crashcheck.stages.strategy_setup import library_of
from support.scripts import SOURCE, A, B, Script, Wanted, evidence, site, space_of

ALLOCATOR = "/opt/allocator/heap.c"
USED = site("heap.used", ("heap", "used", 0, 8), line=5, file=ALLOCATOR)
SIZE = site("heap.size", ("heap", "size", 64, 8), line=6, file=ALLOCATOR)


def in_allocator(site: StaticSite) -> bool:
    return site.file == ALLOCATOR


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """The allocator's pair violates an invariant, so that it would be first."""
    script = Script(tmp_path, A, B, USED, SIZE)
    script.at(3, 0, delta=0)
    script.at(4, 64, delta=64)
    script.persist(0, 128)
    script.at(1, 4096, delta=0)
    script.at(2, 4160, delta=64)
    script.persist(4096, 128)
    return script


def order(plan: Ranked, script: Script) -> list[tuple[int, str, str]]:
    rows = plan.plan(space_of(script)).rank()
    return [(row.number, row.ranked.group.types[0], row.ranked.because[-1]) for row in rows]


def test_a_librarys_groups_are_ranked_below_the_projects_whatever_their_score(script: Script) -> None:
    equal = Ranked(script.facts, evidence(Wanted((0,), (1,))))
    assert [types for _, types, _ in order(equal, script)] == ["heap", "pair"]
    last = replace(equal, library=in_allocator)
    assert [(number, types) for number, types, _ in order(last, script)] == [(1, "pair"), (2, "heap")]
    assert order(last, script)[1][2] == "in a library"


def test_a_librarys_states_are_tested_all_the_same(script: Script) -> None:
    space = space_of(script)
    last = Ranked(script.facts, library=in_allocator)
    assert set(select_states(space, last)) == set(select_states(space, strategy("exhaustive")))


def configured(folder: Path, *lines: str) -> Config:
    folder.mkdir(parents=True)
    path = folder / "crashcheck.toml"
    sections = ['[workload]\ncommand = "true"', '[pool]\nfiles = ["f"]', '[check]\ncommand = "true"', *lines]
    path.write_text("\n".join(sections) + "\n", encoding="utf-8")
    return load_config(path)


def of(file: Path | str) -> StaticSite:
    return StaticSite(1, 1, (), "work", str(file), 1, "")


def test_a_library_has_its_sources_outside_the_repository_of_the_project(script: Script, tmp_path: Path) -> None:
    (tmp_path / "project" / ".git").mkdir(parents=True)
    config = configured(tmp_path / "project" / "tests")
    (unit,) = script.facts.units.values()
    own = replace(script.facts, units={1: replace(unit, source=str(tmp_path / "project" / "table.c"))})
    library = library_of(config, own)
    assert library is not None
    assert library(of(ALLOCATOR))
    for inside in (tmp_path / "project" / "tests" / "driver.c", tmp_path / "project" / "table.c", "driver.c", ""):
        assert not library(of(inside))


def test_a_project_whose_sources_are_all_outside_has_no_library(script: Script, tmp_path: Path) -> None:
    assert [unit.source for unit in script.facts.units.values()] == [SOURCE]
    assert library_of(configured(tmp_path / "project"), script.facts) is None


def test_a_project_may_ask_for_its_libraries_to_be_ranked_as_itself(script: Script, tmp_path: Path) -> None:
    (unit,) = script.facts.units.values()
    config = configured(tmp_path / "project", '[strategy]\nlibraries = "equal"')
    own = replace(script.facts, units={1: replace(unit, source=str(config.folder / "table.c"))})
    assert library_of(config, own) is None
