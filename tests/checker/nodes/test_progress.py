"""The check of progress: what must come to pass at some time, once failures have stopped."""

from __future__ import annotations

import pytest

from crashcheck.checker.budget import Budget
from crashcheck.checker.nodes.describe import Describer
from crashcheck.checker.nodes.runs import NodeRole, RunChecks, RunRules, StateChecks
from crashcheck.checker.nodes.search import NodeSearch, NodeSearchResult
from crashcheck.checker.nodes.strategies import NodePlan
from crashcheck.checker.results import Location, Outcome, Verdict
from crashcheck.runtime.nodes.actions import World
from support.message_programs import Does, MessageProgram, MessageWorld

FAILS = Verdict(Outcome.FAIL, 1, None, "no answer\n", False, 0.0)


class Answered(RunChecks):
    """Node 0 has printed something."""

    def progress(self, world: World) -> Verdict | None:
        assert isinstance(world, MessageWorld)
        return None if world.reached.nodes[0].printed else FAILS


def asks(times: int) -> MessageProgram:
    """A client asks so often, each time its timer fires; one message may be lost, or one node crash."""

    def asking(memory: str) -> Does:
        count = len(memory) + 1
        return Does("x" * count, [(1, "ask")] if count <= times else (), timer=count < times)

    return MessageProgram(
        2,
        lambda node: asking("") if node == 0 else Does(""),
        lambda node, memory, sender, data: Does(memory, [(0, "answer")]) if node else Does(memory, prints="answer"),
        lambda node, memory: asking(memory),
        failures={"loss": 1},
    )


def searched(program: MessageProgram, actions: int = 300) -> NodeSearchResult:
    roles = [NodeRole("client"), NodeRole("server")]
    return NodeSearch(
        lambda: MessageWorld(program),
        RunRules(roles, actions, program.failures, checks=StateChecks(lambda world: Answered())),
        NodePlan("dfs"),
        Describer(roles, "none", Location("crashcheck.toml", 1, 0, "", "", ())),
        repr,
        Budget(),
    ).run()


def test_a_client_that_asks_once_makes_no_progress_if_a_message_is_lost() -> None:
    found = searched(asks(1))
    assert {finding.message for finding in found.findings} == {
        "the check of progress fails, although failures stop, if `ask` from client to server is lost",
        "the check of progress fails, although failures stop, if `answer` from server to client is lost",
    }


@pytest.mark.parametrize("actions", [1, 2, 300])
def test_a_client_that_asks_again_makes_progress_wherever_a_run_ends(actions: int) -> None:
    assert searched(asks(2), actions).findings == ()
