"""Orders of threads' operations, which appear while they run, against all orders written out by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import factorial, prod
from random import Random

import pytest

from crashcheck.checker.budget import Budget, Meter
from crashcheck.checker.results import StopReason
from crashcheck.checker.search.loop import Loop
from crashcheck.checker.search.protocol import Candidate
from crashcheck.checker.search.schedules import Diverged, EveryOrder, Execution, Path, Schedules
from crashcheck.checker.verdicts.verdict_source import Awaited

Operation = tuple[str, str, int]  # "add" a number to a variable, "set" it, or "wait" until it has that value
Threads = Sequence[Sequence[Operation]]
Memory = dict[str, int]
Prefix = tuple[int, ...]
Shown = tuple[Memory, list[int]]


def enabled(threads: Threads, done: Sequence[int], memory: Memory) -> list[int]:
    """The threads whose next operation may come now: which ones, only a run shows."""
    there = [number for number, thread in enumerate(threads) if done[number] < len(thread)]
    return [
        number
        for number in there
        for what, name, value in [threads[number][done[number]]]
        if what != "wait" or memory.get(name, 0) == value
    ]


def step(threads: Threads, done: list[int], memory: Memory, number: int) -> None:
    what, name, value = threads[number][done[number]]
    done[number] += 1
    if what != "wait":
        memory[name] = value + (memory.get(name, 0) if what == "add" else 0)


def run(threads: Threads, path: Path[int]) -> Execution[int, Shown]:
    done, memory, order = [0] * len(threads), Memory(), list[int]()
    while may := enabled(threads, done, memory):
        order.append(path.next(may))
        step(threads, done, memory, order[-1])
    return Execution(path, repr((sorted(memory.items()), done)).encode(), (memory, order))


def by_brute_force(threads: Threads) -> Iterator[tuple[Memory, tuple[int, ...]]]:
    """Each order of the threads' operations, by recursion over copies, with what it leaves."""

    def from_here(done: list[int], memory: Memory, order: tuple[int, ...]) -> Iterator[tuple[Memory, tuple[int, ...]]]:
        may = enabled(threads, done, memory)
        if not may:
            yield memory, order
        for number in may:
            there, after = done.copy(), memory.copy()
            step(threads, there, after, number)
            yield from from_here(there, after, (*order, number))

    return from_here([0] * len(threads), {}, ())


def searched(
    threads: Threads, ahead: int = 0, states: int | None = None
) -> tuple[StopReason, list[tuple[int, ...]], Schedules[Prefix, int, Shown]]:
    """How a search ends, the orders that it runs, in its order, and the search."""
    orders: list[tuple[int, ...]] = []

    def begin(prefix: Prefix) -> Awaited[Execution[int, Shown]]:
        return lambda left_s: run(threads, Path(prefix))

    schedules: Schedules[Prefix, int, Shown] = Schedules(EveryOrder(), begin, lambda execution: None)

    def take(candidate: Candidate[Prefix], execution: Execution[int, Shown]) -> None:
        orders.append(tuple(execution.shows[1]))
        schedules.taken(candidate, execution)

    stop = Loop(schedules, Meter(Budget(states=states)), ahead=ahead).run(take)
    return stop, orders, schedules


def threads_of(drawing: Random) -> Threads:
    return [
        [
            (drawing.choice(["add", "set", "set", "wait"]), drawing.choice("xy"), drawing.randint(0, 2))
            for _ in range(drawing.randint(1, 3))
        ]
        for _ in range(drawing.randint(1, 3))
    ]


@pytest.mark.parametrize("sizes", [(1,), (2, 2), (3, 3), (2, 2, 2), (4, 3), (1, 1, 1, 1, 1)])
def test_independent_threads_have_as_many_orders_as_the_multinomial(sizes: Sequence[int]) -> None:
    threads = [[("add", "x", 1)] * size for size in sizes]
    stop, orders, schedules = searched(threads)
    count = factorial(sum(sizes)) // prod(map(factorial, sizes))
    assert (stop, len(orders), len(set(orders))) == (StopReason.EXHAUSTED, count, count)
    assert schedules.same == count - 1  # they all leave the same sum


@pytest.mark.parametrize("seed", range(200))
def test_generated_threads_run_in_exactly_the_orders_of_brute_force(seed: int) -> None:
    threads = threads_of(Random(seed))
    expected = list(by_brute_force(threads))
    stop, orders, schedules = searched(threads, ahead=seed % 5)
    assert stop is StopReason.EXHAUSTED
    assert Counter(orders) == Counter(order for _, order in expected)
    left = {repr((sorted(memory.items()), [order.count(n) for n in range(len(threads))])) for memory, order in expected}
    assert len(orders) - schedules.same == len(left)


@pytest.mark.parametrize("states", [None, 1, 17, 40])
def test_what_is_run_does_not_depend_on_how_many_are_under_way(states: int | None) -> None:
    threads = [[("add", "x", 1)] * 3, [("set", "x", 5)] * 3, [("add", "y", 1)]]
    results = [searched(threads, ahead, states)[:2] for ahead in (0, 1, 3, 50)]
    assert results.count(results[0]) == len(results)
    assert states is None or len(results[0][1]) == states


def test_a_path_follows_its_prefix_and_then_takes_the_first() -> None:
    path = Path("bc")
    assert [path.next("ab"), path.next("abc"), path.next("ab"), path.next("a")] == ["b", "c", "a", "a"]
    assert list(path.branches()) == [("b", "c", "b")]


@pytest.mark.parametrize("changed", [lambda: "a", lambda: "ab"], ids=["fewer are possible", "it ends early"])
def test_an_execution_that_does_not_follow_its_prefix_is_no_result(changed: Callable[[], str]) -> None:
    """One that depends on more than its choices: the first run comes to three, later ones see something else."""
    runs = 0

    def begin(prefix: tuple[str, ...]) -> Awaited[Execution[str, None]]:
        nonlocal runs
        runs += 1
        path = Path(prefix)
        possible = "abc" if runs == 1 else changed()
        for _ in range(2 if len(possible) != 2 else 0):
            path.next(possible)
        return lambda left_s: Execution(path, b"", None)

    schedules: Schedules[tuple[str, ...], str, None] = Schedules(EveryOrder(), begin, lambda execution: None)
    with pytest.raises(Diverged):
        Loop(schedules, Meter(Budget())).run(schedules.taken)


def test_nothing_can_be_chosen_where_nothing_is_enabled() -> None:
    with pytest.raises(ValueError, match="nothing is enabled"):
        Path[str]().next(())
