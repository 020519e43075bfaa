"""Checks that hang: short limits are confirmed by long ones, and what looks like a known hang waits until the end."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crashcheck.checker.budget import Budget, Meter, OutOfTime
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.results import Outcome, StopReason, Verdict
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.search.timeouts import KnownTimeouts, Patience, raise_timeout, timeout_for
from crashcheck.checker.states.by_deviation import states_of_deviation
from crashcheck.checker.states.signature import by_call
from crashcheck.checker.strategies import Ranked
from crashcheck.checker.verdicts.verdict_cache import OutOfRuns, VerdictCache
from crashcheck.stages.uncrashed import uncrashed
from support.checked_worlds import VALID, VALUE, World, persist, place, put_flag_first, without_times, words
from support.tracing import TraceBuilder

SLOTS = 8
STATES = 22
SHORT_S, LONG_S = 0.1, 0.25


def world_of(folder: Path, clauses: Path, *claims: str, timeout_s: float = LONG_S) -> World:
    check = words([str(clauses), "{pool}/p", "{acked}", *claims])
    return World(
        folder,
        check,
        lambda t: put_flag_first(t, SLOTS),
        sites={1: VALUE, 2: VALID},
        limits=Limits(timeout_s=timeout_s),
    )


@pytest.fixture
def hanging(tmp_path: Path, clauses: Path) -> World:
    """KnownTimeouts wherever a flag has persisted without its value."""
    return world_of(tmp_path / "world", clauses, *(f"~{at + 64}>{at}" for at in range(0, SLOTS * 256, 256)))


def explore(world: World, *, jobs: int = 1, budget: Budget | None = None) -> SearchResult:
    with world.executor(jobs) as executor:
        executor.set_timeout(TimeLimit(SHORT_S))
        return world.search(executor, budget=budget, strategy=Ranked())


def test_a_hang_is_one_finding_that_the_whole_limit_has_confirmed(hanging: World) -> None:
    found = explore(hanging)
    assert [finding.evidence.verdict.outcome for finding in found.findings] == [Outcome.TIMEOUT]
    assert found.findings[0].evidence.verdict.seconds >= LONG_S
    assert found.findings[0].location.variable == "entry.valid"
    assert found.stop_reason is StopReason.EXHAUSTED
    assert found.states.executed == found.states.feasible
    assert found.states.failing == SLOTS
    assert found.warnings == ()


def test_states_similar_to_a_known_hang_are_postponed_and_counted_where_they_were_not_run(hanging: World) -> None:
    found = explore(hanging, budget=Budget(states=STATES))
    everything = explore(hanging)
    assert found.states.executed == STATES
    assert found.states.failing < everything.states.failing * STATES // everything.states.executed
    assert found.states.put_off > 0
    assert found.states.skipped == found.states.put_off + 1
    assert everything.states.put_off == everything.states.skipped == 0


def test_what_is_postponed_does_not_depend_on_the_number_of_workers(hanging: World) -> None:
    found = [without_times(explore(hanging, jobs=jobs, budget=Budget(states=STATES))) for jobs in (1, 2, 3)]
    assert found[0] == found[1] == found[2]


def test_another_bug_with_another_signature_is_found_among_hangs(tmp_path: Path, clauses: Path) -> None:
    """The last flag without its value fails in another way. It is similar to the hangs: it is postponed, and found."""
    claims = [f"~{at + 64}>{at}" for at in range(0, (SLOTS - 1) * 256, 256)]
    last = (SLOTS - 1) * 256
    found = explore(world_of(tmp_path / "world", clauses, *claims, f"{last + 64}>{last}"))
    assert found.states.failing == SLOTS
    assert found.stop_reason is StopReason.EXHAUSTED


def test_a_check_that_is_slow_but_ends_is_no_finding(tmp_path: Path) -> None:
    """It needs twice what it is given first."""
    command = f"sleep {2 * SHORT_S}"
    world = World(tmp_path / "world", words(command.split()), lambda t: put_flag_first(t, 1))
    with world.executor() as executor:
        executor.set_timeout(TimeLimit(SHORT_S))
        found = world.search(executor)
        assert executor.short is not None
        assert executor.short.wall_s >= 2 * SHORT_S
    assert (found.findings, found.warnings, found.states.failing, found.states.flaky) == ((), (), 0, 0)


def test_the_uncrashed_runs_decide_how_long_a_check_may_take(hanging: World) -> None:
    assert (timeout_for(0.01), timeout_for(0.5)) == (TimeLimit(1.0, 0.2), TimeLimit(5.0, 5.0))
    with hanging.executor() as executor:
        assert executor.short is None
        uncrashed(executor, first=True)
        assert executor.short is None  # the configured limit is less than a second
    patient = replace(hanging, folder=hanging.folder / "again", limits=Limits(timeout_s=60))
    with patient.executor() as executor:
        uncrashed(executor, first=True)
        assert executor.short is not None
        assert 1.0 <= executor.short.wall_s < 60


def test_what_explains_a_hang_has_its_share_of_the_seconds_and_the_last_word_is_outside_it(hanging: World) -> None:
    now = [0.0]
    with hanging.executor() as executor:
        executor.set_timeout(TimeLimit(SHORT_S))
        state = next(s for s in states_of_deviation(hanging.space, 1) if not executor.run(s).passed)
        verdicts = VerdictCache(executor, hanging.content, Meter(Budget(seconds=100), clock=lambda: now[0]))
        verdicts.allow(400, share=0.25)
        now[0] = 24.0
        hang = verdicts.again(state)
        now[0] = 26.0
        with pytest.raises(OutOfRuns):
            verdicts.again(state)
        assert (verdicts.confirm(state, hang), verdicts.runs) == (True, 2)
        assert (verdicts.confirm(state, hang), verdicts.runs) == (True, 2)  # all the time once


def test_explaining_one_failure_leaves_half_of_the_seconds_to_the_search_until_the_last_quarter(hanging: World) -> None:
    now = [0.0]
    with hanging.executor() as executor:
        state = hanging.space.full(0)
        verdicts = VerdictCache(executor, hanging.content, Meter(Budget(seconds=100), clock=lambda: now[0]))
        verdicts.allow(400, verdicts.fair_share(0.5))
        now[0] = 49.0
        verdicts.again(state)
        now[0] = 51.0
        with pytest.raises(OutOfRuns):
            verdicts.again(state)
        now[0] = 76.0
        verdicts.allow(400, verdicts.fair_share(0.5))
        now[0] = 99.0
        verdicts.again(state)


def test_no_run_for_a_fix_takes_longer_than_what_is_left_and_none_begins_when_nothing_is(hanging: World) -> None:
    """A hang under the limit of what is left shows nothing; one under the check's own limit is a hang."""
    left: list[float] = []
    slow = replace(hanging, folder=hanging.folder / "again", limits=Limits(timeout_s=60))
    with slow.executor() as executor:
        state = next(s for s in states_of_deviation(slow.space, 1) if not executor.run(s, most_s=SHORT_S).passed)
        patience = Patience(executor, KnownTimeouts(by_call(slow.space)), lambda: left.pop(0))
        left = [SHORT_S, 0.0]
        with pytest.raises(OutOfTime):
            patience.run(state)
        executed, left = executor.executed, [0.0]
        with pytest.raises(OutOfTime):
            patience.again(state)
        assert executor.executed == executed
        left = [SHORT_S, 1.0]
        assert patience.again(state).outcome is Outcome.TIMEOUT


