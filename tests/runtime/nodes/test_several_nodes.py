"""Several nodes: what they send arrives when it is chosen, in every order that can be."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from support.node_runs import Worlds, by_default, complete_runs, output

Program = Callable[[str], str]


def outputs(results: object, nodes: int) -> tuple[bytes, ...]:
    return tuple(output(results, node) for node in range(nodes))  # type: ignore[arg-type]


def test_two_datagrams_each_way_arrive_in_24_orders(worlds: Worlds, node_program: Program) -> None:
    program = node_program("datagrams")
    runs = list(complete_runs(lambda: worlds((program, "0", "2", "2"), (program, "1", "2", "2")), 2))
    assert len(runs) == 24
    assert len({outputs(run, 2) for run in runs}) == 4


@pytest.mark.slow
def test_one_datagram_from_each_of_three_nodes_to_each_arrives_in_720_orders_with_8_outputs(
    worlds: Worlds, node_program: Program
) -> None:
    commands = [(node_program("datagrams"), str(node), "3") for node in range(3)]
    runs = list(complete_runs(lambda: worlds(*commands), 3))
    assert len(runs) == 720
    assert len({outputs(run, 3) for run in runs}) == 8


def test_three_messages_each_way_of_a_connection_arrive_in_20_orders(worlds: Worlds, node_program: Program) -> None:
    program = node_program("stream")
    runs = list(complete_runs(lambda: worlds((program, "serve"), (program, "connect")), 4))
    assert len(runs) == 20
    assert {outputs(run, 2) for run in runs} == {(b"accepted 10.0.0.2\nc0\nc1\nc2\n", b"s0\ns1\ns2\n")}


def test_a_program_of_epoll_and_a_timer_s_file_counts_its_seconds(worlds: Worlds, node_program: Program) -> None:
    program = node_program("events")
    results = by_default(worlds((program, "serve"), (program, "ask")))
    assert output(results, 1) == b"1\n2\n3\n"
    assert [result.ended for result in results if result.ended is not None] == [0, 0]


def test_nodes_know_the_names_of_nodes_and_no_others(worlds: Worlds) -> None:
    code = "import socket; print(socket.gethostname(), *[socket.gethostbyname(name) for name in ('n1', 'localhost')])"
    world = worlds(
        ("python3", "-c", code + "\ntry: socket.gethostbyname('example.org')\nexcept OSError: print('none')")
    )
    assert output(by_default(world), 0) == b"n0 10.0.0.2 127.0.0.1\nnone\n"
    assert world.uncontrolled == {}


def test_a_run_of_two_nodes_is_repeated_byte_for_byte(worlds: Worlds, node_program: Program) -> None:
    program = node_program("events")

    def run() -> object:
        return by_default(worlds((program, "serve"), (program, "ask")))

    first = run()
    assert all(run() == first for _ in range(9))


SHARES = """
import socket
def bound(kind, shares):
    s = socket.socket(socket.AF_INET, kind)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, shares)
    s.bind(("10.0.0.1", 5000))
    return s
for kind in (socket.SOCK_DGRAM, socket.SOCK_STREAM):
    first, second = bound(kind, 1), bound(kind, 1)
    try:
        bound(kind, 0)
    except OSError as error:
        print(error.strerror)
    if kind == socket.SOCK_STREAM:
        first.listen(), second.listen()
        other = socket.create_connection(("10.0.0.1", 5000))
        print(first.accept()[0].getpeername() == other.getsockname())
        first.close()
        other = socket.create_connection(("10.0.0.1", 5000))
        print(second.accept()[0].getpeername() == other.getsockname())
"""


def test_sockets_share_a_port_if_all_of_them_permit_it(worlds: Worlds) -> None:
    world = worlds((sys.executable, "-c", SHARES))
    assert output(by_default(world), 0) == b"Address already in use\n" * 2 + b"True\nTrue\n"
    assert world.uncontrolled == {}
