"""The network interfaces that a node finds: `lo`, and `eth0` with the node's own address, whatever the machine has."""

from __future__ import annotations

import sys
from collections.abc import Callable

from support.node_runs import Worlds, by_default, output

SECOND = """\
1 lo 00:00:00:00:00:00 mask - broadcast - flags 0x10049
2 eth0 02:00:0a:00:00:02 mask - broadcast ff:ff:ff:ff:ff:ff flags 0x11043
1 lo 127.0.0.1 mask 255.0.0.0 broadcast - flags 0x10049
2 eth0 10.0.0.2 mask 255.255.255.0 broadcast 10.0.0.255 flags 0x11043
1 lo ::1 mask ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff broadcast - flags 0x10049
lo 127.0.0.1 mask 255.0.0.0 broadcast 0.0.0.0 mtu 65536 flags 0x49
eth0 10.0.0.2 mask 255.255.255.0 broadcast 10.0.0.255 mtu 1500 flags 0x1043
eth1: No such device
"""

NAMES = """
import socket
print(socket.if_nameindex(), socket.if_indextoname(2))
lists = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)
lists.bind((0, 0))
print(lists.getsockname()[0] != 0)
lists.setblocking(False)
try:
    lists.recv(1)
except BlockingIOError:
    print("nothing changes")
"""

ASKS = """
import socket, struct
asks = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM)
asks.send(struct.pack("IHHIIB3x", 20, {kind}, {flags}, 7, 0, 0))
answer, source = asks.recvfrom(4096)
size, kind, flags, number, port, error = struct.unpack_from("IHHIIi", answer)
print(kind, number, error, source)
"""


def test_the_interfaces_of_a_node_are_listed_with_its_addresses(
    worlds: Worlds, node_program: Callable[[str], str]
) -> None:
    world = worlds((node_program("interfaces"),), (node_program("interfaces"),))
    results = by_default(world)
    assert output(results, 1).decode() == SECOND
    assert output(results, 0).decode() == SECOND.replace("10.0.0.2 ", "10.0.0.1 ").replace("0a:00:00:02", "0a:00:00:01")
    assert world.uncontrolled == {}


def test_interfaces_have_names_and_never_change(worlds: Worlds) -> None:
    world = worlds((sys.executable, "-c", NAMES))
    assert output(by_default(world), 0) == b"[(1, 'lo'), (2, 'eth0')] eth0\nTrue\nnothing changes\n"
    assert world.uncontrolled == {}


def test_another_request_than_a_list_is_refused_and_named(worlds: Worlds) -> None:
    world = worlds((sys.executable, "-c", ASKS.format(kind=16, flags=1)))
    assert output(by_default(world), 0) == b"2 7 -95 (0, 0)\n"
    assert world.uncontrolled == {0: ["netlink request of type 16"]}