def test_of_hangs_that_differ_the_first_is_explained_at_once_and_the_others_in_the_end(
    tmp_path: Path, clauses: Path
) -> None:
    """Two flags without their values hang, by sites of their own; a third fails otherwise, and precedes them."""

    def three(t: TraceBuilder) -> None:
        for at, (value, valid) in ((0, (1, 2)), (256, (3, 4)), (512, (5, 6))):
            for site, offset in ((value, at), (valid, at + 64)):
                t.site = site
                t.store("p", offset, 8, 1)
                t.site = 0
            persist(t, at + 64)

    check = words([str(clauses), "{pool}/p", "{acked}", "~64>0", "~320>256", "576>512"])
    sites = {at: place(at, name) for at, name in enumerate(("a", "has_a", "b", "has_b", "c", "has_c"), 1)}
    limits = Limits(timeout_s=LONG_S)
    world = World(tmp_path / "world", check, three, sites=sites, limits=limits)
    with world.executor() as executor:
        executor.set_timeout(TimeLimit(SHORT_S))
        found = world.search(executor)
    assert [finding.location.variable for finding in found.findings] == ["has_a", "has_c", "has_b"]
    assert [finding.evidence.verdict.outcome for finding in found.findings] == [
        Outcome.TIMEOUT,
        Outcome.FAIL,
        Outcome.TIMEOUT,
    ]
    assert found.states.executed + found.states.pruned == found.states.feasible


def test_a_state_may_be_given_all_the_time_there_is(hanging: World) -> None:
    with hanging.executor() as executor:
        executor.set_timeout(TimeLimit(SHORT_S))
        state = next(s for s in states_of_deviation(hanging.space, 1) if not executor.run(s).passed)
        hasty, patient = executor.run(state), executor.run(state, patient=True)
    assert (hasty.outcome, patient.outcome) == (Outcome.TIMEOUT, Outcome.TIMEOUT)
    assert hasty.seconds >= SHORT_S
    assert patient.seconds >= LONG_S


@pytest.mark.parametrize(("short_s", "takes_s", "after_s"), [(2.0, 0.3, 3.0), (2.0, 0.1, 2.0), (None, 9.0, None)])
def test_a_limit_is_raised_by_a_check_that_takes_long_and_never_lowered(
    short_s: float | None, takes_s: float, after_s: float | None, tmp_path: Path, clauses: Path
) -> None:
    with world_of(tmp_path / "world", clauses, timeout_s=20).executor() as executor:
        if short_s is not None:
            executor.set_timeout(TimeLimit(short_s))
        raise_timeout(executor, Verdict(Outcome.PASS, 0, None, "", False, takes_s))
        assert (executor.short.wall_s if executor.short is not None else None) == after_s
