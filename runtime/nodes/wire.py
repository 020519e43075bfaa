"""Frames between a run of nodes and its controller: the Python side of include/nodes/wire.h."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from enum import IntEnum, IntFlag
from typing import NamedTuple

from crashcheck.runtime.nodes.actions import NodeError

_FRAME = struct.Struct("<BBHIQII")
_PIECE_BYTES = 1 << 18
_OUR_CALLS = ("ptrace: ", "seccomp: ", "process_vm_readv: ")
_PERMIT = "The system, or the container, has to permit this call: it is how nodes are controlled."
_NAME_A_PROGRAM = (
    "Name a program that can be executed, as its interpreter can: a path is from the folder of crashcheck.toml; other "
    "names are searched for in PATH."
)


class NodeOrder(IntEnum):
    START = 1
    REQUEST = 2
    CONNECTED = 3
    ARRIVE = 4
    FINISH = 5
    RESET = 6
    DATAGRAM = 7
    FIRE = 8
    FAULT = 9
    COMPLETE = 10
    CONTINUE = 11
    KILL = 12


class StartFlag(IntFlag):
    PLACES = 1
    EXPLORES = 2


class NodeEvent(IntEnum):
    BOUND = 1
    LISTENING = 2
    CONNECTING = 3
    ACCEPTABLE = 4
    SENT = 5
    SHUT = 6
    CLOSED = 7
    DATAGRAM_SENT = 8
    ARMED = 9
    DISARMED = 10
    SUBMITTED = 11
    WITHDRAWN = 12
    CLOCK_READ = 13
    OUTPUT = 14
    ENDED = 15
    UNCONTROLLED = 16
    FAILED = 17
    UNREST = 18
    COMPARED = 19
    REST = 20
    FAULT_MET = 21
    CALLED = 22
    RUNNABLE = 23


class WireFrame(NamedTuple):
    tag: int
    node: int
    port: int
    number: int
    value: int
    other: int
    data: bytes


def error_of(frame: WireFrame, node: str) -> NodeError:
    """Why a run cannot continue, of an event FAILED or UNREST. `node`: its name."""
    if frame.tag == NodeEvent.FAILED:
        why = frame.data.decode(errors="replace")
        ours = why.startswith(_OUR_CALLS)
        return NodeError("node-failed", f"{node}: {why}", _PERMIT if ours else _NAME_A_PROGRAM)
    return NodeError(
        "node-unrest",
        f"{node} did not come to rest within 10 s",
        "It computes for long or waits in a loop. Let it wait by a system call.",
    )


class Wire:
    """One end of the socket to a controller."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._received = bytearray()

    def send(self, frame: WireFrame) -> None:
        head = _FRAME.pack(frame.tag, frame.node, frame.port, frame.number, frame.value, len(frame.data), frame.other)
        self._end.sendall(head + frame.data)

    def events(self) -> Iterator[WireFrame]:
        """What an order led to, up to and with REST. Raises EOFError if the controller has ended."""
        at = 0
        while True:
            while len(self._received) - at >= _FRAME.size:
                tag, node, port, number, value, size, other = _FRAME.unpack_from(self._received, at)
                if len(self._received) - at < _FRAME.size + size:
                    break
                data = bytes(self._received[at + _FRAME.size : at + _FRAME.size + size])
                at += _FRAME.size + size
                yield WireFrame(tag, node, port, number, value, other, data)
                if tag == NodeEvent.REST:
                    del self._received[:at]
                    return
            piece = self._end.recv(_PIECE_BYTES)
            if not piece:
                raise EOFError
            self._received += piece
