"""What random runs remember of where they have been."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from random import Random

import pytest

from crashcheck.checker.nodes.dpor import Bound, Dpor
from crashcheck.checker.nodes.paths import Branch, SleepPath
from crashcheck.checker.nodes.runs import NodeRole, NodeRun, RunRules, execute, execution_of, promised
from crashcheck.checker.nodes.situations import Situations
from crashcheck.checker.nodes.strategies import NodeFrontier, RandomRuns
from crashcheck.checker.search.schedules import ROUND
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult
from support.message_programs import Does, MessageProgram, MessageWorld

RULES = RunRules([NodeRole("n0"), NodeRole("n1")], 40)


def counter(texts: list[str]) -> MessageProgram:
    """Two nodes that send one message to and fro, each time the next text."""

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        following = [text for text in texts if text > data]
        return Does(memory, [(sender, following[0])] if following else [])

    return MessageProgram(2, lambda node: Does("", [] if node else [(1, texts[0])]), receives)


def run_of(texts: list[str]) -> NodeRun:
    return execute(MessageWorld(counter(texts)), SleepPath(Branch()), RULES)


def beginnings(reached: Situations) -> set[int]:
    random = Random(1)
    return {len(reached.beginning(random)) for _ in range(300)}


def test_each_kind_of_message_is_a_situation_up_to_half_of_the_longest_run() -> None:
    reached = Situations()
    assert reached.beginning(Random(1)) == ()
    run = run_of([f"{letter}" for letter in "abcdef"])
    reached.learn(run, 0)
    assert beginnings(reached) == {1, 2, 3}
    assert reached.beginning(Random(1)) == tuple(run.chosen)[: len(reached.beginning(Random(1)))]


def test_a_byte_with_many_values_is_a_counter_and_makes_no_situations() -> None:
    reached = Situations()
    reached.learn(run_of([f"{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"]), 0)
    assert beginnings(reached) == {1}  # that node 1 has sent as well


def test_where_few_runs_have_been_is_more_probable() -> None:
    reached, random = Situations(), Random(1)
    for _ in range(30):
        reached.learn(run_of(list("ab")), 0)
    reached.learn(run_of(list("abcdef")), 0)
    lengths = [len(reached.beginning(random)) for _ in range(6)]
    assert lengths.count(1) <= 1


def test_the_first_random_runs_begin_at_the_start_whatever_other_runs_have_reached() -> None:
    """Those of a round of hybrid differ in their last actions only."""
    frontier = RandomRuns(2 * ROUND, "1")
    for _ in range(30):
        frontier.learn(run_of(list("abcdef")), 0)
    first, second = frontier.round(), frontier.round()
    assert [branch.prefix for branch in first] == [()] * ROUND
    assert sum(branch.prefix != () for branch in second) > ROUND / 2


class MachineWorld(MessageWorld):
    """Crashes are those of machines. What a node did since it began is durable where only node 0 writes files."""

    def enabled(self) -> Sequence[Action]:
        return [
            action._replace(kind=ActionKind.CRASH_MACHINE) if action.kind is ActionKind.CRASH_PROCESS else action
            for action in super().enabled()
        ]

    def take(self, action: Action) -> ActionResult:
        if action.kind is ActionKind.CRASH_MACHINE:
            super().take(action._replace(kind=ActionKind.CRASH_PROCESS))
            return ActionResult(action)
        result = super().take(action)
        return result._replace(kept=action.node == 1)


def test_a_machine_crashes_where_it_has_promised_something_and_has_written_files() -> None:
    program = replace(counter(list("abcdef")), failures={"crashes": 1})
    rules = replace(RULES, failures={"crashes": 1})
    run = execute(MachineWorld(program), SleepPath(Branch()), rules)
    # Node 0 sends a before the first choice, c and e; node 1 sends as well, and writes no file.
    assert {(at, crash.kind, crash.node) for at, crash in promised(run).items()} == {
        (at, ActionKind.CRASH_MACHINE, 0) for at in (2, 4)
    }
    reached = Situations()
    assert reached.broken_promise(Random(1)) == ()
    reached.learn(run, 0)
    begun = [reached.broken_promise(random) for random in [Random(1)] for _ in range(4)]
    assert {(len(each), each[-1].node) for each in begun} == {(3, 0), (5, 0)}
    assert all(each[:-1] == tuple(run.chosen)[: len(each) - 1] for each in begun)


def test_a_process_crashes_where_it_has_promised_something_whether_or_not_it_has_written_files() -> None:
    program = replace(counter(list("abcdef")), failures={"crashes": 1})
    run = execute(MessageWorld(program), SleepPath(Branch()), replace(RULES, failures={"crashes": 1}))
    crashes = promised(run)
    assert {crash.kind for crash in crashes.values()} == {ActionKind.CRASH_PROCESS}
    assert {crash.node for crash in crashes.values()} == {0, 1}


@pytest.mark.parametrize("actions", range(2, 7))
def test_no_run_begins_with_more_than_the_bound_of_actions_permits(actions: int) -> None:
    program = replace(counter(list("abcdef")), failures={"crashes": 1})
    rules, frontier, begun = replace(RULES, actions=actions, failures={"crashes": 1}), RandomRuns(40, "1"), 0
    while branches := frontier.round():
        for branch in branches:
            run = execute(MachineWorld(program), SleepPath(branch), rules)
            frontier.ended(branch, execution_of(run))  # raises Diverged if it is less than its prefix
            assert len(branch.prefix) < actions or branch.prefix[-1].kind is ActionKind.CRASH_MACHINE
            begun += bool(branch.prefix)
    assert begun > 10


def crashed_after_promises(frontier: NodeFrontier) -> set[int]:
    """After how many choices node 0 crashed, having sent something in the last of them, in the runs of a strategy."""
    program = replace(counter(list("abcdefgh")), failures={"crashes": 1})
    rules, found = replace(RULES, failures={"crashes": 1}), set[int]()
    while branches := frontier.round():
        for branch in branches:
            run = execute(MachineWorld(program), SleepPath(branch), rules)
            frontier.ended(branch, execution_of(run))
            promises = promised(run)
            found.update(at for at, one in enumerate(run.chosen) if promises.get(at) == one)
    return found


@pytest.mark.parametrize(
    ("frontier", "runs"), [(partial(Dpor, seed="1"), 6), (lambda bound: RandomRuns(bound.branches, "1"), 48)]
)
def test_a_round_of_hybrid_and_random_runs_crash_a_machine_after_each_promise(
    frontier: Callable[[Bound], NodeFrontier], runs: int
) -> None:
    assert crashed_after_promises(frontier(Bound(branches=runs))) == {2, 4, 6}
