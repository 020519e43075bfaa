"""Orders of actions that the strategies run, against all orders written out by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from crashcheck.checker.budget import Budget, Meter
from crashcheck.checker.nodes.paths import Branch, SleepPath
from crashcheck.checker.nodes.runs import NodeRole, NodeRun, RunRules, execute, execution_of
from crashcheck.checker.nodes.strategies import NodePlan, NodeStrategy, frontier_of
from crashcheck.checker.results import StopReason
from crashcheck.checker.search.loop import Loop
from crashcheck.checker.search.protocol import Candidate
from crashcheck.checker.search.schedules import Execution, Schedules
from crashcheck.checker.verdicts.verdict_source import Awaited
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult
from support.examples_tried import examples
from support.message_programs import (
    Does,
    MessageProgram,
    MessageWorld,
    State,
    all_to_all,
    every_order,
    generated,
    initial,
    partial_orders,
    permitted,
    step,
    two_phase_commit,
)

Order = tuple[Action, ...]
RULES = RunRules([NodeRole(f"n{node}") for node in range(9)], 1000)


class Searched:
    """What a search of a program runs: complete orders with what they leave, and how many runs were cut."""

    def __init__(
        self,
        program: MessageProgram,
        name: NodeStrategy,
        ahead: int = 0,
        states: int | None = None,
        world: type[MessageWorld] = MessageWorld,
        ends: Sequence[int] = (),
        **options: int,
    ) -> None:
        self.orders: list[Order] = []
        self.left: list[State] = []
        worlds: dict[Order, MessageWorld] = {}
        roles = [NodeRole(f"n{node}", ends=node in ends) for node in range(program.nodes)]
        rules = RunRules(roles, 1000, program.failures, clock=program.clock_error is not None)

        def begin(branch: Branch) -> Awaited[Execution[Action, NodeRun]]:
            made = world(program)
            run = execute(made, SleepPath(branch), rules)
            worlds[tuple(run.chosen)] = made
            return lambda left_s: execution_of(run)

        frontier = frontier_of(NodePlan(name, **options))
        schedules: Schedules[Branch, Action, NodeRun] = Schedules(frontier, begin, lambda execution: None)

        def take(candidate: Candidate[Branch], execution: Execution[Action, NodeRun]) -> None:
            schedules.taken(candidate, execution)
            if execution.reached is not None:
                self.orders.append(tuple(execution.path.chosen))
                self.left.append(worlds[self.orders[-1]].reached)

        self.stop = Loop(schedules, Meter(Budget(states=states)), ahead=ahead).run(take)
        self.same, self.cut, self.left_out = schedules.same, schedules.cut, frontier.left_out


def outcomes(states: Sequence[State]) -> set[str]:
    return {repr((state.nodes, sorted(state.sent.items()), state.waiting)) for state in states}


@pytest.mark.parametrize(
    ("program", "dfs", "dpor"),
    [
        pytest.param(all_to_all(3), 720, 8, id="3 nodes, UDP, one message to each other"),
        pytest.param(all_to_all(2, 3), 720, 36, id="2 nodes, UDP, 3 messages each way"),
        pytest.param(all_to_all(2, 3, tcp=True), 20, 1, id="2 nodes, TCP, 3 messages each way"),
        pytest.param(two_phase_commit(), 540, 6, id="two-phase commit with 3 participants"),
    ],
)
def test_dpor_runs_each_partial_order_once_and_leaves_what_all_orders_leave(
    program: MessageProgram, dfs: int, dpor: int
) -> None:
    expected = list(every_order(program))
    every, reduced = Searched(program, "dfs"), Searched(program, "dpor")
    assert every.stop is reduced.stop is StopReason.EXHAUSTED
    assert Counter(every.orders) == Counter(order for order, _ in expected)
    assert (len(every.orders), len(reduced.orders)) == (dfs, dpor)
    assert outcomes(reduced.left) == outcomes([state for _, state in expected])


@pytest.mark.hypothesis  # ten times as many in `make test-slow`
@pytest.mark.parametrize("seed", range(examples(20)))
def test_of_generated_programs_dpor_runs_each_partial_order_once(seed: int) -> None:
    program, expected = generated(seed)
    number = partial_orders(program, [order for order, _ in expected])
    every, reduced = Searched(program, "dfs", ahead=seed % 4), Searched(program, "dpor", ahead=seed % 3)
    assert Counter(every.orders) == Counter(order for order, _ in expected)
    assert Counter(number[order] for order in reduced.orders) == Counter(set(number.values()))
    assert outcomes(reduced.left) == outcomes([state for _, state in expected])


class TickingWorld(MessageWorld):
    """Shows which timers have no effect, as a NodeWorld does."""

    def __init__(self, program: MessageProgram) -> None:
        super().__init__(program)
        self._ticking: set[int] = set()

    def take(self, action: Action) -> ActionResult:
        result = super().take(action)
        if action.kind is not ActionKind.TIMER:
            return result
        quiet, ticks = not result.sent and not result.wrote and result.ended is None, action.node in self._ticking
        (self._ticking.add if quiet else self._ticking.discard)(action.node)
        return result._replace(quiet=quiet, ticks=quiet and ticks)


def tickers(servers: int, effect_at: int, *, prints: bool, times_out: bool, fires_times: int = 4) -> MessageProgram:
    """Node 0 asks servers, and ends with the last answer, or by a time-out. Each server's timer fires several times, as
    Go's monitor thread; one of these has an effect: the server prints or sends that its lease is over, and answers so.
    """

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        if node:
            return Does(memory, [(0, "no" if len(memory) >= effect_at else "yes")])
        return Does(memory + data, prints=data, ends=0 if memory.count("s") + (data == "yes") == servers else None)

    def fires(node: int, memory: str) -> Does:
        if not node:
            return Does(memory, prints="late", ends=0)
        over = len(memory) + 1 == effect_at
        return Does(
            memory + "t",
            [(0, "over")] if over and not prints else (),
            prints="over" if over and prints else "",
            timer=len(memory) + 1 < fires_times,
        )

    return MessageProgram(
        1 + servers,
        lambda node: (
            Does("", timer=True) if node else Does("", [(1 + at, "?") for at in range(servers)], timer=times_out)
        ),
        receives,
        fires,
    )


def every_end(program: MessageProgram) -> Iterator[State]:
    """What each order leaves, up to where node 0 has ended or nothing is left: by brute force over distinct states."""
    seen, left = set[object](), [initial(program)]
    while left:
        state = left.pop()
        distinct = state._replace(sent=frozenset(state.sent.items()), used=frozenset(state.used.items()))
        if distinct in seen:
            continue
        seen.add(distinct)
        may = [] if state.nodes[0].ended else permitted(program, state)
        left += [step(program, state, action)[0] for action in may]
        if not may:
            yield state


def visible(states: Iterator[State] | Sequence[State]) -> set[str]:
    return {
        repr(([(node.printed, node.ended) for node in state.nodes], sorted(state.sent.items()))) for state in states
    }


@pytest.mark.parametrize("prints", [True, False])
@pytest.mark.parametrize(
    ("servers", "times_out", "fires_times", "effect_at"),
    [
        *((1, times_out, 4, effect_at) for times_out in (False, True) for effect_at in (1, 2, 4, 9)),
        *((2, False, 3, effect_at) for effect_at in (1, 2, 3, 9)),
        *((2, True, fires_times, effect_at) for fires_times, effect_at in ((2, 2), (3, 3), (3, 9))),
    ],
)
def test_with_timers_that_tick_dpor_shows_all_that_anybody_may_see(
    servers: int, times_out: bool, fires_times: int, effect_at: int, prints: bool
) -> None:
    program = tickers(servers, effect_at, prints=prints, times_out=times_out, fires_times=fires_times)
    reduced = Searched(program, "dpor", world=TickingWorld, ends=[0])
    assert reduced.stop is StopReason.EXHAUSTED
    assert visible(reduced.left) == visible(every_end(program))


def test_a_tick_after_which_nothing_happens_is_one_run_with_all_that_follow() -> None:
    reduced = Searched(tickers(1, 9, prints=True, times_out=True), "dpor", world=TickingWorld, ends=[0])
    assert len(reduced.orders) == 8


def late_sleeper() -> MessageProgram:
    """Node 0 sleeps for longer than node 1, which begins first: node 0 wakes up first only if it begins first."""

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        return Does(memory, (), f"{data} ", timer=data == "sleep")

    return MessageProgram(
        3,
        lambda node: Does("", [(1, "sleep"), (0, "sleep")] if node == 2 else ()),
        receives,
        lambda node, memory: Does(memory, [(1, "awake")] if node == 0 else ()),
        lasts=lambda node, memory: 1 if node else 3,
        clock_error=0,
    )


def late_time_out() -> MessageProgram:
    """Node 0 waits for an answer, for as long as three timers of node 1 need."""

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        return Does(memory, (), "answered ", timer=False)

    def fires(node: int, memory: str) -> Does:
        return Does(memory + "t", (), "late " if node == 0 else "tick ", timer=node == 1 and len(memory) < 3)

    return MessageProgram(
        3,
        lambda node: Does("", [(0, "answer")] if node == 2 else (), timer=node < 2),
        receives,
        fires,
        lasts=lambda node, memory: 1 if node else 3,
        clock_error=0,
    )


@pytest.mark.parametrize(("program", "runs"), [(late_sleeper(), 5), (late_time_out(), 3)], ids=["sleeper", "time-out"])
def test_with_one_clock_a_timer_fires_also_before_what_keeps_it_from_that(program: MessageProgram, runs: int) -> None:
    reduced = Searched(program, "dpor")
    assert (reduced.stop, len(reduced.orders)) == (StopReason.EXHAUSTED, runs)
    assert visible(reduced.left) == visible(every_end(program))


def lock() -> MessageProgram:
    """Node 0 opens once it has got the messages of eight others in their order; it prints how far it is."""

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        seen = memory + data
        is_open = seen == "12345678"
        return Does(seen, prints="open" if is_open else f"{len(seen)}" if "12345678".startswith(seen) else "jammed")

    return MessageProgram(9, lambda node: Does("", [(0, str(node))] if node else []), receives)


def is_open(state: State) -> bool:
    return state.nodes[0].memory == "12345678"


def test_random_runs_begin_where_few_have_been_and_find_one_order_of_40320() -> None:
    again = Searched(lock(), "random", runs=600)
    assert any(map(is_open, again.left))
    from_the_start = [execute(MessageWorld(lock()), SleepPath(Branch(seed=str(seed))), RULES) for seed in range(600)]
    assert not any(run.results[-1].wrote == b"open" for run in from_the_start)
