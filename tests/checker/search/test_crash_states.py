"""The search ends as it should, counts honestly, and finds the same with any number of workers."""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from crashcheck.analyzer.behaviours import Behaviours
from crashcheck.analyzer.invariants import Inferred
from crashcheck.analyzer.trace.reader import Facts
from crashcheck.checker.budget import Budget, Meter, Progress
from crashcheck.checker.evidence import RecoveryCrash
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.oracles.exit_status import ExitStatus
from crashcheck.checker.replay import replay
from crashcheck.checker.results import Finding, FindingKind, StopReason, Verdict
from crashcheck.checker.search.crash_states import SearchResult
from crashcheck.checker.search.recovery import DURING, Recovery, RecoverySearch
from crashcheck.checker.states.space import CrashState
from crashcheck.checker.strategies import Bounded, Exhaustive, Ranked, Strategy, Witcher
from crashcheck.checker.token import Token
from crashcheck.errors import CrashcheckError
from crashcheck.interruption import KeepOn
from crashcheck.stages.uncrashed import uncrashed
from support.checked_worlds import STEPS, VALID, VALUE, World, put_flag_first, two_steps, without_times, words
from support.tracing import TraceBuilder


@pytest.fixture
def buggy(tmp_path: Path, clauses: Path) -> World:
    check = words([str(clauses), "{pool}/p", "{acked}", "64>0", "320>256", "576>512", "832>768"])
    return World(tmp_path / "buggy", check, lambda t: put_flag_first(t, 4), sites={1: VALUE, 2: VALID})


def test_findings_do_not_depend_on_the_number_of_workers(buggy: World) -> None:
    found = [without_times(buggy.explore(jobs=jobs)) for jobs in (1, 2, 3)]
    assert found[0] == found[1] == found[2]
    assert len(found[0].findings) == 1


def test_a_search_notes_after_how_many_states_and_seconds_it_found_each_finding(buggy: World) -> None:
    found = buggy.explore(jobs=1)
    (when,) = found.discoveries
    assert when.finding == found.findings[0].id
    assert 0 < when.seconds <= found.seconds
    cut_short = buggy.explore(jobs=1, budget=Budget(states=when.states))
    assert len(cut_short.findings) == 1
    assert when.states == 1 or not buggy.explore(jobs=1, budget=Budget(states=when.states - 1)).findings


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_budget_of_states_is_kept_exactly(buggy: World, jobs: int) -> None:
    found = buggy.explore(jobs=jobs, budget=Budget(states=5))
    assert found.stop_reason is StopReason.BUDGET_STATES
    assert (found.states.executed, found.states.skipped) == (5, 1)
    assert found.states.feasible == 17


def search(world: World, strategy: Strategy, budget: Budget | None = None) -> SearchResult:
    with world.executor(1) as executor:
        return world.search(executor, budget=budget, strategy=strategy)


