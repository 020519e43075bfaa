"""Calls of nodes that are made to fail: those of a number, and those that are chosen."""

from __future__ import annotations

import errno
import sys

import pytest

from crashcheck.runtime.nodes.actions import Action, ActionKind
from crashcheck.runtime.nodes.machines import CallFault, NodeCommand
from support.node_runs import Worlds, by_default

HEAD = """
import errno, mmap, os, socket, time
def tries(call, *rest):
    try: call(*rest); print('done', flush=True)
    except OSError as error: print(errno.errorcode[error.errno], flush=True)
"""
FAULT = Action(ActionKind.FAULT, 0)


def python(program: str, *faults: CallFault) -> NodeCommand:
    return NodeCommand((sys.executable, "-c", HEAD + program), faults=faults)


@pytest.mark.parametrize(
    ("call", "program"),
    [
        ("socket", "tries(socket.socket)"),
        ("connect", "s = socket.socket(); tries(s.connect, ('10.0.0.2', 9))"),
        ("send", "s = socket.socket(2, 2); tries(s.sendto, b'x', ('10.0.0.1', 9))"),
        ("recv", "s = socket.socket(2, 2); s.bind(('', 9)); tries(s.recv, 9)"),
        ("accept", "s = socket.create_server(('', 9)); tries(s.accept)"),
        ("fsync", "tries(os.fsync, os.open('f', 66))"),
        ("write", "f = os.open('f', 66); tries(os.write, f, b'x')"),
        ("rename", "os.mkdir('a'); tries(os.rename, 'a', 'b')"),
    ],
)
def test_the_first_call_fails_with_the_error(worlds: Worlds, call: str, program: str) -> None:
    world = worlds(python(program, CallFault(0, call, errno.ENOBUFS, nth=1)), ("sleep", "9"))
    assert world.take(Action(ActionKind.START, 0)).wrote == b"ENOBUFS\n"


def test_calls_fail_from_the_nth_on_as_often_as_asked(worlds: Worlds) -> None:
    program = "f = os.open('f', 66)\nfor _ in range(5): tries(os.fsync, f)"
    for times, results in ((1, "done EIO done done done"), (2, "done EIO EIO done done"), (0, "done EIO EIO EIO EIO")):
        world = worlds(python(program, CallFault(0, "fsync", errno.EIO, nth=2, times=times)))
        assert world.take(Action(ActionKind.START, 0)).wrote.decode().split() == results.split()


def test_a_choice_fails_the_call_in_which_the_node_waits(worlds: Worlds) -> None:
    program = "s = socket.socket(2, 2); s.bind(('', 9)); tries(s.recv, 9)"
    world = worlds(python(program, CallFault(0, "recv", errno.ECONNRESET)))
    assert world.take(Action(ActionKind.START, 0)).wrote == b""
    assert FAULT in world.enabled()
    assert world.take(FAULT).wrote == b"ECONNRESET\n"


def test_a_choice_fails_the_next_call_if_none_waits(worlds: Worlds) -> None:
    program = "f = os.open('f', 66)\nfor _ in range(2): time.sleep(1); tries(os.fsync, f)"
    world = worlds(python(program, CallFault(0, "fsync", errno.EIO)))
    world.take(Action(ActionKind.START, 0))
    assert world.take(FAULT).wrote == b""
    assert [result.wrote for result in by_default(world)] == [b"EIO\n", b"done\n"]


def test_a_memory_mapping_fails(worlds: Worlds) -> None:
    program = "time.sleep(1); tries(mmap.mmap, -1, 1 << 24)"
    world = worlds(python(program, CallFault(0, "mmap", errno.ENOMEM)))
    world.take(Action(ActionKind.START, 0))
    world.take(FAULT)
    assert b"".join(result.wrote for result in by_default(world)) == b"ENOMEM\n"


def test_files_and_outputs_are_no_sockets(worlds: Worlds) -> None:
    program = "f = os.open('f', 66); tries(os.write, f, b'x'); tries(os.read, f, 9)"
    faults = (CallFault(0, "send", errno.EIO, nth=1), CallFault(1, "recv", errno.EIO, nth=1))
    assert worlds(python(program, *faults)).take(Action(ActionKind.START, 0)).wrote == b"done\ndone\n"
