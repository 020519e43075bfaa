"""How the checks of nodes judge the consistent cuts of a run."""

from __future__ import annotations

from pathlib import Path
from typing import cast

from crashcheck.checker.nodes.cuts import Cuts
from crashcheck.checker.nodes.dependence import HappensBefore, footprint
from crashcheck.checker.results import Outcome, Verdict
from crashcheck.command import Command
from crashcheck.config.nodes import NodeCheckConfig
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult, NodeContent, World
from crashcheck.stages.node_checks import CommandChecks, PassedStates
from crashcheck.stages.state_judge import StateJudge

RESULTS = [ActionResult(Action(ActionKind.DELIVER, node, 2, number)) for node in (0, 1) for number in range(3)]


class Counting:
    """A world of three nodes, each of which has printed how often it has acted; and a judge of its states."""

    stopped = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.acted = [0, 0, 0]
        self.judged = 0
        self.stops = False  # with the next state that is judged

    def log(self) -> list[str]:
        return ["\n"] * sum(self.acted)

    def content(self, node: int) -> NodeContent:
        return NodeContent(self.folder / f"n{node}", b"%d" % self.acted[node], b"")

    def state(self, folder: Path) -> None:
        pass

    def judge(self, state: Path) -> Verdict:
        self.judged += 1
        self.stopped |= self.stops
        return Verdict(Outcome.PASS, 0, None, "", False, 0.0)


def judged_cuts(tmp_path: Path, *, stops: bool) -> tuple[int, bool]:
    """How many of the 16 - 7 cuts that a run does not pass were judged, and whether that is all."""
    for node in range(3):
        (tmp_path / f"n{node}").mkdir()
    world, order = Counting(tmp_path), HappensBefore()
    check = NodeCheckConfig(after=Command.of_text("true"))
    checks = CommandChecks(
        check, lambda command: cast(StateJudge, world), 3, tmp_path / "place", PassedStates(), cuts=True
    )
    checks.begun(cast(World, world))
    for result in RESULTS:
        world.acted[result.action.node] += 1
        order.add(footprint(result.action, result))
        assert checks.after(cast(World, world), result) is None
    world.judged, world.stops = 0, stops
    found, complete = checks.failing_cut(cast(World, world), Cuts(RESULTS, order, 3))
    assert not found
    return world.judged, complete


def test_cuts_are_judged_until_the_search_is_over(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    assert judged_cuts(tmp_path / "all", stops=False) == (9, True)
    (tmp_path / "stopped").mkdir()
    assert judged_cuts(tmp_path / "stopped", stops=True) == (1, False)