def never(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
    """Likely invariants that are inferred for ever."""
    while True:
        keep_on()


def test_a_budget_of_seconds_ends_the_inference_of_likely_invariants_with_a_warning(
    buggy: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = count(step=0.001)  # a millisecond goes by each time that somebody looks
    monkeypatch.setattr("crashcheck.checker.search.crash_states.Meter", partial(Meter, clock=lambda: next(ticks)))
    found = search(buggy, Ranked(infer=never), Budget(seconds=60))
    assert found.stop_reason is StopReason.EXHAUSTED
    assert len(found.findings) == 1
    (warning,) = found.warnings
    assert warning.startswith("likely invariants were not inferred: ")

    found = search(buggy, Witcher(infer=never), Budget(seconds=60))
    assert found.stop_reason is StopReason.BUDGET_SECONDS
    assert found.states.executed == 0
    assert found.warnings == (
        "no state was executed: the budget's seconds ended while likely invariants were inferred",
    )


@pytest.mark.parametrize("kind", [Ranked, Witcher])
def test_ctrl_c_while_the_search_is_prepared_ends_it_without_findings(
    buggy: World, kind: type[Ranked] | type[Witcher]
) -> None:
    def infer(found: Behaviours, facts: Facts | None, /, *, keep_on: KeepOn) -> Inferred:
        os.kill(os.getpid(), signal.SIGINT)
        return never(found, facts, keep_on=keep_on)

    found = search(buggy, kind(infer=infer))
    assert found.stop_reason is StopReason.INTERRUPTED
    assert (found.states.executed, found.findings) == (0, ())


def test_a_budget_of_seconds_ends_a_search_even_while_a_check_hangs(tmp_path: Path) -> None:
    world = World(tmp_path / "world", words(["sleep", "1000"]), two_steps, limits=Limits(timeout_s=900))
    found = world.explore(budget=Budget(seconds=0.5))
    assert found.stop_reason is StopReason.BUDGET_SECONDS
    assert found.states.executed == 0
    assert found.states.skipped > 0


def test_executed_and_pruned_are_all_that_was_produced(tmp_path: Path) -> None:
    def same_bytes(t: TraceBuilder) -> None:
        t.store("p", 0, 8, 1)
        t.store("p", 0, 8, 1)
        t.clwb("p", 0)
        t.sfence()

    found = World(tmp_path / "world", words(["true"]), same_bytes).explore()
    assert (found.states.executed, found.states.pruned, found.states.feasible) == (2, 1, 3)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_search_gives_what_it_had(buggy: World, number: signal.Signals) -> None:
    sent: list[int] = []

    def interrupt(progress: Progress) -> None:
        if progress.findings and not sent:
            sent.append(number)
            os.kill(os.getpid(), number)

    with buggy.executor() as executor:
        found = buggy.search(executor, progress=interrupt)
        home = executor.home
    assert found.stop_reason is StopReason.INTERRUPTED
    assert len(found.findings) == 1
    assert found.states.executed < found.states.feasible
    assert not home.exists()


def test_progress_ends_with_the_final_counts(buggy: World) -> None:
    seen: list[Progress] = []
    with buggy.executor() as executor:
        found = buggy.search(executor, progress=seen.append, budget=Budget(seconds=600))
    last = seen[-1]
    assert (last.executed, last.failing, last.findings) == (found.states.executed, found.states.failing, 1)
    assert 0 < last.elapsed_s <= found.seconds


def test_a_bounded_strategy_tests_small_deviations_only(buggy: World) -> None:
    with buggy.executor() as executor:
        found = buggy.search(executor, strategy=Bounded(0))
    assert found.states.executed < found.states.feasible
    assert found.findings == ()


def test_uncrashed_images_that_pass_let_the_search_begin(buggy: World) -> None:
    with buggy.executor() as executor:
        uncrashed(executor, first=True)


@pytest.mark.parametrize(
    ("command", "slug"),
    [
        ("echo broken; test $(od -An -tu8 -N8 {pool}/p) = 0", "check-rejects-final"),
        ("echo broken; test $(od -An -tu8 -N8 {pool}/p) != 0", "check-rejects-first"),
    ],
)
@pytest.mark.parametrize("memory", [None, 1 << 30])
def test_a_check_that_rejects_an_uncrashed_image_is_shown(
    tmp_path: Path, command: str, slug: str, memory: int | None
) -> None:
    world = World(tmp_path / "world", words(command), two_steps, limits=Limits(memory_bytes=memory))
    with world.executor() as executor:
        with pytest.raises(CrashcheckError) as caught:
            uncrashed(executor, first=True, shown_pools=("/run/pool", "/run/first"))
        if slug == "check-rejects-first":
            uncrashed(executor, first=False)
    assert caught.value.slug == slug
    assert caught.value.exit_code == 2
    assert "  | broken" in caught.value.message
    assert ": exit status 1\n" in caught.value.message
    assert ("/run/pool/p" if slug == "check-rejects-final" else "/run/first/p") in caught.value.hint
    assert ("may allocate no more than" in caught.value.hint) == bool(memory)


def test_a_check_of_a_file_that_the_workload_did_not_leave_is_shown_what_it_left(tmp_path: Path) -> None:
    left = tmp_path / "left"
    left.mkdir()
    for name in "fedcba":
        (left / name).touch()
    for number, (command, hint) in enumerate(
        [
            ("test -e {pool}/data/p", "The workload left no {pool}/data/p, but a, b, c, d, e and 1 more. "),
            ("test -e {pool}/a && false", ""),
            ("ls {pool}/*.db", ""),
        ]
    ):
        world = World(tmp_path / str(number), words(command), two_steps)
        with world.executor() as executor, pytest.raises(CrashcheckError) as caught:
            uncrashed(executor, first=False, shown_pools=(str(left), "/run/first"))
        assert caught.value.hint.startswith(f"{hint}Try it yourself")


def test_where_the_trace_lacks_updates_that_is_why_the_final_image_is_rejected(tmp_path: Path) -> None:
    world = World(tmp_path / "world", words("test $(od -An -tu8 -N8 {pool}/p) = 0"), two_steps)
    lacks = "p: 8 bytes at 0x40–0x47 are not accounted for"
    with world.executor() as executor, pytest.raises(CrashcheckError) as caught:
        uncrashed(executor, first=True, trace_lacks=lambda: (lacks,))
    assert caught.value.slug == "trace-lacks-updates"
    assert lacks in caught.value.message


def shown_again(world: World, finding: Finding, image: Path) -> Verdict:
    token = Token.parse(finding.replay)
    with world.executor() as executor:
        return replay(token, world.subject, executor, image).verdict


def test_a_token_replays_its_finding_and_keeps_its_image(buggy: World, tmp_path: Path) -> None:
    finding = buggy.explore().findings[0]
    verdict = shown_again(buggy, finding, tmp_path / "image")
    assert (verdict.outcome, verdict.output) == (finding.evidence.verdict.outcome, finding.evidence.verdict.output)
    data = (tmp_path / "image" / "p").read_bytes()
    assert (data[0], data[64]) == (0, 1)


def test_a_token_for_another_model_is_refused(buggy: World, tmp_path: Path) -> None:
    finding = buggy.explore().findings[0]
    token = replace(Token.parse(finding.replay), model="eadr")
    with buggy.executor() as executor, pytest.raises(CrashcheckError) as caught:
        replay(token, buggy.subject, executor, tmp_path / "image")
    assert caught.value.slug == "token-other-model"


@pytest.mark.parametrize(
    "state", [CrashState(10_000, True, ()), CrashState(0, True, (3,)), CrashState(0, True, (1 << 30,))]
)
def test_a_token_for_no_state_is_refused(buggy: World, tmp_path: Path, state: CrashState) -> None:
    token = Token.parse(buggy.explore().findings[0].replay)
    token = replace(token, levels=(replace(token.levels[0], state=state),))
    with buggy.executor() as executor, pytest.raises(CrashcheckError) as caught:
        replay(token, buggy.subject, executor, tmp_path / "image")
    assert caught.value.slug == "token-no-state"


def test_a_crash_of_the_recovery_is_found_at_depth_two(tmp_path: Path, clauses: Path) -> None:
    """The check repairs in two steps whose order nothing keeps: the recorded run of it is given here."""
    check = words([str(clauses), "{pool}/p", "{acked}", "320>256"])
    outer = World(tmp_path / "outer", check, two_steps, sites=STEPS)

    def repair(t: TraceBuilder) -> None:
        t.site = 1
        t.store("p", 256, 8, 1)
        t.site = 2
        t.store("p", 320, 8, 1)
        t.site = 0
        t.clwb("p", 320)
        t.sfence()

    asked: list[tuple[int, int]] = []

    def record(image: Path, acked: int, printed: int, work: Path) -> Recovery:
        asked.append((acked, printed))
        inner = World(
            work / "inner", check, repair, sites={1: replace(VALUE, variable="log"), 2: replace(VALUE, variable="done")}
        )
        return Recovery(inner.subject, image)

    deeper = RecoverySearch(record, outer.setup, lambda point: ExitStatus(), Exhaustive(), Limits(timeout_s=60))
    every = [outer.space.full(point) for point in range(len(outer.space.points))]
    full = list({outer.content.fingerprint(state): state for state in reversed(every)}.values())[::-1]
    assert len(full) == len(every) - 1  # two points leave the same image, which is searched once
    with outer.executor() as executor:
        found = deeper.search(outer.subject, executor, every, Budget())
        finding = found.findings[0]
        again = replay(Token.parse(finding.replay), outer.subject, executor, tmp_path / "image", deeper)
    assert len(found.findings) == 1
    assert finding.kind is FindingKind.RECOVERY_FAILURE
    assert isinstance(finding.evidence, RecoveryCrash)
    assert finding.states == len(full)
    assert finding.message == DURING + "`done` can survive a crash without `log` (hash.c:40)"
    assert asked[: len(full)] == [(outer.space.points[state.point].acked, 0) for state in full]
    assert not again.verdict.passed
    assert (tmp_path / "image" / "p").read_bytes()[320] == 1
