"""What nodes do to their folders is recorded, as by the recorder of calls, until their machine loses the power."""

from __future__ import annotations

from pathlib import Path

from crashcheck.analyzer.trace import replay
from crashcheck.analyzer.trace.reader import read
from crashcheck.runtime.nodes.actions import Action, ActionKind
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld
from crashcheck.runtime.trace_format import Kind

WRITES = """
import os, sys, time
name = 'log%d' % len(os.listdir('.'))
file = os.open('/media/' + name, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
os.write(file, b'first'); os.fsync(file)
os.pwrite(file, b'second', 5); os.rename(name, name + '.new')
if os.fork() == 0: os.mkdir('made' + name); os._exit(0)
os.wait(); os.write(1, b'promised'); time.sleep(9)
"""


def test_a_trace_accounts_for_all_that_two_starts_of_a_node_wrote(tmp_path: Path) -> None:
    command = NodeCommand(("python3", "-c", WRITES), crash=frozenset({"process", "machine"}))
    world = NodeWorld([command, command], tmp_path / "world", records=True)
    try:
        world.take(Action(ActionKind.START, 0))
        world.take(Action(ActionKind.CRASH_PROCESS, 0))
        world.take(Action(ActionKind.START, 1))
        world.take(Action(ActionKind.RESTART, 0, -1, 1))
        world.take(Action(ActionKind.CRASH_MACHINE, 0, -1, 1))
        recording = world.recording(0)
        trace = read(recording.trace)
        folder = tmp_path / "world" / "n0"
        assert sorted(path.name for path in folder.iterdir()) == ["log0.new", "log2.new", "madelog0", "madelog2"]
        assert replay.check(trace, recording.first, folder).whole
        kinds = [Kind(kind) for kind in trace.events["kind"]]
        assert (kinds.count(Kind.WRITE), kinds.count(Kind.NAME_RENAME), kinds.count(Kind.OUTPUT)) == (4, 2, 2)
    finally:
        world.close()


def test_a_machine_that_starts_again_has_a_new_trace_from_what_is_in_its_folder(tmp_path: Path) -> None:
    command = NodeCommand(("python3", "-c", WRITES), crash=frozenset({"machine"}))
    world = NodeWorld([command], tmp_path / "world", records=True)
    try:
        world.take(Action(ActionKind.START, 0))
        world.take(Action(ActionKind.CRASH_MACHINE, 0))
        folder = tmp_path / "world" / "n0"
        (folder / "log0.new").write_bytes(b"first")  # the second write was lost
        world.take(Action(ActionKind.RESTART, 0, -1, 1))
        world.take(Action(ActionKind.CRASH_MACHINE, 0, -1, 1))
        recording = world.recording(0)
        assert (recording.first / "log0.new").read_bytes() == b"first"
        assert replay.check(read(recording.trace), recording.first, folder).whole
    finally:
        world.close()
