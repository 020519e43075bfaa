"""Explored runs decide whole crash points, and a search with them finds what one without them finds."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given

from crashcheck.checker.budget import Budget, OutOfTime
from crashcheck.checker.exploration import points, product
from crashcheck.checker.exploration.product import Product
from crashcheck.checker.exploration.runs import ExploredLimit, explored_runs
from crashcheck.checker.images.transition import Content
from crashcheck.checker.results import StopReason
from crashcheck.checker.search import crash_states
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.states.counting import StateCount
from crashcheck.checker.states.granules import Choices
from crashcheck.checker.states.ideals import Ideals, Ids
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies import Exhaustive, Pathfinder, Ranked, Strategy
from crashcheck.checker.strategies.plan import NOTHING, Decided
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.command import Command
from crashcheck.interruption import KeepOn, always
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.exploration import MOST_ENDS, Explored
from support.checked_worlds import LINES, World, fill_lines, words, world_of_lines
from support.random_programs import SETTINGS, memory_programs
from support.reference import First, Program
from support.tracing import TraceBuilder
from support.worlds import explored as explored_world
from support.worlds import record

NO_LIMIT = Budget()
Products = Sequence[tuple[Product | None, Path]]


def search(
    world: World, *, explore: bool, strategy: Strategy | None = None, jobs: int = 1, budget: Budget = NO_LIMIT
) -> SearchResult:
    with world.executor(jobs) as executor:
        return world.search(executor, budget=budget, strategy=strategy or Exhaustive(), explore=explore)


def counted(found: SearchResult) -> int:
    return found.states.executed + found.states.pruned + found.states.explored


@pytest.mark.parametrize("strategy", [Exhaustive(), Ranked()])
def test_explored_runs_decide_what_is_not_executed(tmp_path: Path, mapped_clauses: Path, strategy: Strategy) -> None:
    found = search(world_of_lines(tmp_path / "w", mapped_clauses, "0=0", "320=320"), explore=True, strategy=strategy)
    states = found.states
    assert states.feasible == 3 * (1 << LINES + 1) + 4 - 3
    assert found.stop_reason is StopReason.EXHAUSTED
    assert counted(found) == states.feasible
    assert states.explored > states.executed
    assert 0 < states.explored_runs < states.explored
    assert states.not_explored == ()
    assert found.findings == ()


def test_what_stays_pending_is_gone_through_once_for_all_stretches(
    tmp_path: Path, mapped_clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill_beside_a_line_that_is_never_flushed(t: TraceBuilder) -> None:
        for number in range(3):
            t.store("p", 64 * LINES + 64, 8, 70 + number)
        fill_lines(t)

    gone_through: Counter[Ids] = Counter()
    made: Counter[Ids] = Counter()
    writes = product._writes

    def choices(ideals: Ideals, difference: Callable[[Ids], Hashable]) -> Choices:
        gone_through[next(ideals.lost(ideals.size))] += 1
        return Choices(ideals, difference)

    def made_writes(content: Content, point: int, lost: Ids) -> product.Written:
        made[lost] += 1
        return writes(content, point, lost)

    monkeypatch.setattr(points, "Choices", choices)
    monkeypatch.setattr(product, "_writes", made_writes)
    command = words([str(mapped_clauses), "{pool}/p", "{acked}", "0=0"])
    world = World(tmp_path / "w", command, fill_beside_a_line_that_is_never_flushed, preload=build_runtime().shared)
    found = search(world, explore=True)
    assert found.states.explored > 0
    assert {*gone_through.values()} == {*made.values()} == {1}
    assert (0, 1, 2) in gone_through


def test_a_moment_with_too_many_open_lines_is_given_up_at_the_first_that_is_too_many(
    tmp_path: Path, mapped_clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table of 1 MiB that was filled and not yet persisted took 5 minutes to refuse, in a budget of one."""
    opened: set[int] = set()
    writes = product._writes

    def made_writes(content: Content, point: int, lost: Ids) -> product.Written:
        opened.update(int(content.space.graph.granule[piece]) for piece in lost)
        return writes(content, point, lost)

    monkeypatch.setattr(product, "_writes", made_writes)
    monkeypatch.setattr(product, "MOST_GRANULES", 2)
    states = search(world_of_lines(tmp_path / "w", mapped_clauses), explore=True).states
    assert [each.why for each in states.not_explored] == ["more than 2 lines or pages are open at once"]
    assert len(opened) == 3 < LINES


