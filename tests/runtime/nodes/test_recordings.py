"""What nodes do to their folders is recorded, as by the recorder of calls, until their machine loses the power."""

from __future__ import annotations

import sys
from pathlib import Path

from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.nodes.actions import ALL_WRITTEN, Action, ActionKind, DiskState
from crashcheck.runtime.nodes.machines import CrashedDisk, NodeCommand, NodeRecording
from crashcheck.runtime.nodes.world import NodeWorld
from crashcheck.runtime.trace_format import Kind
from support.node_runs import by_default

WRITES = """
import os, sys, time
name = 'log%d' % len(os.listdir('.'))
file = os.open('/media/' + name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.write(file, b'first'); os.fsync(file)
os.pwrite(file, b'second', 5); os.rename(name, name + '.new')
if os.fork() == 0: os.mkdir('made' + name); os._exit(0)
os.wait(); os.write(1, b'promised'); time.sleep(9)
"""


class Disks(list[NodeRecording]):
    """What crashed; of each crash two states are possible: all that was written, and one file that was not."""

    def __call__(self, recording: NodeRecording) -> CrashedDisk:
        self.append(recording)
        return Disk()


class Disk:
    states = (ALL_WRITTEN, 7)
    complete = False
    unaccounted = ()

    def described(self, name: int) -> DiskState:
        return DiskState(7, 2, 1, ("all",)) if name == 7 else DiskState(name)

    def write(self, name: int, folder: Path) -> None:
        folder.mkdir()
        (folder / "other").write_bytes(b"kept")


def test_a_trace_accounts_for_all_that_two_starts_of_a_node_wrote(tmp_path: Path) -> None:
    command = NodeCommand((sys.executable, "-c", WRITES), crash=frozenset({"process", "machine"}))
    crashed = Disks()
    world = NodeWorld([command, command], tmp_path / "world", crash_disk=crashed)
    try:
        world.take(Action(ActionKind.START, 0))
        world.take(Action(ActionKind.CRASH_PROCESS, 0))
        world.take(Action(ActionKind.START, 1))
        world.take(Action(ActionKind.RESTART, 0, -1, 1))
        world.take(Action(ActionKind.CRASH_MACHINE, 0, -1, 1))
        (recording,) = crashed
        trace = read(recording.trace)
        folder = recording.last
        assert sorted(path.name for path in folder.iterdir()) == ["log0.new", "log2.new", "madelog0", "madelog2"]
        assert replay.check(trace, recording.first, folder).whole
        kinds = [Kind(kind) for kind in trace.events["kind"]]
        assert (kinds.count(Kind.WRITE), kinds.count(Kind.NAME_RENAME), kinds.count(Kind.OUTPUT)) == (4, 2, 2)
    finally:
        world.close()


def test_a_machine_that_starts_again_continues_on_what_was_chosen_and_can_crash_again(tmp_path: Path) -> None:
    command = NodeCommand((sys.executable, "-c", WRITES), crash=frozenset({"machine"}))
    crashed = Disks()
    world = NodeWorld([command], tmp_path / "world", crash_disk=crashed)
    try:
        world.take(Action(ActionKind.START, 0))
        assert world.take(Action(ActionKind.CRASH_MACHINE, 0)).disk is None
        restarts = [Action(ActionKind.RESTART, 0, -1, 1, name) for name in (ALL_WRITTEN, 7)]
        assert [action for action in world.enabled() if action.kind is ActionKind.RESTART] == restarts
        assert world.take(restarts[1]).disk == DiskState(7, 2, 1, ("all",))
        world.take(Action(ActionKind.CRASH_MACHINE, 0, -1, 1))
        first, second = crashed
        assert [path.name for path in second.first.iterdir()] == ["other"]
        assert sorted(path.name for path in second.last.iterdir()) == ["log1.new", "madelog1", "other"]
        assert replay.check(read(second.trace), second.first, second.last).whole
        assert not (first.trace.parent / "pool" / "other").exists()
        assert world.untried_disks == 2
    finally:
        world.close()


def test_a_crash_is_possible_since_the_last_action_of_the_node_began(tmp_path: Path) -> None:
    """Node 1 writes a file, and another one each time it receives; node 0 sends to it."""
    receives = (
        "import socket; s = socket.socket(2, 2); s.bind(('', 7)); open('a', 'w').write('1')\n"
        "while s.recv(9): open('b', 'w').write('2')"
    )
    sends = "import socket; s = socket.socket(2, 2); s.sendto(b'x', ('10.0.0.2', 7))"
    crashed = Disks()
    commands = [NodeCommand((sys.executable, "-c", each), crash=frozenset({"machine"})) for each in (sends, receives)]
    world = NodeWorld(commands, tmp_path / "world", crash_disk=crashed)
    try:
        by_default(world)
        world.take(Action(ActionKind.CRASH_MACHINE, 1))
        events = read(crashed[0].trace).events
        written = events[events["kind"] == Kind.WRITE]["seq"].tolist()
        assert [number > crashed[0].since for number in written] == [False, True]
    finally:
        world.close()
