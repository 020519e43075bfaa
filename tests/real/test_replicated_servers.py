"""Debian's replicated servers as nodes, as they are: they synchronise or elect, and a run is repeated byte for byte."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from crashcheck.runtime.nodes.actions import ActionResult
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.network import address_of
from crashcheck.runtime.nodes.world import NodeWorld
from support.node_runs import output, usual

pytestmark = pytest.mark.slow

ACTIONS_MOST = 2000


def installed(*programs: str) -> None:
    if missing := [program for program in programs if shutil.which(program) is None]:
        pytest.skip(f"Debian's {', '.join(missing)} is not installed")


def until_the_client_ends(commands: Sequence[NodeCommand], folder: Path) -> list[ActionResult]:
    """The default order of actions, until the last of some nodes has ended; nothing may be out of control."""
    world = NodeWorld(commands, folder)
    results: list[ActionResult] = []
    try:
        while len(results) < ACTIONS_MOST and not any(
            one.ended is not None and one.action.node == len(commands) - 1 for one in results[-1:]
        ):
            results.append(world.take(usual(world)[0]))
        assert world.uncontrolled == {}
    finally:
        world.close()
        shutil.rmtree(folder)
    return results


def shell(command: str) -> NodeCommand:
    return NodeCommand(("sh", "-c", command))


def test_redis_and_a_replica_synchronise_and_the_run_is_repeated(tmp_path: Path) -> None:
    installed("redis-server", "redis-cli")
    first, second = address_of(0), address_of(1)
    common = ("redis-server", "--port", "6379", "--dir", ".", "--protected-mode", "no")
    commands = [
        NodeCommand((*common, "--appendonly", "yes")),
        NodeCommand((*common, "--replicaof", first, "6379")),
        shell(f"sleep 3; redis-cli -h {first} set a 1 && redis-cli -h {first} wait 1 0; redis-cli -h {second} get a"),
    ]
    runs = [until_the_client_ends(commands, tmp_path / "world") for _ in range(2)]
    assert output(runs[0], 2) == b"OK\n1\n1\n"
    assert runs[0] == runs[1]


def test_three_nodes_of_etcd_elect_a_leader_and_the_run_is_repeated(tmp_path: Path) -> None:
    installed("etcd", "etcdctl")
    cluster = ",".join(f"n{node}=http://{address_of(node)}:2380" for node in range(3))
    commands = [
        NodeCommand(
            (
                *("etcd", "--name", f"n{node}", "--data-dir", "data", "--initial-cluster", cluster),
                *(
                    word
                    for option, port in (
                        ("listen-client-urls", 2379),
                        ("advertise-client-urls", 2379),
                        ("listen-peer-urls", 2380),
                        ("initial-advertise-peer-urls", 2380),
                    )
                    for word in (f"--{option}", f"http://{address_of(node)}:{port}")
                ),
            )
        )
        for node in range(3)
    ]
    put = f"etcdctl --endpoints={address_of(0)}:2379 put a 1"
    get = f"etcdctl --endpoints={address_of(1)}:2379 get a"
    commands.append(shell(f"export ETCDCTL_API=3; sleep 5; {put} && {get}"))
    runs = [until_the_client_ends(commands, tmp_path / "world") for _ in range(2)]
    assert output(runs[0], 3) == b"OK\na\n1\n"
    assert runs[0] == runs[1]
