"""The loop searches anything: here integers, of which those divisible by seven are wrong. Counts are exact."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from crashcheck.checker.budget import BrokenOff, Budget, Meter, OutOfTime
from crashcheck.checker.results import StopReason
from crashcheck.checker.search import loop as loop_module
from crashcheck.checker.search.loop import Loop, Stopped
from crashcheck.checker.search.protocol import AWAIT, Candidate, Pause
from crashcheck.checker.verdicts.verdict_source import Awaited


@dataclass
class Integers:
    """Choices that are equal modulo `modulus`, as far as anyone can see from outside."""

    numbers: list[int | None]
    modulus: int = 1 << 30
    begun: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    under_way: int = 0
    most_under_way: int = 0

    def choices(self) -> Iterator[int | None]:
        yield from self.numbers

    def fingerprint(self, choice: int) -> bytes:
        return (choice % self.modulus).to_bytes(8, "little")

    def execute(self, candidate: Candidate[int]) -> Awaited[bool]:
        self.begun.append(candidate.choice)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        return lambda left_s: candidate.choice % 7 == 0

    def describe(self, choice: int) -> str:
        return f"the number {choice}"

    def take(self, candidate: Candidate[int], wrong: bool) -> None:
        self.under_way -= 1
        self.taken.append(candidate.choice)


def unlimited() -> Meter:
    return Meter(Budget())


def test_every_choice_is_executed_once_and_in_order() -> None:
    searched = Integers(list(range(20)))
    wrong: list[int] = []
    loop = Loop(searched, unlimited())
    stop = loop.run(lambda candidate, found: wrong.append(candidate.place) if found else None)
    assert stop is StopReason.EXHAUSTED
    assert searched.begun == list(range(20))
    assert wrong == [0, 7, 14]
    assert (loop.reached.executed, loop.reached.pruned, loop.reached.put_off, loop.reached.left) == (20, 0, 0, [])


def test_of_choices_with_equal_fingerprints_the_first_is_executed() -> None:
    searched = Integers([3, 13, 4, 23, 3], modulus=10)
    same: list[tuple[int, int]] = []
    loop = Loop(searched, unlimited(), pruned=lambda candidate, as_place: same.append((candidate.place, as_place)))
    assert loop.run(searched.take) is StopReason.EXHAUSTED
    assert (searched.begun, loop.reached.executed, loop.reached.pruned) == ([3, 4], 2, 3)
    assert same == [(1, 0), (3, 0), (4, 0)]


@pytest.mark.parametrize("ahead", [0, 1, 5, 100])
def test_results_are_taken_in_order_however_many_executions_are_under_way(ahead: int) -> None:
    searched = Integers(list(range(20)))
    assert Loop(searched, unlimited(), ahead=ahead).run(searched.take) is StopReason.EXHAUSTED
    assert searched.taken == list(range(20))
    assert searched.most_under_way == min(ahead + 1, 20)


@pytest.mark.parametrize("ahead", [0, 3, 100])
def test_a_budget_of_states_is_kept_exactly_and_what_was_begun_is_taken(ahead: int) -> None:
    searched = Integers(list(range(20)))
    loop = Loop(searched, Meter(Budget(states=5)), ahead=ahead)
    assert loop.run(searched.take) is StopReason.BUDGET_STATES
    assert searched.begun == searched.taken == [0, 1, 2, 3, 4]
    assert (loop.reached.executed, loop.reached.left) == (5, [(5, 5)])


def test_a_budget_of_states_that_is_just_enough_does_not_end_the_search() -> None:
    searched = Integers([0, 1, 2, 10, 11], modulus=10)
    loop = Loop(searched, Meter(Budget(states=3)))
    assert loop.run(searched.take) is StopReason.EXHAUSTED
    assert (loop.reached.executed, loop.reached.pruned) == (3, 2)


def test_a_result_may_cost_several_states_of_the_budget() -> None:
    searched = Integers(list(range(20)))
    loop = Loop(searched, Meter(Budget(states=10)), cost=lambda candidate, wrong: 8 if wrong else 1)
    assert loop.run(searched.take) is StopReason.BUDGET_STATES
    assert searched.taken == [0, 1, 2]  # 8 + 1 + 1
    assert loop.reached.left == [(3, 3)]


def test_a_budget_of_seconds_ends_the_search_at_the_next_choice() -> None:
    now = [0.0]
    searched = Integers([0, 1, 2, None, 3])

    def take(candidate: Candidate[int], wrong: bool) -> None:
        searched.take(candidate, wrong)
        now[0] += 1

    loop = Loop(searched, Meter(Budget(seconds=2), clock=lambda: now[0]), ahead=0)
    assert loop.run(take) is StopReason.BUDGET_SECONDS
    assert (searched.taken, loop.reached.left) == ([0, 1], [(2, 2)])


def test_once_something_is_found_the_search_ends_earlier_by_what_fixes_may_take() -> None:
    now = [0.0]
    searched = Integers([0, 1, 2, 3, 4, 5])
    meter = Meter(Budget(seconds=5, fixes_s=2), clock=lambda: now[0])

    def take(candidate: Candidate[int], wrong: bool) -> None:
        searched.take(candidate, wrong)
        now[0] += 1
        if candidate.choice == 1:
            meter.found(1)

    assert Loop(searched, meter, ahead=0).run(take) is StopReason.BUDGET_SECONDS
    assert (searched.taken, now[0], meter.left_s) == ([0, 1, 2], 3.0, 0.0)


def test_after_the_newest_finding_so_many_states_are_taken_and_never_more_than_the_budget() -> None:
    def taken(states: int | None) -> list[int]:
        searched = Integers(list(range(99)))
        meter = Meter(Budget(states=states, after_finding=9))

        def take(candidate: Candidate[int], wrong: bool) -> None:
            searched.take(candidate, wrong)
            if candidate.choice in (1, 5):
                meter.found(candidate.choice + 1)

        assert Loop(searched, meter, ahead=3).run(take) is StopReason.BUDGET_STATES
        return searched.taken

    assert taken(None) == list(range(15))
    assert taken(12) == list(range(12))


def test_no_choice_yet_is_a_moment_to_read_the_clock_and_is_not_left() -> None:
    now = iter([0.0, 0.0, 0.0, 9.0, 9.0])
    searched = Integers([None, None, None, 5])
    loop = Loop(searched, Meter(Budget(seconds=1), clock=lambda: next(now)))
    assert loop.run(searched.take) is StopReason.BUDGET_SECONDS
    assert (searched.begun, loop.reached.left) == ([], [])


def test_a_result_that_is_late_ends_the_search_and_all_that_wait_are_left() -> None:
    searched = Integers([1, 2, 3, 4])

    def execute(candidate: Candidate[int]) -> Awaited[bool]:
        return (lambda left_s: None) if candidate.choice == 2 else (lambda left_s: False)

    searched.execute = execute  # type: ignore[method-assign]
    loop = Loop(searched, unlimited(), ahead=2)
    assert loop.run(searched.take) is StopReason.BUDGET_SECONDS
    assert (searched.taken, loop.reached.left) == ([1], [(1, 2), (2, 3), (3, 4)])


def test_choices_that_are_postponed_are_last() -> None:
    searched = Integers(list(range(6)))
    loop = Loop(searched, unlimited(), put_off=lambda candidate: candidate.choice % 2 == 0)
    assert loop.run(searched.take) is StopReason.EXHAUSTED
    assert searched.taken == [1, 3, 5, 0, 2, 4]
    assert loop.reached.put_off == 0


def test_what_is_postponed_and_not_executed_is_counted_and_left() -> None:
    searched = Integers(list(range(6)))
    loop = Loop(searched, Meter(Budget(states=4)), put_off=lambda candidate: candidate.choice < 4)
    assert loop.run(searched.take) is StopReason.BUDGET_STATES
    assert searched.taken == [4, 5, 0, 1]
    assert (loop.reached.put_off, loop.reached.left) == (2, [(2, 2), (3, 3)])


@pytest.mark.parametrize("states", [None, 9])
@pytest.mark.parametrize("ahead", [0, 1, 2, 3, 50])
def test_what_is_postponed_depends_on_all_results_before_it_and_on_no_other(ahead: int, states: int | None) -> None:
    searched = Integers(list(range(30)))
    wrong: deque[int] = deque()

    def take(candidate: Candidate[int], found: bool) -> None:
        searched.take(candidate, found)
        if found:
            wrong.append(candidate.place)

    def soon_after_a_wrong_one(candidate: Candidate[int]) -> bool:
        return any(place < candidate.place < place + 4 for place in wrong)

    loop = Loop(searched, Meter(Budget(states=states)), ahead=ahead, put_off=soon_after_a_wrong_one)
    assert loop.run(take) is (StopReason.EXHAUSTED if states is None else StopReason.BUDGET_STATES)
    late = [at for at in range(30) if at % 7 in (1, 2, 3)]
    assert searched.taken == [*(at for at in range(30) if at not in late), *late][:states]
    if states is not None:
        assert (loop.reached.executed, loop.reached.put_off) == (9, 6)
        assert sorted(choice for _, choice in loop.reached.left) == [1, 2, 3, 8, 9, 10, 15]


@pytest.mark.parametrize("ahead", [0, 1, 5])
def test_what_may_wait_no_more_is_executed_in_its_turn_and_counts_for_the_budget(
    ahead: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop_module, "MOST_PUT_OFF", 2)
    searched = Integers(list(range(20)))
    loop = Loop(searched, Meter(Budget(states=6)), ahead=ahead, put_off=lambda candidate: candidate.choice > 2)
    assert loop.run(searched.take) is StopReason.BUDGET_STATES
    assert searched.taken == [0, 1, 2, 5, 6, 7]
    assert loop.reached.put_off == 2


@pytest.mark.parametrize("ahead", [0, 1, 5, 100])
@pytest.mark.parametrize("put_off", [0, 3])
def test_what_is_done_between_two_results_lets_the_loop_go_on_by_a_number_of_results(ahead: int, put_off: int) -> None:
    searched = Integers(list(range(20)))
    wrong: deque[int] = deque()
    order: list[str] = []

    def take(candidate: Candidate[int], found: bool) -> None:
        searched.take(candidate, found)
        order.append(str(candidate.choice))
        wrong.extend([candidate.choice] * found)

    def explain(ended: bool) -> bool:
        if not wrong:
            return False
        name = wrong.popleft()
        for run in "abc":  # each takes as long as two results
            order.append(f"{name}{run}")
            loop.go_on(2)
        return True

    loop = Loop(searched, unlimited(), ahead=ahead, put_off=lambda each: each.choice < put_off, between=explain)
    assert loop.run(take) is StopReason.EXHAUSTED
    if not put_off:
        assert " ".join(order) == "0 0a 1 2 0b 3 4 0c 5 6 7 7a 8 9 7b 10 11 7c 12 13 14 14a 15 16 14b 17 18 14c 19"
    else:
        assert " ".join(order) == "3 4 5 6 7 7a 8 9 7b 10 11 7c 12 13 14 14a 15 16 14b 17 18 14c 19 0 0a 1 2 0b 0c"


def test_before_a_choice_that_depends_on_results_all_that_was_taken_is_dealt_with() -> None:
    searched = Integers([])
    order: list[str] = []
    wrong: deque[int] = deque()

    def choices() -> Iterator[int | Pause]:
        yield from (7, 1, 14, 2)
        yield AWAIT
        order.append("next")
        yield 3

    def take(candidate: Candidate[int], found: bool) -> None:
        order.append(str(candidate.choice))
        wrong.extend([candidate.choice] * found)

    def explain(ended: bool) -> bool:
        if not wrong:
            return False
        order.append(f"why {wrong.popleft()}")
        loop.go_on(9)
        order.append("because")
        return True

    searched.choices = choices  # type: ignore[method-assign, assignment]
    loop = Loop(searched, unlimited(), ahead=3, between=explain)
    assert loop.run(take) is StopReason.EXHAUSTED
    assert order == ["7", "why 7", "1", "14", "2", "because", "why 14", "because", "next", "3"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_ends_the_search_with_what_was_taken(number: signal.Signals) -> None:
    searched = Integers(list(range(20)))

    def take(candidate: Candidate[int], wrong: bool) -> None:
        searched.take(candidate, wrong)
        if candidate.choice == 3:
            os.kill(os.getpid(), number)

    loop = Loop(searched, unlimited(), ahead=2)
    assert loop.run(take) is StopReason.INTERRUPTED
    assert (searched.taken, loop.reached.executed) == ([0, 1, 2, 3], 4)
    assert loop.reached.left == [(4, 4), (5, 5)]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OutOfTime(), StopReason.BUDGET_SECONDS),
        (Stopped(StopReason.INTERRUPTED), StopReason.INTERRUPTED),
        (BrokenOff("disk-full-checking", "no room", "Free some."), StopReason.DISK_FULL),
        (BrokenOff("worker-died", "worker 0 died", "Free some."), StopReason.WORKER_LOST),
    ],
)
def test_who_takes_a_result_may_end_the_search(error: Exception, reason: StopReason) -> None:
    searched = Integers(list(range(20)))

    def take(candidate: Candidate[int], wrong: bool) -> None:
        searched.take(candidate, wrong)
        if candidate.choice == 2:
            raise error

    loop = Loop(searched, unlimited())
    assert loop.run(take) is reason
    assert searched.taken == [0, 1, 2]
    assert loop.reached.warnings == ([f"{error.message}. Free some."] if isinstance(error, BrokenOff) else [])


def test_an_error_names_the_choice_that_it_was_raised_for() -> None:
    searched = Integers([5, 6])

    def take(candidate: Candidate[int], wrong: bool) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        Loop(searched, unlimited()).run(take)
    assert caught.value.__notes__ == ["while the search executed the number 5"]
