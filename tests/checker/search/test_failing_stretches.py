"""A stretch of the run in which everything fails: one finding, and its other states wait until the rest was tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.budget import Budget
from crashcheck.checker.results import FindingKind, StopReason
from crashcheck.checker.search.crash_states import SearchResult
from support.checked_worlds import World, persist, place, without_times, words
from support.tracing import TraceBuilder

BETWEEN = 14  # pairs of updates while the program is not in order
FLAG, FLAGGED = 3072, 3136
SITES = {
    1: place(1, "head"),
    2: place(2, "tail"),
    3: place(3, "node.key"),
    4: place(4, "entry.value"),
    5: place(5, "entry.valid"),
}


def store(t: TraceBuilder, site: int, offset: int) -> None:
    t.site = site
    t.store("p", offset, 8, 5)
    t.site = 0


def long_section(t: TraceBuilder) -> None:
    """One operation in which `kill -9` fails nearly everywhere, and one with a flag that may persist too early."""
    t.begin(1)
    store(t, 1, 0)
    persist(t, 0)
    for at in range(128, 128 + 128 * BETWEEN, 128):
        store(t, 3, at)
        store(t, 3, at + 64)
        persist(t, at, at + 64)
    store(t, 2, 64)
    persist(t, 64)
    t.end(1)
    t.begin(2)
    store(t, 4, FLAGGED)
    store(t, 5, FLAG)
    persist(t, FLAG, FLAGGED)
    t.end(2)


@pytest.fixture
def world(tmp_path: Path, clauses: Path) -> World:
    check = words([str(clauses), "{pool}/p", "{acked}", "0=64", f"{FLAG}>{FLAGGED}"])
    return World(tmp_path / "world", check, long_section, sites=SITES)


def explore(world: World, states: int | None = None, jobs: int = 1) -> SearchResult:
    return world.explore(budget=Budget(states=states), snapshot=world.real_snapshot, jobs=jobs)


def test_other_bugs_are_found_before_the_rest_of_a_failing_stretch_is_tested(world: World) -> None:
    found = explore(world, states=24)
    assert [finding.kind for finding in found.findings] == [FindingKind.ATOMICITY, FindingKind.ORDERING]
    assert found.stop_reason is StopReason.BUDGET_STATES
    assert found.states.put_off > BETWEEN


def test_the_states_of_a_failing_stretch_are_tested_in_the_end(world: World) -> None:
    found = explore(world)
    assert [finding.kind for finding in found.findings] == [FindingKind.ATOMICITY, FindingKind.ORDERING]
    assert (found.stop_reason, found.states.put_off) == (StopReason.EXHAUSTED, 0)
    assert found.states.executed + found.states.pruned == found.states.feasible
    assert found.findings[0].states > BETWEEN


def test_which_states_wait_does_not_depend_on_the_number_of_workers(world: World) -> None:
    one, two, three = (without_times(explore(world, states=24, jobs=jobs)) for jobs in (1, 2, 3))
    assert one == two == three
