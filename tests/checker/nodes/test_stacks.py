"""The calls that send messages are named where that is asked for, by functions and lines of their language."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crashcheck.checker.nodes.stacks import SenderStacks
from crashcheck.runtime.nodes.actions import Action, ActionKind, NodeError
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import PATIENCE_S, NodeWorld
from support.node_runs import by_default

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


def started(
    tmp_path: Path, stacks: SenderStacks | None, program: str = PROGRAM, patience_s: int = PATIENCE_S
) -> NodeWorld:
    """A world in which the first node has sent two datagrams."""
    (tmp_path / "program.py").write_text(program, encoding="utf-8")
    words = (sys.executable, "-S", "-E", str(tmp_path / "program.py"))
    commands = [NodeCommand(words, crash=frozenset({"process"})), NodeCommand(("sleep", "9"))]
    return NodeWorld(commands, tmp_path / "world", name_calls=stacks, patience_s=patience_s)


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


def test_messages_of_a_node_that_does_not_come_to_rest_have_the_calls_that_sent_them(tmp_path: Path) -> None:
    program = PROGRAM.replace("time.sleep(9)", "while True: pass")
    world = started(tmp_path, SenderStacks(tmp_path), program, patience_s=1)
    try:
        with pytest.raises(NodeError, match="node-unrest"):
            world.take(Action(ActionKind.START, 0))
        assert ("send (program.py:4)", "<module> (program.py:8)") in world.stacks().values()
    finally:
        world.close()


JAVASCRIPT = """const net = require('net');
function answer(end) {
  end.write('pong');
}
net.createServer(answer).listen(7, () => {
  const end = net.connect(7);
  function ask() {
    end.write('ping'); // once it is connected
  }
  ask();
  end.on('data', () => process.exit());
});
"""
JAVA = """import java.net.*;
class Program {
    static void ask(Socket end) throws Exception {
        end.getOutputStream().write("ping".getBytes());
    }
    static void answer(Socket end) throws Exception {
        end.getOutputStream().write("pong".getBytes());
    }
    public static void main(String[] words) throws Exception {
        ServerSocket server = new ServerSocket(7);
        ask(new Socket("127.0.0.1", 7));
        answer(server.accept());
    }
}
"""


def sent_by_default(tmp_path: Path, *words: str) -> list[tuple[bytes, tuple[str, ...]]]:
    world = NodeWorld([NodeCommand(words)], tmp_path / "world", name_calls=SenderStacks(tmp_path))
    try:
        messages = [message for result in by_default(world) for message in result.sent if message.data]
        stacks = world.stacks()
    finally:
        world.close()
    return [(message.data, stacks[message.call]) for message in messages]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node")
def test_messages_of_node_have_the_functions_of_javascript_that_sent_them(tmp_path: Path) -> None:
    (tmp_path / "program.js").write_text(JAVASCRIPT, encoding="utf-8")
    assert sent_by_default(tmp_path, "node", str(tmp_path / "program.js")) == [
        (b"pong", ("answer (program.js:3)",)),
        (b"ping", ("ask (program.js:8)", "<anonymous> (program.js:10)")),
    ]


@pytest.mark.slow  # 2 s of processor time
@pytest.mark.skipif(shutil.which("javac") is None, reason="no javac")
def test_messages_of_java_have_the_methods_that_sent_them(tmp_path: Path) -> None:
    (tmp_path / "Program.java").write_text(JAVA, encoding="utf-8")
    subprocess.run(["javac", "Program.java"], cwd=tmp_path, check=True)
    assert sent_by_default(tmp_path, "java", "-cp", str(tmp_path), "Program") == [
        (b"ping", ("Program.ask (Program.java:4)", "Program.main (Program.java:11)")),
        (b"pong", ("Program.answer (Program.java:7)", "Program.main (Program.java:12)")),
    ]


def test_without_that_no_call_is_placed(tmp_path: Path) -> None:
    world = started(tmp_path, None)
    try:
        sent = world.take(Action(ActionKind.START, 0)).sent
        assert ([message.call for message in sent], world.stacks()) == ([0, 0], {})
    finally:
        world.close()
