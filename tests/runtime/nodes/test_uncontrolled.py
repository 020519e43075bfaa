"""What is not under control is named, so that no finding of such a run counts."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from support.node_runs import Worlds, by_default, output


def named(worlds: Worlds, *programs: str) -> list[str]:
    """What nodes that run some Python did that is not controlled."""
    world = worlds(*((sys.executable, "-c", f"import ctypes, os, socket\n{program}") for program in programs))
    by_default(world)
    return [what for each in world.uncontrolled.values() for what in each]


def test_calls_of_32_bit_code_are_named(worlds: Worlds, node_program: Callable[[str], str]) -> None:
    world = worlds((node_program("narrow"),))
    assert output(by_default(world), 0) in (b"narrow\n", b"refused\n")
    assert world.uncontrolled == {0: ["32-bit system calls"]}


@pytest.mark.parametrize(
    ("program", "what"),
    [
        ("ctypes.CDLL(None).syscall(0x40000000 + 39)", "x32 system calls"),
        ("ctypes.CDLL(None).syscall(460)", "system call 460"),
        ("socket.socket(2, 3, 1)", "socket of family 2, type 3, protocol 1"),
        ("a, b = socket.socketpair(); socket.send_fds(a, [b'x'], [0])", "descriptors that are passed on (SCM_RIGHTS)"),
        (
            "s = socket.socket(2, 2); s.sendmsg([b'x'], [(0, 2, bytes(4))], 0, ('10.0.0.1', 9))",
            "ancillary data of a network socket",
        ),
        ("s = socket.socket(1, 2); s.bind('here')", "a local datagram socket with a name"),
        ("s = socket.socket(1, 2); s.sendto(b'x', '/dev/log')", "a datagram to a local socket with a name"),
    ],
)
def test_what_goes_past_the_controller_is_named(worlds: Worlds, program: str, what: str) -> None:
    assert named(worlds, f"try: {program}\nexcept OSError: pass") == [what]


def test_a_local_socket_of_another_node_is_named(worlds: Worlds) -> None:
    serves = "s = socket.socket(1, 1); s.bind('\\0crashcheck-test'); s.listen(); os.read(os.pipe()[0], 1)"
    connects = "s = socket.socket(1, 1); s.connect('\\0crashcheck-test')"
    assert named(worlds, serves, connects) == ["a local socket of another program"]


@pytest.mark.parametrize(
    "program",
    [
        "a, b = socket.socketpair(); a.sendmsg([b'x'], [(1, 2, __import__('struct').pack('3i', os.getpid(), 0, 0))])",
        "s = socket.socket(1, 2); s.bind('')",
        "s = socket.socket(1, 1); s.bind('here'); s.listen(); c = socket.socket(1, 1); c.connect('here'); s.accept()",
    ],
)
def test_local_sockets_inside_of_a_node_are_controlled(worlds: Worlds, program: str) -> None:
    assert named(worlds, f"try: {program}\nexcept PermissionError: pass") == []
