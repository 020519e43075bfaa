"""Searches over the orders of toy nodes: what is found, in its smallest form, and in words."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from crashcheck.checker.budget import Budget
from crashcheck.checker.evidence import ActionOrder
from crashcheck.checker.nodes.describe import Describer
from crashcheck.checker.nodes.runs import NodeRole, RunRules
from crashcheck.checker.nodes.search import NodeSearch, NodeSearchResult
from crashcheck.checker.nodes.strategies import NodePlan, NodeStrategy
from crashcheck.checker.results import Location, StopReason
from support.message_programs import Does, MessageProgram, MessageWorld, two_phase_commit

STRATEGIES: Sequence[NodeStrategy] = ("random", "dfs", "dpor", "bounded-dpor", "hybrid")
CONFIGURED = Location("crashcheck.toml", 1, 0, "", "", ())


def searched(
    program: MessageProgram, strategy: NodeStrategy = "dpor", jobs: int = 1, ends: Sequence[int] = ()
) -> NodeSearchResult:
    roles = [NodeRole(f"n{node}", ends=node in ends) for node in range(program.nodes)]
    return NodeSearch(
        lambda: MessageWorld(program),
        RunRules(roles, 300, program.failures),
        NodePlan(strategy, runs=200, rounds=4, backtracks=20),
        Describer(roles, "none", CONFIGURED),
        lambda actions: repr(tuple(actions)),
        Budget(),
        jobs=jobs,
    ).run()


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_commit_after_the_first_yes_is_found_and_named_by_the_two_votes(strategy: NodeStrategy) -> None:
    found = searched(two_phase_commit(planted=True, votes="yyn"), strategy)
    (finding,) = found.findings
    yes = "n1" if "n1" in finding.message else "n2"  # they differ in their number only
    assert finding.message == f"n3 ends with status 1 if `y` from {yes} to n0 is delivered before `n` from n3 to n0"
    shown = finding.evidence
    assert isinstance(shown, ActionOrder)
    assert [row.what for row in shown.rows if row.kind != "start"] == [
        f"`prepare` from n0 to {yes} is delivered",
        "`prepare` from n0 to n3 is delivered",
        f"`y` from {yes} to n0 is delivered",
        "`commit` from n0 to n3 is delivered",
        "not yet: `n` from n3 to n0",
    ]
    assert [row.role for row in shown.rows[-3:]] == ["first", "", "second"]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_phase_commit_as_it_should_be_has_no_findings(strategy: NodeStrategy) -> None:
    found = searched(two_phase_commit(votes="yyn"), strategy)
    assert (found.findings, found.uncertain, found.stop_reason) == ((), (), StopReason.EXHAUSTED)


def lost_reply(retries: bool) -> MessageProgram:
    """A client asks a server, and waits for the answer; with a timer it asks again."""

    def starts(node: int) -> Does:
        return Does("", [(1, "ask")], timer=retries) if node == 0 else Does("")

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        return Does("", [(0, "answer")]) if node else Does("", ends=0)

    def fires(node: int, memory: str) -> Does:
        return Does(memory, [(1, "ask")], timer=True)

    return MessageProgram(2, starts, receives, fires, failures={"loss": 1})


def test_a_lost_message_that_nobody_repeats_is_a_deadlock() -> None:
    found = searched(lost_reply(retries=False), ends=[0])
    assert [finding.message for finding in found.findings] == [
        "n0 waits for ever if `answer` from n1 to n0 is lost",
        "n0 waits for ever if `ask` from n0 to n1 is lost",
    ]
