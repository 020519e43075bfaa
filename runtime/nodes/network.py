"""The network between nodes: which messages are under way, and which requests for connections."""

from __future__ import annotations

import ipaddress
from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

from crashcheck.runtime.nodes.actions import ACCEPTED, END, REFUSED, RESET, Action, ActionKind, Message
from crashcheck.runtime.nodes.wire import NodeEvent, WireFrame

ADDRESS_BYTES = 16
UDP = 17
# Connections that the smaller of two nodes began; those that the larger began; flows of datagrams; answers of a node to
# itself, whose two directions would else have the same names.
_BY_SMALLER, _BY_LARGER, _FLOW, _TO_ITSELF, _CHANNELS = range(5)


def address_of(node: int) -> str:
    """The address of a node; all nodes share 127.0.0.1 as well."""
    return f"10.0.0.{node + 1}"


@dataclass(frozen=True, slots=True)
class Address:
    ip: ipaddress.IPv6Address
    port: int

    @classmethod
    def read(cls, data: bytes, port: int) -> Address:
        return cls(ipaddress.IPv6Address(data), port)

    @property
    def four(self) -> ipaddress.IPv4Address | None:
        return self.ip.ipv4_mapped

    @property
    def is_loop(self) -> bool:
        return (self.four or self.ip).is_loopback

    @property
    def is_any(self) -> bool:
        return (self.four or self.ip).is_unspecified

    def __str__(self) -> str:
        return f"{self.four or self.ip}:{self.port}"


@dataclass(slots=True, eq=False)
class Socket:
    """A socket of a node; of a connection one end."""

    node: int
    number: int
    address: Address | None = None
    is_udp: bool = False
    listens: bool = False
    peer: Socket | None = None
    channel: int = 0
    gone: bool = False  # its node has closed it, or was ended
    silent: bool = False  # its machine lost the power: nobody reported its end
    sent: int = 0  # messages of its direction
    under_way: deque[Packet] = field(default_factory=deque)  # what it sent on its connection, the oldest first


@dataclass(slots=True, eq=False)
class Packet:
    """A message under way."""

    message: Message
    order: int  # of sending, in the whole run
    source: Address | None = None  # of a datagram
    target: Address | None = None


@dataclass(slots=True, eq=False)
class Request:
    """A connection request under way."""

    socket: Socket
    source: Address
    target: Address
    order: int
    peer: int = -1  # the node that it goes to, once that is known
    channel: int = 0


