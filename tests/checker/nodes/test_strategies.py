"""Orders of actions that the strategies run, against all orders written out by brute force."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
from crashcheck.runtime.nodes.actions import Action
from support.examples_tried import examples
from support.message_programs import (
    Does,
    MessageProgram,
    MessageWorld,
    State,
    all_to_all,
    every_order,
    generated,
    partial_orders,
    two_phase_commit,
)

Order = tuple[Action, ...]
RULES = RunRules([NodeRole(f"n{node}") for node in range(9)], 1000)


class Searched:
    """What a search of a program runs: complete orders with what they leave, and how many runs were cut."""

    def __init__(
        self, program: MessageProgram, name: NodeStrategy, ahead: int = 0, states: int | None = None, **options: int
    ) -> None:
        self.orders: list[Order] = []
        self.left: list[State] = []
        worlds: dict[Order, MessageWorld] = {}
        rules = RunRules([NodeRole(f"n{node}") for node in range(program.nodes)], 1000, program.failures)

        def begin(branch: Branch) -> Awaited[Execution[Action, NodeRun]]:
            world = MessageWorld(program)
            run = execute(world, SleepPath(branch), rules)
            worlds[tuple(run.chosen)] = world
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
