"""The states of all orders: those that one run of each partial order passes, and those of its consistent cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pytest

from crashcheck.checker.budget import Budget
from crashcheck.checker.nodes.cuts import Cuts, nodes_of
from crashcheck.checker.nodes.dependence import HappensBefore, footprint
from crashcheck.checker.nodes.describe import Describer
from crashcheck.checker.nodes.runs import NodeRole, RunChecks, RunRules, StateChecks
from crashcheck.checker.nodes.search import NodeSearch
from crashcheck.checker.nodes.strategies import NodePlan, NodeStrategy
from crashcheck.checker.results import Location, Outcome, Verdict
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult, Message, World
from support.examples_tried import examples
from support.message_programs import Does, MessageProgram, MessageWorld, Node, all_to_all, generated

States = tuple[Node, ...]
FAILS = Verdict(Outcome.FAIL, 1, None, "", False, 0.0)


class Seen(RunChecks):
    """Collects the states of all nodes after each action, and in each consistent cut; some may fail."""

    def __init__(self, seen: set[States], failing: frozenset[States] = frozenset()) -> None:
        self._seen = seen
        self._failing = failing
        self._versions: list[list[Node]] = []

    def begun(self, world: World) -> None:
        self._versions = [[node] for node in cast(MessageWorld, world).reached.nodes]

    def after(self, world: World, result: ActionResult) -> Verdict | None:
        nodes = cast(MessageWorld, world).reached.nodes
        for number in nodes_of(result.action):
            self._versions[number].append(nodes[number])
        self._seen.add(nodes)
        return FAILS if nodes in self._failing else None

    def failing_cut(self, world: World, cuts: Cuts) -> tuple[Sequence[Action], bool]:
        for cut in cuts:
            states = tuple(each[at] for each, at in zip(self._versions, cuts.versions(cut), strict=True))
            self._seen.add(states)
            if states in self._failing:
                return cuts.actions(cut), True
        return (), True


def searched(
    program: MessageProgram, strategy: NodeStrategy, failing: frozenset[States] = frozenset()
) -> tuple[set[States], list[str]]:
    """The states that the check after each action sees, and the findings."""
    seen: set[States] = set()
    roles = [NodeRole(f"n{node}") for node in range(program.nodes)]
    checks = StateChecks(lambda world: Seen(seen, failing), after_each=True)
    search = NodeSearch(
        lambda: MessageWorld(program),
        RunRules(roles, 1000, program.failures, checks=checks),
        NodePlan(strategy),
        Describer(roles, "none", Location("crashcheck.toml", 1, 0, "", "", ())),
        repr,
        Budget(),
    )
    return seen, [finding.message for finding in search.run().findings]


@pytest.mark.parametrize("program", [all_to_all(3), all_to_all(2, 3), all_to_all(2, 3, tcp=True)])
def test_dpor_with_consistent_cuts_sees_the_states_of_all_orders(program: MessageProgram) -> None:
    assert searched(program, "dpor")[0] == searched(program, "dfs")[0]


@pytest.mark.hypothesis  # ten times as many in `make test-slow`
@pytest.mark.parametrize("seed", range(examples(6)))
def test_of_generated_programs_the_states_of_all_orders_are_seen(seed: int) -> None:
    program, _ = generated(seed)
    # A node that ends with another status than 0 fails, and the cuts of runs that fail are not judged.
    seen, failing = searched(program, "dfs")
    if not failing:
        assert searched(program, "dpor")[0] == seen


def test_what_fails_in_a_cut_only_is_a_finding_of_a_run() -> None:
    """Two nodes print what they receive from a third; in the default order node 1 is always first."""
    program = MessageProgram(
        3,
        lambda node: Does("", [(1, "a"), (2, "a")] if node == 0 else ()),
        lambda node, memory, sender, data: Does("", (), data),
    )
    second_only = frozenset({(Node(), Node(), Node(printed="a"))})
    assert searched(program, "dpor", second_only)[1] == ["the check fails if `a` from n0 to n2 is delivered"]
    assert searched(program, "dfs", second_only)[1] == ["the check fails if `a` from n0 to n2 is delivered"]


def test_a_node_is_in_a_cut_as_after_its_last_action_there_although_its_quiet_timers_are_ordered_with_none() -> None:
    """Node 0 prints, ticks, and answers to a second message; node 1 gets the answer."""
    answer = Message(0, 1, 1, 1, b"y", "udp")
    results = [
        ActionResult(Action(ActionKind.DELIVER, 0, 2, 1)),
        ActionResult(Action(ActionKind.TIMER, 0), quiet=True),
        ActionResult(Action(ActionKind.DELIVER, 0, 2, 2), sent=(answer,)),
        ActionResult(Action(ActionKind.DELIVER, 3, 2, 1)),
        ActionResult(Action(ActionKind.DELIVER, 1, 0, 1)),
    ]
    order = HappensBefore()
    for result in results:
        sender = frozenset({2}) if result.action.node == 1 else frozenset[int]()
        order.add(footprint(result.action, result), sender)
    cuts = Cuts(results, order, 4)
    assert [(cuts.versions(cut), len(cuts.actions(cut))) for cut in cuts] == [
        ((0, 0, 0, 1), 1),
        ((1, 0, 0, 1), 2),
        ((3, 1, 0, 0), 4),
    ]


def test_actions_that_change_nothing_make_no_cut_of_their_own() -> None:
    """Two nodes get three messages each; only the second one changes node 0, and only the third one node 1."""
    results = [ActionResult(Action(ActionKind.DELIVER, node, 2, number)) for node in (0, 1) for number in range(3)]
    order = HappensBefore()
    for result in results:
        order.add(footprint(result.action, result))
    cuts = Cuts(results, order, 3)
    assert len(list(cuts)) == 4 * 4 - 7  # 7 of them the run passes
    (cut,) = cuts.differing(["aabb", "cccd", "e"])
    assert [(action.node, action.number) for action in cuts.actions(cut)] == [(1, 0), (1, 1), (1, 2)]
