"""A program hears of the end of a request to a file (io_submit) when an action lets it, and not before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.nodes.actions import ALL_WRITTEN, Action, ActionKind, DiskState
from crashcheck.runtime.nodes.machines import CrashedDisk, NodeCommand, NodeRecording
from crashcheck.runtime.nodes.world import NodeWorld
from crashcheck.runtime.trace_format import Kind
from support.node_runs import Worlds

Program = Callable[[str], str]


def ends(world: NodeWorld) -> list[Action]:
    return [action for action in world.enabled() if action.kind is ActionKind.COMPLETE]


@pytest.mark.parametrize("how", ["each", "counted"])
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_two_requests_end_in_either_order(
    worlds: Worlds, node_program: Program, how: str, order: tuple[int, int]
) -> None:
    world = worlds((node_program("requests"), how))
    assert world.take(world.enabled()[0]).wrote == b"submitted 2\n"
    assert [action.number for action in ends(world)] == [0, 1]
    results = [world.take(Action(ActionKind.COMPLETE, 0, -1, number - 1)) for number in order]
    assert [result.wrote for result in results] == [b"%d ended with 1\n" % number for number in order]
    assert [result.ended for result in results] == [None, 0]
    assert world.uncontrolled == {}


def test_who_waits_for_two_requests_stops_waiting_when_the_time_is_over(worlds: Worlds, node_program: Program) -> None:
    world = worlds((node_program("requests"), "late"))
    world.take(world.enabled()[0])
    assert world.take(ends(world)[1]).wrote == b""
    timer = next(action for action in world.enabled() if action.kind is ActionKind.TIMER)
    assert world.take(timer).ended == 0
    assert ends(world) == []  # nobody waits for them any more


def test_a_request_has_not_ended_in_the_trace_before_the_program_hears_of_it(
    tmp_path: Path, node_program: Program
) -> None:
    ended: list[int] = []

    class Disk:
        states = (ALL_WRITTEN,)
        complete = True
        unaccounted = ()

        def described(self, name: int) -> DiskState:
            return DiskState(name)

        def write(self, name: int, folder: Path) -> None:
            raise AssertionError

    def crash(recording: NodeRecording) -> CrashedDisk:
        kinds = read(recording.trace).events["kind"]
        ended.append(int((kinds == Kind.WRITE_END).sum()))
        return Disk()

    command = NodeCommand((node_program("requests"), "each"), crash=frozenset({"machine"}))
    world = NodeWorld([command, command], tmp_path / "world", crash_disk=crash)
    try:
        for _ in range(2):
            world.take(world.enabled()[0])
        world.take(Action(ActionKind.COMPLETE, 1, -1, 0))
        for node in range(2):
            world.take(Action(ActionKind.CRASH_MACHINE, node))
    finally:
        world.close()
    assert ended == [0, 1]
