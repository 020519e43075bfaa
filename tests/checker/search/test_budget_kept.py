"""What a budget of seconds ends, by a clock of the test's own: explaining, counting, and the rows of groups."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.invariants import Inferred
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Budget, Meter, OutOfTime, within
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.prefix_proof import NO_TIME, PrefixProof
from crashcheck.checker.images.real_files import RealFiles
from crashcheck.checker.results import FindingKind, Outcome, StopReason, Verdict
from crashcheck.checker.search.crash_states import nothing_checked
from crashcheck.checker.search.group_stats import GroupStats
from crashcheck.checker.search.signature_share import SignatureShare
from crashcheck.checker.states.by_deviation import states_of_deviation
from crashcheck.checker.states.counting import StateCount
from crashcheck.checker.strategies import Ranked
from crashcheck.checker.strategies.ranked import ranking_of
from crashcheck.checker.verdicts.other_files import run_on_files
from crashcheck.checker.verdicts.verdict_cache import VerdictCache
from crashcheck.interruption import KeepOn
from crashcheck.stages.search_setup import warned_of_blind_check
from crashcheck.stages.uncrashed import uncrashed
from support.checked_worlds import World, put_flag_first, words
from support.tracing import TraceBuilder

HANGS = "sleep 60"


def over() -> None:
    raise OutOfTime


def flags(t: TraceBuilder) -> None:
    put_flag_first(t, 3)


def world_of(folder: Path, command: str = "true") -> World:
    return World(folder, words(command.split()), flags, limits=Limits(timeout_s=60))


@pytest.mark.parametrize("seconds", [1.0, 10.0, 300.0])
def test_explaining_and_reporting_end_within_a_tenth_after_any_budget(seconds: float) -> None:
    now = [0.0]
    meter = Meter(Budget(seconds=seconds), clock=lambda: now[0])
    keep_on = within(meter.reporting_left)
    now[0] = seconds * 1.04
    keep_on()
    now[0] = seconds * 1.06
    with pytest.raises(OutOfTime):
        keep_on()
    assert meter.explaining_left_s == pytest.approx(seconds * 0.04)
    now[0] = seconds * 1.1 + 0.001
    assert meter.explaining_left_s == 0


def test_a_run_that_explains_and_hangs_is_ended_with_the_budget_and_shows_nothing(tmp_path: Path) -> None:
    world, now = world_of(tmp_path / "world", HANGS), [10.9]
    with world.executor() as executor:
        began = iter([0.0])
        meter = Meter(Budget(seconds=10), clock=lambda: next(began, now[0]))
        verdicts = VerdictCache(executor, world.content, meter)
        with pytest.raises(OutOfTime):
            verdicts.confirm(world.space.full(0), executor.run(world.space.full(0), most_s=0.1))


@pytest.mark.parametrize("left_s", [0.1, 0.0])
def test_a_check_that_hangs_on_the_files_of_a_second_run_is_ended_with_the_budget(
    tmp_path: Path, left_s: float
) -> None:
    world = world_of(tmp_path / "world", HANGS)
    real = world.real_snapshot(int(world.trace.events["seq"][-1]))
    with world.executor() as executor, pytest.raises(OutOfTime):
        run_on_files(executor, real, 0, (0, 0), left=lambda: left_s)


@pytest.mark.parametrize("at_s", [10.9, 11.0])
def test_a_check_that_hangs_on_damaged_files_is_ended_with_the_budget_which_is_remarked(
    tmp_path: Path, at_s: float
) -> None:
    world, began = world_of(tmp_path / "world", HANGS), iter([0.0])
    meter = Meter(Budget(seconds=10), clock=lambda: next(began, at_s))
    found = nothing_checked(world.subject, StopReason.BUDGET_SECONDS, over)
    with world.executor() as executor:
        found = warned_of_blind_check(executor, executor.oracle, world.subject, found, meter.explaining_left)
    assert found.warnings == ("the time ended before the check was tried on damaged files: it may accept them",)


def test_a_prefix_whose_proof_the_budget_ended_is_not_proved(tmp_path: Path) -> None:
    world = world_of(tmp_path / "world")
    moment = int(world.space.points.event[2])
    state = world.subject.prefix(moment)
    failed = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)
    cause = Cause(FindingKind.ATOMICITY, state, failed, 1, 0, prefix=True, moment=moment)

    def other_files(seq: int) -> RealFiles:
        real = world.real_snapshot(seq)
        (real.folder / "p").write_bytes(b"other")
        return real

    with world.executor() as executor:
        run_on = partial(run_on_files, executor, left=lambda: 0.0)
        proof = PrefixProof(world.subject, other_files, executor.images.write_image, run_on)  # type: ignore[arg-type]
        assert proof.missing(cause, tmp_path) == NO_TIME


def test_a_check_that_hangs_on_the_uncrashed_image_is_ended_with_the_budget(tmp_path: Path) -> None:
    world = world_of(tmp_path / "world", HANGS)
    with world.executor() as executor, pytest.raises(OutOfTime):
        uncrashed(executor, first=False, left=lambda: 0.1)


def test_no_check_of_an_uncrashed_image_begins_when_nothing_is_left(tmp_path: Path) -> None:
    world = world_of(tmp_path / "world")
    with world.executor() as executor:
        with pytest.raises(OutOfTime):
            uncrashed(executor, first=False, left=lambda: 0.0)
        assert executor.executed == 0


def test_a_search_that_ended_before_its_first_state_says_that_nothing_was_counted(tmp_path: Path) -> None:
    world = world_of(tmp_path / "world")
    states = nothing_checked(world.subject, StopReason.BUDGET_SECONDS, over).states
    points = len(world.space.points)
    assert (states.feasible, states.feasible_exact) == (0, False)
    assert states.feasible_note == f"only those of the first 0 of {points} crash points were counted"


def test_counting_may_pause_within_a_crash_point_and_goes_on_there(tmp_path: Path) -> None:
    def many_lines(t: TraceBuilder) -> None:
        for line in range(200):
            t.store("p", 64 * line, 8, 1)

    world = World(tmp_path / "world", words(["true"]), many_lines)
    asked = []
    count = StateCount(world.space)
    count.advance(lambda: asked.append(1))
    assert len(asked) > len(world.space.points)
    parts = StateCount(world.space)
    for _ in asked:
        with pytest.raises(OutOfTime):
            parts.advance(over)
    parts.advance()
    assert parts.feasible() == count.feasible()


def test_rows_of_groups_after_the_budget_have_a_bound_and_no_picture_and_are_counted(tmp_path: Path) -> None:
    world = world_of(tmp_path / "world")
    strategy = Ranked().plan(world.space)
    list(strategy.choices())
    rows, complete = GroupStats().rows(world.subject, strategy.groups)
    cut, none = GroupStats().rows(world.subject, strategy.groups, over)
    assert (complete, none) == (len(rows), 0)
    assert all(row.nodes for row in rows)
    assert [replace(row, feasible=0, feasible_exact=True, nodes=(), edges=()) for row in cut] == [
        replace(row, feasible=0, feasible_exact=True, nodes=(), edges=()) for row in rows
    ]
    assert not any(row.nodes or row.edges or row.feasible_exact for row in cut)
    assert all(bound.feasible >= row.feasible for bound, row in zip(cut, rows, strict=True))


def test_ranking_ends_with_the_budget_and_leaves_out_what_only_orders_at_a_share_of_it(tmp_path: Path) -> None:
    world = world_of(tmp_path / "world")
    inferred: list[Behaviours] = []

    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        inferred.append(found)
        return Inferred((), (), "")

    options = Ranked(infer=infer)
    ranking = ranking_of(options, world.space, over)
    assert not inferred
    assert ranking.groups
    assert "likely invariants" in ranking.evidence.note
    with pytest.raises(OutOfTime):
        ranking_of(options, world.space, over, over)


def test_the_share_of_signatures_is_of_64_points_at_least(tmp_path: Path) -> None:
    world = world_of(tmp_path / "world")
    share = SignatureShare(world.space)
    for state in states_of_deviation(world.space, 0):
        share.test(state)
    assert share.counts(frozenset(), over) == share.counts(frozenset())
