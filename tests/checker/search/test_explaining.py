"""Explaining runs beside the search: what is found depends on results alone, and nothing waits unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.checker.budget import BrokenOff, Budget, Meter, Progress
from crashcheck.checker.findings.cause import Cause
from crashcheck.checker.findings.classify import Classifier
from crashcheck.checker.results import FindingKind, StopReason, Verdict
from crashcheck.checker.search import crash_states
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.search.failures import FailedOnce, Failures
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Exhaustive, Ranked, Strategy
from crashcheck.checker.verdicts.verdict_cache import VerdictCache
from support.checked_worlds import World, persist, place, without_times, words
from support.tracing import TraceBuilder

BUGS, ROUNDS = 3, 4
LINE = 64
SITES = {
    **{1 + bug: place(10 + bug, f"value{bug}") for bug in range(BUGS)},
    **{11 + bug: place(30 + bug, f"flag{bug}") for bug in range(BUGS)},
    21: place(50, "head"),
    22: place(51, "tail"),
    31: place(60, "lost"),
}
CLAIMS = [f"{2 * bug * LINE + LINE}>{2 * bug * LINE}" for bug in range(BUGS)]
HEAD, TAIL = 1024, 1024 + LINE
ARGUMENTS = ["{pool}/p", "{acked}", *CLAIMS, f"{HEAD}={TAIL}"]  # of the check


def store(t: TraceBuilder, site: int, offset: int, value: int) -> None:
    t.site = site
    t.store("p", offset, 8, value)
    t.site = 0


def program(t: TraceBuilder) -> None:
    """In each round: flags that may persist before their values, and two words that must be equal."""
    for number in range(ROUNDS):
        t.begin(number + 1)
        for bug in range(BUGS):
            store(t, 1 + bug, 2 * bug * LINE, number + 1)
            store(t, 11 + bug, (2 * bug + 1) * LINE, number + 1)
        persist(t, *(at * LINE for at in range(2 * BUGS)))
        store(t, 21, HEAD, number + 1)
        persist(t, HEAD)
        store(t, 22, TAIL, number + 1)
        persist(t, TAIL)
        t.end(number + 1)


@pytest.fixture
def world(tmp_path: Path, clauses: Path) -> World:
    check = words([str(clauses), *ARGUMENTS])
    return World(tmp_path / "world", check, program, sites=SITES)


def search(world: World, strategy: Strategy, jobs: int, states: int | None) -> SearchResult:
    with world.executor(jobs) as executor:
        budget = Budget(states=states)
        return without_times(world.search(executor, strategy=strategy, budget=budget, snapshot=world.real_snapshot))


@pytest.mark.parametrize("states", [10, 80])
@pytest.mark.parametrize("strategy", [Ranked(), Exhaustive()], ids=["ranked", "exhaustive"])
def test_a_program_with_many_bugs_has_one_report_for_any_number_of_workers(
    world: World, strategy: Strategy, states: int
) -> None:
    one = search(world, strategy, 1, states)
    assert one.states.executed == states
    for jobs in (2, 3):
        assert search(world, strategy, jobs, states) == one


def test_all_bugs_are_found_and_every_failing_state_is_counted_once(world: World) -> None:
    found = search(world, Exhaustive(), 2, None)
    assert found.stop_reason is StopReason.EXHAUSTED
    blamed = {(finding.kind, finding.location.variable) for finding in found.findings}
    assert blamed >= {(FindingKind.ORDERING, f"flag{bug}") for bug in range(BUGS)}
    assert (FindingKind.ATOMICITY, "head") in blamed
    assert sum(finding.states for finding in found.findings) == found.states.failing
    assert not found.warnings


def test_the_search_continues_while_a_failure_is_diagnosed(world: World) -> None:
    with world.executor(2) as executor:
        shown: list[Progress] = []
        world.search(executor, strategy=Ranked(), budget=Budget(states=60), progress=shown.append)
    explaining = [progress.executed for progress in shown if progress.explaining]
    assert explaining[-1] > explaining[0]


@pytest.mark.parametrize("runs", [12, 20, 24, 40, 60])
@pytest.mark.parametrize("strategy", [Ranked(), Exhaustive()], ids=["ranked", "exhaustive"])
def test_what_failed_and_was_not_diagnosed_in_time_is_reported(world: World, strategy: Strategy, runs: int) -> None:
    """By a clock that counts runs of the check, a second each."""
    failing: set[bytes] = set()
    with world.executor(1) as executor, pytest.MonkeyPatch.context() as patched:
        patched.setattr(crash_states, "Meter", lambda budget: Meter(budget, clock=lambda: executor.executed))
        add = Failures.add

        def note(failures: Failures, failure: FailedOnce) -> None:
            failing.add(failure.candidate.fingerprint)
            add(failures, failure)

        patched.setattr(Failures, "add", note)
        found = world.search(executor, strategy=strategy, budget=Budget(seconds=runs))
    assert found.stop_reason is StopReason.BUDGET_SECONDS
    waiting = [text for text in found.warnings if "were run again and" in text]
    counts = [int(text.removeprefix("the search ended before ").split()[0]) for text in waiting]
    assert -1 <= len(failing) - found.states.failing - sum(counts) <= 0  # the last one counts twice
    assert bool(failing) == bool(found.uncertain or found.findings)


@pytest.mark.parametrize("jobs", [1, 3])
@pytest.mark.parametrize("explained", [0, 2])
@pytest.mark.parametrize("reason", [StopReason.INTERRUPTED, StopReason.DISK_FULL, StopReason.WORKER_LOST])
def test_what_is_broken_off_while_it_is_diagnosed_is_reported(
    tmp_path: Path, clauses: Path, reason: StopReason, explained: int, jobs: int
) -> None:
    """By Ctrl-C, by a full disk, and by kill -9 of a worker, when so many failures have a cause."""
    last = tmp_path / "last"
    check = words(["sh", "-c", f'[ -e {last} ] && kill -KILL $PPID; exec "$@"', "-", str(clauses), *ARGUMENTS])
    world = World(tmp_path / "world", check, program, sites=SITES)
    failing: set[bytes] = set()
    with world.executor(jobs) as executor, pytest.MonkeyPatch.context() as patched:
        left = iter(range(explained))
        decide, add = Classifier.decide, Failures.add

        def broken_off(classifier: Classifier, state: CrashState, verdict: Verdict) -> Cause:
            if next(left, None) is None:
                if reason is StopReason.INTERRUPTED:
                    raise KeyboardInterrupt
                if reason is StopReason.DISK_FULL:
                    raise BrokenOff("disk-full-checking", "no room", "Free some.")
                last.touch()
            return decide(classifier, state, verdict)

        def note(failures: Failures, failure: FailedOnce) -> None:
            failing.add(failure.candidate.fingerprint)
            add(failures, failure)

        patched.setattr(Classifier, "decide", broken_off)
        patched.setattr(Failures, "add", note)
        found = world.search(executor, strategy=Ranked())
    assert found.stop_reason is reason
    assert len(found.findings) == explained or found.uncertain
    waiting = [text for text in found.warnings if "were run again and" in text]
    counts = [int(text.removeprefix("the search ended before ").split()[0]) for text in waiting]
    assert 0 <= found.states.failing + sum(counts) - len(failing) <= 1  # the last one may count twice


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_expected_and_not_asked_for_counts_nowhere(world: World, jobs: int) -> None:
    """A run that is begun before it is asked for has the verdict of one that is begun when it is."""
    states = [world.subject.space.full(point) for point in range(len(world.subject.space.points))]
    with world.executor(jobs) as executor:
        expected, plain = (VerdictCache(executor, world.content, Meter(Budget())) for _ in range(2))
        expected.allow(len(states))
        plain.allow(len(states))
        for number, state in enumerate(states):
            expected.expect(states[number + 1 :: 2])
            if number % 3:
                assert expected.verdict(state).outcome is plain.verdict(state).outcome
                assert expected.runs == plain.runs


def test_a_run_that_is_expected_is_begun_while_another_is_awaited(world: World) -> None:
    states = [world.subject.space.full(point) for point in range(3)]
    with world.executor(2) as executor:
        verdicts = VerdictCache(executor, world.content, Meter(Budget()))
        verdicts.allow(3)
        begun: list[CrashState] = []
        submit = executor.submit_likely

        def noted(state: CrashState, *, most_s: float | None = None) -> int:
            begun.append(state)
            return submit(state, most_s=most_s)

        executor.submit_likely = noted  # type: ignore[method-assign]
        verdicts.expect(states[1:])
        verdicts.verdict(states[0])
        asked = executor.executed
        verdicts.verdict(states[1])
        assert begun == states[1:]
        assert executor.executed == asked + 1