def test_a_moment_that_takes_longer_than_the_budget_to_prepare_is_not_explored(
    tmp_path: Path, mapped_clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_time() -> None:
        raise OutOfTime

    count = StateCount.advance
    monkeypatch.setattr(StateCount, "advance", lambda self, keep_on=always: count(self))
    monkeypatch.setattr(points, "within", lambda left, share=1.0: out_of_time)
    states = search(world_of_lines(tmp_path / "w", mapped_clauses), explore=True).states
    assert [each.why for each in states.not_explored] == ["its time was over"]
    assert (states.explored, states.executed + states.pruned) == (0, states.feasible)


def test_a_strategy_that_does_not_give_all_states_is_left_alone(tmp_path: Path, mapped_clauses: Path) -> None:
    found = search(world_of_lines(tmp_path / "w", mapped_clauses, "0=0"), explore=True, strategy=Pathfinder(None))
    assert found.states.explored == 0


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_explored_run_becomes_a_finding_by_an_ordinary_run(
    tmp_path: Path, mapped_clauses: Path, jobs: int
) -> None:
    world = world_of_lines(tmp_path / "w", mapped_clauses, f"{64 * LINES}>{64 * LINES - 64}", f"{64 * LINES}>0")
    found = search(world, explore=True, jobs=jobs)
    plain = search(world, explore=False, jobs=jobs)
    assert [finding.id for finding in found.findings] == [finding.id for finding in plain.findings] != []
    assert counted(found) == counted(plain) == found.states.feasible
    assert found.states.not_explored[0].why == "an explored run failed there: the states are run one by one"


def test_a_state_that_several_explored_runs_lead_to_is_counted_once(
    tmp_path: Path, mapped_clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = points.PointExploration.batch
    monkeypatch.setattr(points.PointExploration, "batch", lambda self: [each for each in batch(self) for _ in "ab"])
    world = world_of_lines(tmp_path / "w", mapped_clauses, f"{64 * LINES}>{64 * LINES - 64}", f"{64 * LINES}>0")
    monkeypatch.setattr(crash_states, "_FIRST", 0)  # before the strategy gave any of them
    found = search(world, explore=True)
    assert counted(found) == found.states.feasible


def test_a_check_that_cannot_be_explored_is_run_on_each_state_and_the_reason_counted(
    tmp_path: Path, clauses: Path
) -> None:
    check = words(f"{clauses} {{pool}}/p {{acked}} 0=0; true")  # a shell that starts a process
    world = World(tmp_path / "shell", check, fill_lines, preload=build_runtime().shared)
    found = search(world, explore=True)
    assert found.states.explored == 0
    assert found.states.executed + found.states.pruned == found.states.feasible
    (reason,) = found.states.not_explored
    assert reason.why.startswith("it makes a system call that is not followed")


@pytest.mark.parametrize("before", ["exec", "VAR=x exec", "ONE=1 TWO=/a,b:c exec"])
def test_a_check_that_a_shell_only_gives_variables_is_explored(tmp_path: Path, clauses: Path, before: str) -> None:
    check = Command.of_text(f"{before} {clauses} {{pool}}/p {{acked}} 0=0")
    world = World(tmp_path / "shell", check, fill_lines, preload=build_runtime().shared)
    assert world.setup.environment(tmp_path)["CRASHCHECK_POOL"] == str(tmp_path)
    variables = {one.split("=")[0]: one.split("=")[1] for one in before.split()[:-1]}
    assert {name: world.setup.environment(tmp_path)[name] for name in variables} == variables
    assert world.setup.command.shown("P", 0, "S") == f"{before} {clauses} P/p 0 0=0".replace("exec ", "")
    found = search(world, explore=True)
    assert found.states.not_explored == ()
    assert counted(found) == found.states.feasible


def test_a_state_that_fails_although_explored_runs_pass_switches_them_off_and_is_found(
    tmp_path: Path, mapped_clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_of_lines(tmp_path / "w", mapped_clauses, f"{64 * LINES}>{64 * LINES - 64}", f"{64 * LINES}>0")
    plain = search(world, explore=False)
    monkeypatch.setattr(points, "failing_ends", lambda *_: [])
    found = search(world, explore=True)
    assert found.states.explored == 0
    assert [finding.id for finding in found.findings] == [finding.id for finding in plain.findings]
    assert found.states.executed == plain.states.executed
    assert any("explored runs do not count" in reason.why for reason in found.states.not_explored)


@pytest.mark.parametrize(
    ("enough", "in_sequence", "expected"),
    [(1024, 32, [16, 128, 1024]), (9999, 32, [16, 128, 1024, 4096]), (4096, 1, [16, 1024, 4096])],
)
def test_what_was_not_decided_in_its_limit_is_explored_again_for_longer_once_all_others_were(
    tmp_path: Path,
    mapped_clauses: Path,
    monkeypatch: pytest.MonkeyPatch,
    enough: int,
    in_sequence: int,
    expected: list[int],
) -> None:
    """No stretch is decided with a limit below `enough`.

    Where so many `in_sequence` were not, the next limit is for all further ones, and those are explored with the last.
    """
    world = world_of_lines(tmp_path / "w", mapped_clauses, "0=0", "320=320")
    monkeypatch.setattr(crash_states, "_FIRST", 4)
    monkeypatch.setattr(points, "_REFUSED", in_sequence)
    quick = search(world, explore=True)
    limits: list[int] = []

    def busy(
        executor: Executor, products: Products, limit: ExploredLimit, until_s: float | None
    ) -> list[Explored | None]:
        limits.append(limit.ends)
        results = explored_runs(executor, products, limit, until_s)
        if limit.ends >= enough:
            return results
        return [each and replace(each, ends=(), why="its time was over", late=True) for each in results]

    monkeypatch.setattr(points, "explored_runs", busy)
    slow = search(world, explore=True)
    assert counted(slow) == counted(quick) == slow.states.feasible
    assert limits == expected
    assert (slow.states.explored > 0) == (enough <= 4096)
    assert [each.why for each in slow.states.not_explored] == ([] if enough <= 4096 else ["its time was over"])


def test_twice_as_many_states_are_run_after_each_stretch_that_was_not_decided_in_time(
    tmp_path: Path, mapped_clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[CrashState] = []
    explored_at: list[int] = []

    class Counted(Exhaustive):
        def states(self, space: StateSpace, decided: Decided = NOTHING) -> Iterator[CrashState]:
            for state in super().states(space, decided):
                given.append(state)
                yield state

    def busy(
        executor: Executor, products: Products, limit: ExploredLimit, until_s: float | None
    ) -> list[Explored | None]:
        explored_at.append(len(given))
        results = explored_runs(executor, products, ExploredLimit(20), until_s)
        if limit.ends > 16:
            return results
        return [each and replace(each, ends=(), why="its time was over", late=True) for each in results]

    monkeypatch.setattr(crash_states, "_FIRST", 4)
    for name, value in {"_BATCH": 1, "_PAUSE": 4, "explored_runs": busy}.items():
        monkeypatch.setattr(points, name, value)
    search(world_of_lines(tmp_path / "w", mapped_clauses, "0=0", "320=320"), explore=True, strategy=Counted())
    # three stretches with the first limit, and again with the second, which is enough
    assert [after - before for before, after in pairwise(explored_at)] == [8, 16, 32, 16, 8]


def test_what_was_decided_does_not_depend_on_the_number_of_workers(tmp_path: Path, mapped_clauses: Path) -> None:
    world = world_of_lines(tmp_path / "w", mapped_clauses, "320=320", "0=0")
    one, two = (search(world, explore=True, strategy=Ranked(), jobs=jobs).states for jobs in (1, 2))
    assert one == two


def test_without_a_limit_of_seconds_what_is_decided_depends_on_the_ends_of_runs_alone(
    tmp_path: Path, mapped_clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a second a stretch decided other stretches on a busy machine, though the promise was that none would."""
    world = world_of_lines(tmp_path / "w", mapped_clauses, "0=0", "320=320")
    monkeypatch.setattr(crash_states, "_FIRST", 4)
    whole = search(world, explore=True).states
    limits: list[ExploredLimit] = []

    def noted(
        executor: Executor, products: Products, limit: ExploredLimit, until_s: float | None
    ) -> list[Explored | None]:
        limits.append(limit)
        return explored_runs(executor, products, limit, until_s)

    monkeypatch.setattr(points, "explored_runs", noted)
    monkeypatch.setattr(points, "_LIMITS_ENDS", (1, *points._LIMITS_ENDS[1:]))
    again = search(world, explore=True).states
    assert [limit.ends for limit in limits] == [1, 128]
    assert (again.explored > 0, again.not_explored) == (True, ())
    assert again.explored + again.executed == whole.explored + whole.executed
    limits.clear()
    search(world, explore=True, budget=Budget(600.0))
    assert [limit for limit in limits if limit.ends < MOST_ENDS] == []


def test_states_that_take_long_to_count_are_not_explored_and_the_report_says_so(
    tmp_path: Path, mapped_clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(count: StateCount, keep_on: KeepOn = always) -> None:
        raise OutOfTime

    monkeypatch.setattr(StateCount, "advance", cut_short)
    monkeypatch.setattr(crash_states, "_FIRST", 4)
    states = search(world_of_lines(tmp_path / "w", mapped_clauses), explore=True).states
    assert [each.why for each in states.not_explored] == ["to count the states took too long"]
    assert (states.explored, states.feasible) == (0, states.executed)
    assert not states.feasible_exact
    assert states.feasible_note.startswith("only those of the first 0 of ")


@SETTINGS
@given(memory_programs())
def test_each_image_of_a_stretch_is_an_image_of_its_last_point(program: tuple[First, Program]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        first, steps = program
        world = explored_world(record(folder, first, steps).trace(), folder, first, "px86")
        space = world.space
        count = StateCount(space)
        count.advance()
        found = list(count.stretches)
        assert [each.first for each in found] == [0, *(each.last + 1 for each in found[:-1])]
        assert found[-1].last == len(space.points) - 1
        assert sum(each.states for each in found) == len(world.states)
        for stretch in found:
            pending = set(space.pending(stretch.last))
            for state in world.states:
                if not stretch.first <= state.point <= stretch.last:
                    continue
                issued = set(space.pending(state.point))
                assert issued <= pending, "what is durable at the last point was so at the first"
                kept = space.persisted(state)
                assert space.state(stretch.last, kept).point == stretch.last
