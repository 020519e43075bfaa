"""Frames between a run of nodes and its controller: the Python side of include/nodes/wire.h."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

_FRAME = struct.Struct("<BBHIQII")
_PIECE_BYTES = 1 << 18


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
    KILL = 10


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
    CLOCK_READ = 11
    OUTPUT = 12
    ENDED = 13
    UNCONTROLLED = 14
    FAILED = 15
    UNREST = 16
    REST = 17
    FAULT_MET = 18
    CALLED = 19


class WireFrame(NamedTuple):
    tag: int
    node: int
    port: int
    number: int
    value: int
    other: int
    data: bytes


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
