"""The calls that send messages are named where that is asked for, by functions and lines of Python."""

from __future__ import annotations

import sys
from pathlib import Path

from crashcheck.checker.nodes.stacks import SenderStacks
from crashcheck.runtime.nodes.actions import Action, ActionKind
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld

PROGRAM = """import socket, time
end = socket.socket(2, 2)
def send(text):
    end.sendto(text, ("10.0.0.2", 7))
def vote():
    send(b"yes")
vote()
send(b"done")
time.sleep(9)
"""


def started(tmp_path: Path, stacks: SenderStacks | None) -> NodeWorld:
    """A world in which the first node has sent two datagrams."""
    (tmp_path / "program.py").write_text(PROGRAM, encoding="utf-8")
    words = (sys.executable, "-S", "-E", str(tmp_path / "program.py"))
    commands = [NodeCommand(words, crash=frozenset({"process"})), NodeCommand(("sleep", "9"))]
    return NodeWorld(commands, tmp_path / "world", name_calls=stacks)


def test_messages_have_the_calls_that_sent_them_also_after_a_crash_of_the_process(tmp_path: Path) -> None:
    world = started(tmp_path, SenderStacks(tmp_path))
    try:
        results = [world.take(Action(ActionKind.START, 0)), world.take(Action(ActionKind.CRASH_PROCESS, 0))]
        results.append(world.take(Action(ActionKind.RESTART, 0, -1, 1)))
        stacks = world.stacks()
    finally:
        world.close()
    first, _, again = ([(message.data, stacks[message.call]) for message in result.sent] for result in results)
    assert first == [
        (b"yes", ("send (program.py:4)", "vote (program.py:6)", "<module> (program.py:7)")),
        (b"done", ("send (program.py:4)", "<module> (program.py:8)")),
    ]
    assert again == first


def test_without_that_no_call_is_placed(tmp_path: Path) -> None:
    world = started(tmp_path, None)
    try:
        sent = world.take(Action(ActionKind.START, 0)).sent
        assert ([message.call for message in sent], world.stacks()) == ([0, 0], {})
    finally:
        world.close()
