"""What random runs remember of where they have been."""

from __future__ import annotations

from random import Random

from crashcheck.checker.nodes.paths import Branch, SleepPath
from crashcheck.checker.nodes.runs import NodeRole, NodeRun, RunRules, execute
from crashcheck.checker.nodes.situations import Situations
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
