"""What the report receives for each group: counts, verdict, and whether it was explored to its end."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.budget import Budget
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.results import GroupRow, GroupVerdict
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.strategies import Exhaustive, Pathfinder, Ranked, Strategy
from support.checked_worlds import VALID, VALUE, World, persist, place, put_flag_first, without_times, words
from support.tracing import TraceBuilder

LOG = place(80, "log.entry")


def flags_and_log(t: TraceBuilder) -> None:
    """Flags are persisted before their values, three times; then a log, in another function, is as it should be."""
    caller = t.stack_def(0, 9)
    put_flag_first(t)
    for number in range(2):
        t.site, t.stack = 3, caller
        t.store("p", 2048 + 64 * number, 8, 5)
        t.site = t.stack = 0
        persist(t, 2048 + 64 * number)


def explore(
    folder: Path, clauses: Path, strategy: Strategy, how: str = "", budget: Budget | None = None, jobs: int = 1
) -> tuple[World, SearchResult]:
    claims = [f"{how}{at + 64}>{at}" for at in (0, 256, 512)]
    world = World(
        folder,
        words([str(clauses), "{pool}/p", "{acked}", *claims]),
        flags_and_log,
        sites={1: VALUE, 2: VALID, 3: LOG},
        limits=Limits(timeout_s=0.2 if how == "~" else 20),
    )
    with world.executor(jobs) as executor:
        return world, world.search(executor, strategy=strategy, budget=budget)


def by_site(rows: tuple[GroupRow, ...]) -> dict[tuple[str, ...], GroupRow]:
    return {tuple(site.variable for site in row.sites): row for row in rows}


FLAGS, LOGS = ("entry.value", "entry.valid"), ("log.entry",)


def test_a_search_to_the_end_explores_every_group_completely(tmp_path: Path, clauses: Path) -> None:
    _, found = explore(tmp_path / "world", clauses, Ranked())
    rows = by_site(found.groups)
    assert rows.keys() == {FLAGS, LOGS}
    assert all(row.complete for row in rows.values())
    assert [row.rank for row in found.groups] == [1, 2]
    assert (rows[FLAGS].verdict, rows[LOGS].verdict) == (GroupVerdict.FAILING, GroupVerdict.CLEAN)
    assert rows[FLAGS].failing == found.states.failing == 3
    assert rows[LOGS].failing == 0
    assert (rows[FLAGS].members, rows[FLAGS].updates) == (3, 2)
    assert (rows[LOGS].members, rows[LOGS].updates) == (2, 1)
    assert rows[LOGS].because == ("1 update",)
    assert (rows[FLAGS].feasible, rows[FLAGS].feasible_exact) == (4, True)


def test_the_picture_of_a_group_is_its_representative(tmp_path: Path, clauses: Path) -> None:
    _, found = explore(tmp_path / "world", clauses, Ranked())
    row = by_site(found.groups)[FLAGS]
    assert [node.label for node in row.nodes] == ["entry.value", "entry.valid"]
    assert row.edges == ()
    assert [node.granule for node in row.nodes] == [0, 1]


def test_a_search_that_is_cut_off_lists_which_groups_it_cut_off(tmp_path: Path, clauses: Path) -> None:
    _, found = explore(tmp_path / "world", clauses, Ranked(), budget=Budget(states=1))
    assert found.states.executed == 1
    first, second = found.groups
    assert (first.executed, first.complete) == (1, False)
    assert (second.executed, second.complete, second.verdict) == (0, False, GroupVerdict.UNTESTED)


def test_a_group_whose_failing_states_all_hang_has_that_verdict(tmp_path: Path, clauses: Path) -> None:
    _, found = explore(tmp_path / "world", clauses, Pathfinder(), how="~")
    assert by_site(found.groups)[FLAGS].verdict is GroupVerdict.HANGS


def test_a_strategy_without_groups_has_no_rows(tmp_path: Path, clauses: Path) -> None:
    _, found = explore(tmp_path / "world", clauses, Exhaustive())
    assert found.groups == ()


def test_rows_do_not_depend_on_the_number_of_workers(tmp_path: Path, clauses: Path) -> None:
    found = [
        without_times(explore(tmp_path / f"world{jobs}", clauses, Ranked(), budget=Budget(states=13), jobs=jobs)[1])
        for jobs in (1, 3)
    ]
    assert found[0].groups == found[1].groups
    assert found[0].states == found[1].states


def test_a_state_that_two_groups_ask_for_counts_for_both(tmp_path: Path) -> None:
    """Two stores of different functions before the same fence: all states of the second are states of the first."""

    def script(t: TraceBuilder) -> None:
        callers = [t.stack_def(0, 8), t.stack_def(0, 9)]
        for number, caller in enumerate(callers):
            t.site, t.stack = number + 1, caller
            t.store("p", 64 * number, 8, 1)
        t.site = t.stack = 0
        persist(t, 0, 64)

    world = World(tmp_path / "world", words(["true"]), script, sites={1: VALUE, 2: VALID})
    with world.executor() as executor:
        found = world.search(executor, strategy=Pathfinder())
    assert found.states.executed == 4
    assert [(row.executed, row.complete) for row in found.groups] == [(4, True), (2, True)]


@pytest.mark.parametrize("most", [0, 2])
def test_counting_the_states_of_a_large_representative_gives_up_with_a_bound(tmp_path: Path, most: int) -> None:
    world = World(tmp_path / "world", words(["true"]), put_flag_first)
    plan = Ranked().plan(world.space)
    one = plan.rank()[0].representative
    exact, sure = one.feasible()
    bound, unsure = one.feasible(most)
    assert sure
    assert not unsure
    assert bound >= exact
