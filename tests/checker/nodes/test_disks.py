"""What a crash of a node's machine may leave of its folder, and how a restarted node continues on that."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from crashcheck.analyzer.persistence.graph import Options
from crashcheck.checker.nodes.disks import RankedDisks
from crashcheck.runtime.nodes.actions import ALL_WRITTEN, LEAST_WRITTEN, Action, ActionKind, DiskState
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld

HEAD = """
import os, time
def put(name, data, sync=False):
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(file, data)
    if sync: os.fsync(file)
"""
CRASH, RESTART = Action(ActionKind.CRASH_MACHINE, 0), Action(ActionKind.RESTART, 0, -1, 1)
Left = tuple[dict[str, bytes], DiskState]


def after_crash(place: Path, program: str, model: str = "ext4", most: int = 100) -> Iterator[Left]:
    """What each state leaves when a program has rested and its machine has crashed."""
    disks = RankedDisks(model, Options(), most, place)
    states: list[int] | None = None
    number = 0
    while states is None or states:
        command = NodeCommand((sys.executable, "-c", HEAD + program + "\ntime.sleep(99)"), crash=frozenset({"machine"}))
        world = NodeWorld([command], place / f"world{number}", crash_disk=disks)
        number += 1
        try:
            world.take(Action(ActionKind.START, 0))
            world.take(CRASH)
            offered = [action.channel for action in world.enabled() if action.kind is ActionKind.RESTART]
            states = offered if states is None else states
            assert set(states) <= set(offered)
            restarted = world.take(RESTART._replace(channel=states.pop(0)))
            first = place / f"world{number - 1}" / "traces" / "n0" / "2" / "first"
            assert restarted.disk is not None
            yield {path.name: path.read_bytes() for path in first.iterdir()}, restarted.disk
        finally:
            world.close()


def test_what_was_not_synced_is_kept_or_lost(tmp_path: Path) -> None:
    program = "put('log', b'one', True); os.write(1, b'stored'); put('log', b'two')"
    (whole, kept), (least, lost), (zeros, _) = after_crash(tmp_path, program)
    assert (whole, kept.name, kept.losses, kept.lost) == ({"log": b"onetwo"}, ALL_WRITTEN, 0, ())
    assert (least, lost.name, lost.losses, lost.pending) == ({"log": b"one"}, LEAST_WRITTEN, 1, 1)
    assert (lost.lost, lost.place) == (("3 bytes at offset 0x3 of log at line 5 of -c",), "put (<-c>:5)")
    assert zeros == {"log": b"one\0\0\0"}  # the size is there without the bytes


def test_what_was_synced_and_reported_stays(tmp_path: Path) -> None:
    (only,) = after_crash(tmp_path, "put('log', b'one', True); os.write(1, b'done')")
    assert only == ({"log": b"one"}, DiskState(ALL_WRITTEN))


def test_the_power_may_fail_within_an_action_of_which_nobody_has_heard(tmp_path: Path) -> None:
    program = "put('a', b'1', True); {}put('b', b'2', True)"
    silent = [files for files, _ in after_crash(tmp_path / "silent", program.format(""))]
    assert all(files in silent for files in ({}, {"a": b"1"}, {"a": b"1", "b": b"2"}))
    assert not any("b" in files and "a" not in files for files in silent)
    heard = [files for files, _ in after_crash(tmp_path / "heard", program.format("os.write(1, b'1'); "))]
    assert all(files.get("a") == b"1" for files in heard)
    assert {"a": b"1"} in heard


def test_states_are_those_of_the_model(tmp_path: Path) -> None:
    program = "put('old', b'1', True); put('new', b'2'); os.rename('new', 'old'); os.write(1, b'done')"
    ordered = [files for files, _ in after_crash(tmp_path / "ext4", program)]
    assert {"old": b""} not in ordered
    loose = [files for files, _ in after_crash(tmp_path / "posix", program, "posix")]
    assert {"old": b""} in loose


@pytest.mark.parametrize(("most", "complete"), [(2, False), (100, True)])
def test_a_bound_that_leaves_states_out_is_counted(tmp_path: Path, most: int, complete: bool) -> None:
    program = "put('a', b'1'); put('b', b'2'); put('c', b'3')"
    world = NodeWorld(
        [NodeCommand((sys.executable, "-c", HEAD + program + "\ntime.sleep(99)"), crash=frozenset({"machine"}))],
        tmp_path / "world",
        crash_disk=RankedDisks("posix", Options(), most, tmp_path),
    )
    try:
        world.take(Action(ActionKind.START, 0))
        world.take(CRASH)
        offered = [action for action in world.enabled() if action.kind is ActionKind.RESTART]
        assert (len(offered) <= most, world.untried_disks) == (True, int(not complete))
    finally:
        world.close()