class Network:
    """What is between the nodes.

    `nodes`: how many there are. A channel's number depends only on what the node that began it did before: channels of
    two nodes that begin at the same time have the same numbers in each order.
    """

    def __init__(self, nodes: int) -> None:
        self._nodes = nodes
        self._order = count()
        self.sockets: dict[int, Socket] = {}
        self.requests: list[Request] = []
        self.datagrams: list[Packet] = []
        self._unresolved: list[Request | Packet] = []
        self._channels: Counter[tuple[int, int, bool]] = Counter()
        self._flows: dict[tuple[int, Address, int, Address], tuple[int, list[int]]] = {}
        self.outside: list[tuple[int, str]] = []  # who tried to reach what outside of the run, since this was read
        self.all_started = False

    def event(self, frame: WireFrame, call: int = 0) -> list[Message]:
        """Take note of an event of the controller. Returns what was sent by it. `call`: as Message has it."""
        if frame.tag == NodeEvent.BOUND:
            socket = self._socket(frame)
            socket.address = Address.read(frame.data, frame.port)
            socket.is_udp = frame.other == UDP
        elif frame.tag == NodeEvent.LISTENING:
            self._socket(frame).listens = True
        elif frame.tag == NodeEvent.CONNECTING:
            target = Address.read(frame.data[:ADDRESS_BYTES], frame.port)
            source = Address.read(frame.data[ADDRESS_BYTES:], frame.value)
            self._unresolved.append(Request(self._socket(frame), source, target, next(self._order)))
        elif frame.tag == NodeEvent.ACCEPTABLE:
            opener, socket = self.sockets[frame.other], self._socket(frame)
            socket.peer, opener.peer = opener, socket
            socket.channel = opener.channel + (_TO_ITSELF if socket.node == opener.node else 0)
            return self._write(socket, b"", ACCEPTED)
        elif frame.tag == NodeEvent.SENT:
            return self._write(self.sockets[frame.number], frame.data, "", call)
        elif frame.tag == NodeEvent.SHUT:
            return self._write(self.sockets[frame.number], b"", END)
        elif frame.tag == NodeEvent.CLOSED:
            return self._closed(frame)
        elif frame.tag == NodeEvent.DATAGRAM_SENT:
            return self._datagram(frame, call)
        return []

    def resolve(self) -> list[Message]:
        """Find out where requests and datagrams go that went to the address that all nodes share.

        Returns the datagrams among them. Whom nobody answers before all nodes have started goes to its own node.
        """
        left: list[Request | Packet] = []
        found = []
        for one in self._unresolved:
            is_request = isinstance(one, Request)
            sender = one.socket.node if isinstance(one, Request) else one.message.sender
            target = one.target
            assert target is not None
            peer = self._node_at(target, sender, not is_request)
            if peer is None:
                left.append(one)
            elif peer < 0:
                self.outside.append((sender, str(target)))
                if isinstance(one, Request):
                    self.requests.append(one)
            elif isinstance(one, Request):
                one.peer = peer
                one.socket.channel = one.channel = self._channel(sender, peer, False)
                self.requests.append(one)
            else:
                self._send_datagram(one, peer)
                found.append(one.message)
        self._unresolved = left
        return found

    def listener(self, request: Request) -> Socket | None:
        """The socket that a request reaches, or None: it is refused."""
        return self._bound(request.peer, request.target, False)

    def receiver(self, packet: Packet) -> Socket | None:
        """The socket that a datagram reaches, or None: it is lost."""
        assert packet.target is not None
        return self._bound(packet.message.receiver, packet.target, True)

    def deliverable(self) -> Iterator[Packet]:
        """The first that is under way on each connection, and the datagrams that somebody awaits."""
        yield from (end.under_way[0] for end in self.sockets.values() if end.under_way and end.peer)
        yield from filter(self.receiver, self.datagrams)

    def packet(self, action: Action) -> tuple[Packet, Socket | None]:
        """The packet that an action delivers or loses, and of a connection the end that sent it."""
        delivery = action._replace(kind=ActionKind.DELIVER)
        for packet in self.datagrams:
            if packet_action(ActionKind.DELIVER, packet) == delivery:
                return packet, None
        for end in self.sockets.values():
            if end.under_way and packet_action(ActionKind.DELIVER, end.under_way[0]) == delivery:
                return end.under_way[0], end
        raise AssertionError(action)

    def connections(self) -> list[Socket]:
        """Of each connection the end that began it, in the order in which they began."""
        return [one for one in self.sockets.values() if one.peer and one.number < one.peer.number]

    def ends(self, action: Action) -> list[Socket]:
        """Both ends of the connection that an action names."""
        for end in self.connections():
            assert end.peer is not None
            both = sorted((end, end.peer), key=lambda one: one.node)
            if [one.node for one in both] == [action.node, action.peer] and end.channel == action.channel:
                return both
        raise AssertionError(action)

    def refuse(self, request: Request) -> Message:
        """Let a request's sender hear that nobody accepts it."""
        nobody = Socket(request.peer, -request.socket.number, peer=request.socket, channel=request.channel, gone=True)
        self.sockets[nobody.number] = nobody
        return self._write(nobody, b"", REFUSED)[0]

    def reset(self, socket: Socket) -> None:
        """Nothing of a direction arrives any more."""
        socket.under_way.clear()
        socket.gone = True

    def write_reset(self, socket: Socket) -> list[Message]:
        """Let the other end hear that this one is not there."""
        if socket.peer is None or socket.peer.gone:
            return []
        socket.under_way.clear()
        return self._write(socket, b"", RESET)

    def power_lost(self, node: int) -> None:
        """No end of the node answers; what it sent before is still under way."""
        for socket in self.sockets.values():
            if socket.node == node and not socket.gone:
                socket.gone = socket.silent = True
                socket.listens = False
        self.requests = [one for one in self.requests if one.socket.node != node]

    def _socket(self, frame: WireFrame) -> Socket:
        return self.sockets.setdefault(frame.number, Socket(frame.node, frame.number))

    def _channel(self, sender: int, receiver: int, is_udp: bool) -> int:
        number = self._channels[sender, receiver, is_udp]
        self._channels[sender, receiver, is_udp] += 1
        return number * _CHANNELS + (_FLOW if is_udp else _BY_LARGER if sender > receiver else _BY_SMALLER)

    def _write(self, socket: Socket, data: bytes, what: str, call: int = 0) -> list[Message]:
        if socket.peer is None:
            return []
        message = Message(socket.node, socket.peer.node, socket.channel, socket.sent, data, "tcp", call=call, what=what)
        socket.sent += 1
        socket.under_way.append(Packet(message, next(self._order)))
        return [message]

    def _closed(self, frame: WireFrame) -> list[Message]:
        socket = self.sockets.get(frame.number)
        self.requests = [one for one in self.requests if one.socket.number != frame.number]
        self._unresolved = [
            one for one in self._unresolved if not (isinstance(one, Request) and one.socket.number == frame.number)
        ]
        if socket is None or socket.gone:
            return []
        socket.gone = True
        socket.listens = False
        has_ended = (
            any(packet.message.what in (END, RESET) for packet in socket.under_way)
            or socket.peer is None
            or socket.peer.gone
        )
        if frame.other:
            return self.write_reset(socket)
        return [] if has_ended else self._write(socket, b"", END)

    def _datagram(self, frame: WireFrame, call: int) -> list[Message]:
        target = Address.read(frame.data[:ADDRESS_BYTES], frame.port)
        source = Address.read(frame.data[ADDRESS_BYTES : 2 * ADDRESS_BYTES], frame.value)
        message = Message(frame.node, -1, 0, 0, frame.data[2 * ADDRESS_BYTES :], "udp", call=call)
        packet = Packet(message, next(self._order), source=source, target=target)
        peer = self._node_at(target, frame.node, True)
        if peer is None:
            self._unresolved.append(packet)
            return []
        if peer < 0:
            self.outside.append((frame.node, str(target)))
            return []
        self._send_datagram(packet, peer)
        return [packet.message]

    def _send_datagram(self, packet: Packet, peer: int) -> None:
        sender = packet.message.sender
        assert packet.source is not None
        assert packet.target is not None
        flow = (sender, packet.source, peer, packet.target)
        if flow not in self._flows:
            self._flows[flow] = (self._channel(sender, peer, True), [0])
        channel, numbers = self._flows[flow]
        packet.message = packet.message._replace(receiver=peer, channel=channel, number=numbers[0])
        numbers[0] += 1
        self.datagrams.append(packet)

    def _node_at(self, target: Address, sender: int, is_udp: bool) -> int | None:
        """The node that has an address; -1: none has; None: it is not yet known."""
        named = [node for node in range(self._nodes) if str(target.four) == address_of(node)]
        if named:
            return named[0]
        if not target.is_loop and not target.is_any:
            return -1
        answering = [node for node in [sender, *range(self._nodes)] if self._bound(node, target, is_udp)]
        return answering[0] if answering else sender if self.all_started else None

    def _bound(self, node: int, target: Address, is_udp: bool) -> Socket | None:
        for socket in self.sockets.values():
            at = socket.address
            if socket.node != node or socket.gone or at is None or at.port != target.port or socket.is_udp != is_udp:
                continue
            if (is_udp or socket.listens) and (at.is_any or target.is_any or at.ip == target.ip):
                return socket
        return None


def packet_action(kind: ActionKind, packet: Packet) -> Action:
    """What happens to a packet."""
    message = packet.message
    return Action(kind, message.receiver, message.sender, message.number, message.channel)
