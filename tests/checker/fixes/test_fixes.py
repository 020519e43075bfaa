"""Which fix is proposed for which bug, and how it is described, on small recorded runs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from crashcheck.checker.budget import Budget, Left, OutOfTime, endless, within
from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.findings.register import Bug
from crashcheck.checker.fixes import reexplore
from crashcheck.checker.fixes.edited_trace import Counterparts, edited
from crashcheck.checker.fixes.reexplore import PlannedStates, Reexploration
from crashcheck.checker.results import Fix, Outcome, Verdict
from crashcheck.checker.search.crash_states import Search
from crashcheck.checker.search.timeouts import KnownTimeouts, Patience
from crashcheck.checker.states.signature import by_call
from crashcheck.checker.states.space import CrashState, StateSpace
from crashcheck.checker.strategies import Exhaustive, Plan
from crashcheck.checker.strategies.plan import Listed
from crashcheck.checker.verdicts.executor import Executor
from crashcheck.interruption import always
from support.checked_worlds import ENTRY_SITES, World, apply_log, words
from support.tracing import TraceBuilder

Propose = Callable[..., list[Fix]]


def put(
    t: TraceBuilder, at: int, flush: bool = False, fence: bool = False, late: bool = True, acked: bool = False
) -> None:
    """A value (site 1, its own line), then a flag (site 2, the next line), with or without what orders them."""
    t.site = 1
    t.store("p", at, 8, 7)
    t.site = 4
    if flush:
        t.clwb("p", at)
    if fence:
        t.sfence()
    t.site = 2
    t.store("p", at + 64, 8, 1)
    t.site = 0
    t.clwb("p", at + 64)
    if late:
        t.clwb("p", at)
    t.sfence()


def each(**how: bool) -> Callable[[TraceBuilder], None]:
    def script(t: TraceBuilder) -> None:
        for number in range(1, 4):
            t.begin(number)
            put(t, 256 * (number - 1), **how)
            t.end(number)

    return script


ORDERED = ("64>0", "320>256", "576>512")


def costs(fix: Fix) -> tuple[int, int, int]:
    return fix.extra_flushes, fix.extra_fences, fix.extra_syncs


def test_where_the_flush_is_there_only_a_fence_is_added(propose: Propose) -> None:
    (fix,) = propose(each(flush=True, late=False), *ORDERED)
    assert (fix.kind, costs(fix)) == ("fence", (0, 3, 0))
    assert fix.words == "a fence before `entry.valid` at hash.c:42"
    assert (fix.before_failing, fix.after_failing) == (3, 0)
    assert fix.verified == (
        "All 3 failing crash states pass with this change on the recorded run, and so do 10 related ones; "
        "strategy exhaustive plans no other state"
    )


def before_two_flags(t: TraceBuilder) -> None:
    """A value whose flush has no fence, then a flag; and the same again with a flag of another place."""
    for at, flag in ((0, 2), (256, 3)):
        t.site = 1
        t.store("p", at, 8, 7)
        t.site = 5
        t.clwb("p", at)
        t.site = flag
        t.store("p", at + 64, 8, 1)
        t.site = 0
        t.clwb("p", at + 64)
        t.sfence()


def test_an_edit_that_leaves_the_same_loss_open_elsewhere_is_not_enough(propose: Propose) -> None:
    """The search ended before it had met the second flag: a fence before the first fixes all that it had found."""
    (fix,) = propose(before_two_flags, "64>0", "320>256", states=5)
    assert fix.words == "a fence after the flush at hash.c:44"
    assert (fix.before_failing, fix.after_failing, costs(fix)) == (2, 0, (0, 2, 0))


@contextmanager
def retried(
    tmp_path: Path, clauses: Path, *claims: str
) -> Iterator[tuple[Executor, Callable[[], reexplore.Reexplored]]]:
    """After a search of five states of `before_two_flags`: the executor, and exploring again what changes nothing."""
    check = words([str(clauses), "{pool}/p", "{acked}", *claims])
    world = World(tmp_path / "world", check, before_two_flags, sites=ENTRY_SITES)
    subject = world.subject
    unchanged = Counterparts(subject.space, edited(subject.graph, ()))
    values = np.flatnonzero(subject.trace.events["site"] == 1)
    with world.executor() as executor:
        exploring = Search(subject, executor, Exhaustive(), Budget(states=5))
        exploring.run()
        (bug,) = exploring.register.bugs()
        again = retrial_of(world, executor, exploring, bug)
        yield executor, lambda: again.explore(unchanged, values, values, math.inf)


def test_what_failed_with_one_edit_is_not_checked_again_with_the_next(
    tmp_path: Path, clauses: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with retried(tmp_path, clauses, "64>0", "320>256") as (executor, again):
        assert again().failing == 1
        asked: list[CrashState] = []
        submit = executor.submit
        monkeypatch.setattr(executor, "submit", lambda state: asked.append(state) or submit(state))
        assert again().failing == 0
    assert asked == []


def test_a_check_that_is_only_slow_does_not_count_against_a_fix(tmp_path: Path, clauses: Path) -> None:
    """It needs more than the time that the uncrashed images suggest, where the second value is lost."""
    with retried(tmp_path, clauses, "64>0", "@320>256") as (executor, again):
        executor.set_timeout(TimeLimit(0.1))
        outcome = again()
        assert executor.short is not None
        assert executor.short.wall_s > 0.1
    assert (outcome.failing, outcome.whole, outcome.in_time) == (0, True, True)
    assert outcome.others == 1  # the one that the search had found


@pytest.mark.parametrize("spent", [False, True])
def test_what_hangs_counts_once_the_whole_limit_has_confirmed_it(
    tmp_path: Path, clauses: Path, monkeypatch: pytest.MonkeyPatch, spent: bool
) -> None:
    """Where the time for that is spent, the report states that not everything was tested."""
    check = words([str(clauses), "{pool}/p", "{acked}", "64>0", "~320>256"])
    world = World(tmp_path / "world", check, before_two_flags, sites=ENTRY_SITES, limits=Limits(timeout_s=0.5))
    subject = world.subject
    unchanged = Counterparts(subject.space, edited(subject.graph, ()))
    values = np.flatnonzero(subject.trace.events["site"] == 1)
    with world.executor() as executor:
        exploring = Search(subject, executor, Exhaustive(), Budget(states=5))
        exploring.run()
        (bug,) = exploring.register.bugs()
        executor.set_timeout(TimeLimit(0.1))
        again = retrial_of(world, executor, exploring, bug)
        ends = math.inf
        if spent:
            asked = executor.result

            def result(ticket: int, timeout_s: float | None = None) -> Verdict | None:
                verdict = asked(ticket, timeout_s)
                if verdict is not None and verdict.outcome is Outcome.TIMEOUT:
                    monkeypatch.setattr(reexplore, "time", SimpleNamespace(monotonic=lambda: math.inf))
                return verdict

            monkeypatch.setattr(executor, "result", result)
            ends = time.monotonic() + 1e5
        outcome = again.explore(unchanged, values, values, ends)
    assert (outcome.failing, outcome.whole, outcome.in_time) == ((0, False, False) if spent else (1, True, True))


def retrial_of(world: World, executor: Executor, exploring: Search, bug: Bug) -> Reexploration:
    order = PlannedStates(choice.state for choice in Exhaustive().plan(world.space).choices())
    patience = Patience(executor, KnownTimeouts(by_call(world.subject.space)))
    return Reexploration(world.subject, executor, patience, order, exploring.register, exploring.tried(), None, bug, {})


def test_of_two_that_are_enough_the_one_that_runs_less_often_is_chosen(propose: Propose) -> None:
    (fix,) = propose(before_two_flags, "64>0")
    assert (fix.words, costs(fix)) == ("a fence before `entry.valid` at hash.c:42", (0, 1, 0))


def test_how_many_states_are_explored_again_is_bounded_by_a_number(
    propose: Propose, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reexplore, "MOST_STATES", 7)
    (fix,) = propose(each(flush=True, late=False), *ORDERED)
    assert fix.verified.endswith(" on the recorded run, and so do 7 related ones")


def test_it_is_reported_when_the_time_ended_first(propose: Propose) -> None:
    (fix,) = propose(each(flush=True, late=False), *ORDERED, seconds=0)
    assert fix.verified.endswith(" on the recorded run; the time for more states of strategy exhaustive was spent")


@dataclass(frozen=True)
class Preparing:
    """A strategy that has no more than some states ready in time."""

    ready: int
    name: str = "preparing"

    def plan(self, space: StateSpace, left: Left = endless) -> Plan:
        keep_on = within(left)

        def states() -> Iterator[CrashState]:
            for number, state in enumerate(Exhaustive().states(space)):
                if number == self.ready:
                    assert keep_on is not always
                    raise OutOfTime
                yield state

        return Listed(states())


def test_what_the_strategy_prepares_is_bounded_by_the_time_for_all_fixes(propose: Propose) -> None:
    """Each fix is described as unfinished, not the first alone."""
    claims = ("64>0", "1:1024")
    first, second = propose(value_and_more, *claims, strategy=Preparing(2), left=lambda: 1.0)
    for fix in (first, second):
        assert fix.verified.endswith("; the time for more states of strategy preparing was spent")


def test_what_a_run_of_stores_fills_is_flushed_once(propose: Propose) -> None:
    """Four words of one line: one flush after the last, not one after each."""

    def script(t: TraceBuilder) -> None:
        t.site = 1
        for at in range(0, 32, 8):
            t.store("p", at, 8, 7)
        t.site = 0
        t.sfence()
        t.site = 2
        t.store("p", 64, 8, 1)
        t.site = 0
        t.clwb("p", 64)
        t.sfence()

    (fix,) = propose(script, "64>24")
    assert (fix.words, costs(fix), fix.after_failing) == (
        "a flush of `entry.value` at hash.c:40 once all of it is stored: a fence follows already",
        (1, 0, 0),
        0,
    )


def test_where_the_fence_is_there_only_a_flush_is_added(propose: Propose) -> None:
    (fix,) = propose(each(fence=True), *ORDERED)
    assert (fix.kind, costs(fix)) == ("flush", (3, 0, 0))
    assert fix.words == "a flush of `entry.value` at hash.c:40 right after it is stored: a fence follows already"
    assert fix.after_failing == 0


def test_where_neither_is_there_both_are_added(propose: Propose) -> None:
    (fix,) = propose(each(), *ORDERED)
    assert (fix.kind, costs(fix), fix.after_failing) == ("flush-fence", (3, 3, 0), 0)
    assert (fix.edits[0].line, fix.edits[0].insert_before) == (40, False)
    assert [edit.text for edit in fix.edits] == ["flush", "fence"]


def test_no_fence_is_written_beside_a_flush_that_has_one(propose: Propose) -> None:
    (fix,) = propose(each(), *ORDERED, persists=True)
    assert [edit.text for edit in fix.edits] == ["flush"]
    assert costs(fix) == (3, 3, 0)


def test_what_is_acknowledged_but_not_flushed_is_flushed(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        for number in (1, 2):
            t.begin(number)
            t.site = 1
            t.store("p", 256 * (number - 1), 8, 7)
            t.site = 0
            t.sfence()
            t.end(number)

    (fix,) = propose(script, "1:0", "2:256")
    assert (fix.kind, costs(fix), fix.after_failing) == ("flush", (2, 0, 0), 0)


def test_in_a_page_cache_a_sync_is_added(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        t.site = 1
        t.store("p", 0, 8, 7)
        t.site = 2
        t.store("p", 2048, 8, 1)
        t.site = 0
        t.msync("p")

    (fix,) = propose(script, "2048>0", model="page-cache", options=_tear())
    assert (fix.kind, costs(fix), fix.after_failing) == ("sync", (0, 0, 1), 0)
    assert fix.words == "a sync of `entry.value` at hash.c:40 right after it is stored"


def _tear() -> object:
    from crashcheck.analyzer.persistence.graph import Options

    return Options(tear=512)


def test_of_several_stores_each_is_flushed_and_one_fence_is_enough(propose: Propose) -> None:
    """Two lines must persist before the flag: two flushes and one fence, not two of each."""

    def script(t: TraceBuilder) -> None:
        t.site = 1
        t.store("p", 0, 8, 7)
        t.site = 3
        t.store("p", 64, 8, 7)
        t.site = 2
        t.store("p", 128, 8, 1)
        t.site = 0
        for at in (0, 64, 128):
            t.clwb("p", at)
        t.sfence()

    for fix in propose(script, "128>0", "128>64"):
        assert fix.after_failing == 0
        assert costs(fix) == (2, 1, 0)


def test_an_edit_that_can_be_written_precedes_a_cheaper_one_that_cannot(propose: Propose) -> None:
    (fix,) = propose(each(flush=True, late=False), *ORDERED, unwritten=42)
    assert fix.edits
    assert fix.words == "a fence after the store at hash.c:40" or fix.edits[0].line != 42
    assert fix.after_failing == 0


def test_without_a_way_to_write_it_the_cheapest_is_described_in_words(propose: Propose) -> None:
    (fix,) = propose(each(fence=True), *ORDERED, unwritten=40)
    assert (fix.edits, fix.after_failing) == ((), 0)
    assert fix.no_edit == "a macro"


def value_and_more(t: TraceBuilder) -> None:
    t.begin(1)
    t.site = 3
    t.store("p", 1024, 8, 7)
    put(t, 0)
    t.end(1)


def test_another_bug_is_not_held_against_a_fix(propose: Propose) -> None:
    """The value is to persist before the flag, and `more` at the latest when the operation is acknowledged."""
    fixes = propose(value_and_more, "64>0", "1:1024")
    assert [(fix.kind, fix.after_failing) for fix in fixes] == [("flush-fence", 0), ("flush", 0)] or [
        (fix.kind, fix.after_failing) for fix in fixes
    ] == [("flush", 0), ("flush-fence", 0)]
    assert any("fail for another reason" in fix.verified for fix in fixes)


def test_two_updates_of_one_line_in_the_wrong_order_are_to_be_swapped(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        for at in (0, 256):
            t.site = 2
            t.store("p", at + 8, 8, 1)
            t.site = 1
            t.store("p", at, 8, 7)
            t.site = 0
            t.clwb("p", at)
            t.sfence()

    for fix in propose(script, "8>0", "264>256"):
        assert fix.kind == "atomic"
        assert fix.words.startswith("no flush is needed: store `entry.valid` at hash.c:42 last, after `entry.value`")
        assert fix.verified == "with the two swapped, the check passes on 2 of 2 crashes between them"
        assert fix.edits == ()


@pytest.mark.parametrize(
    ("size", "how"),
    [
        (8, "put both into one 8-byte store, or into a log"),
        (16, "log the old bytes first, or write a copy elsewhere and switch to it by one store"),
    ],
)
def test_two_updates_that_must_persist_together_need_one_store_or_a_log(propose: Propose, size: int, how: str) -> None:
    def script(t: TraceBuilder) -> None:
        t.site = 1
        t.store("p", 0, size, 7)
        t.clwb("p", 0)
        t.sfence()
        t.site = 2
        t.store("p", 64, 8, 7)
        t.clwb("p", 64)
        t.sfence()

    (fix,) = propose(script, "0=64")
    assert fix.kind == "atomic"
    assert fix.words == (
        f"no flush can help: `entry.value` at hash.c:40 and `entry.valid` at hash.c:42 must persist together; {how}"
    )


def test_all_of_a_section_that_is_not_atomic_must_persist_together(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        for site, at in ((1, 0), (1, 64), (2, 128)):
            t.site = site
            t.store("p", at, 8, 7)
            t.clwb("p", at)
            t.sfence()

    (fix,) = propose(script, "0=128")
    assert fix.kind == "atomic"
    assert fix.words.startswith(
        "no flush can help: all that is stored from `entry.value` at hash.c:40 to `entry.valid` at hash.c:42 must "
    )


def test_a_file_that_is_changed_in_steps_is_to_be_made_under_another_name(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        for offset in (64, 0):
            t.store("p", offset, 8, 7)
            t.clwb("p", offset)
            t.sfence()
        t.site = 2
        t.truncate("p", 64)
        t.site = 1
        t.store("p", 0, 8, 0)

    (fix,) = propose(script, "0>64")
    assert fix.words == (
        "no flush can help: the size 64 of p at hash.c:42 and `entry.value` at hash.c:40 must persist together; make p "
        "under another name and rename it, or let recovery accept it unfinished"
    )


def test_a_store_that_may_persist_in_part_cannot_be_fixed_by_a_flush(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        t.site = 1
        t.store("p", 0, 16, b"\7" + bytes(7) + b"\7" + bytes(7))
        t.clwb("p", 0)
        t.sfence()

    (fix,) = propose(script, "0=8")
    assert fix.words.startswith("no flush can help: `entry.value` at hash.c:40 persists in pieces of 8 bytes")


def test_what_a_write_to_two_pages_leaves_is_described_by_pages(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        t.site = 1
        t.write("p", 4088, b"\7" * 16)
        t.fsync("p")

    (fix,) = propose(script, "4088=4096", model="page-cache")
    assert "`entry.value` at hash.c:40 persists page by page, and the file's size apart" in fix.words


def test_what_was_not_stored_when_it_was_acknowledged_is_described_as_that(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        t.begin(1)
        t.end(1)
        t.site = 1
        t.store("p", 0, 8, 7)
        t.clwb("p", 0)
        t.sfence()

    (fix,) = propose(script, "1:0")
    assert fix.words == (
        "no flush can help: `entry.value` at hash.c:40 is stored only after the acknowledgement; acknowledge later"
    )


def test_of_several_stores_to_one_line_only_the_last_is_flushed(propose: Propose) -> None:
    def script(t: TraceBuilder) -> None:
        t.site = 1
        t.store("p", 0, 8, 7)
        t.site = 0
        t.store("p", 512, 8, 7)
        t.site = 3
        t.store("p", 8, 8, 7)
        t.site = 2
        t.store("p", 64, 8, 1)
        t.site = 0
        t.clwb("p", 64)
        t.sfence()

    for fix in propose(script, "64>0", "64>8"):
        assert fix.words == (
            "a flush of `entry.more` at hash.c:41 right after it is stored, "
            "and a fence before `entry.valid` at hash.c:42"
        )
        assert (costs(fix), fix.after_failing) == ((1, 1, 0), 0)


def test_an_edit_that_leaves_what_kill_shows_is_not_called_a_fix(propose: Propose) -> None:
    """Nothing applies the log again after a crash."""
    (fix, *_) = propose(apply_log, "64>0", "128>64", "64>128")
    assert fix.words == "none that is enough; the nearest: a fence before `entry.valid` at hash.c:42"
    assert (fix.before_failing, fix.after_failing) == (4, 1)
