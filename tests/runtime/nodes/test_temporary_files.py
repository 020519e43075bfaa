"""Each node has a /tmp and a /dev/shm of its own: empty at first, kept by its process's end, lost with its machine."""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from crashcheck.runtime.nodes.actions import ActionKind
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld
from support.node_runs import Worlds, by_default, output

NAME = "crashcheck-own-file"
LISTS = "ls -d /tmp/*own* /dev/shm/* 2>/dev/null; "
WRITES = f"echo $$ $0 > /tmp/{NAME}; cat /tmp/{NAME} > /dev/shm/{NAME}; cat /dev/shm/{NAME}; "
SOCKET = """
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/own.sock")
server.listen()
client = socket.socket(socket.AF_UNIX)
client.connect("/tmp/own.sock")
server.accept()[0].send(os.uname().nodename.encode())
print(client.recv(9).decode(), oct(os.stat("/tmp").st_mode), flush=True)
"""


def shell(name: str, script: str) -> tuple[str, ...]:
    return ("sh", "-c", script, name)


def test_two_nodes_write_one_name_and_no_run_sees_what_another_left(worlds: Worlds) -> None:
    for _ in range(2):
        world = worlds(shell("a", LISTS + WRITES), shell("b", LISTS + WRITES))
        results = by_default(world)
        assert (output(results, 0), output(results, 1)) == (b"2 a\n", b"2 b\n")
        assert world.uncontrolled == {}
    assert not Path("/tmp", NAME).exists()
    assert not Path("/dev/shm", NAME).exists()


def test_two_nodes_have_a_socket_of_one_name(worlds: Worlds) -> None:
    world = worlds((sys.executable, "-c", SOCKET), (sys.executable, "-c", SOCKET))
    results = by_default(world)
    assert (output(results, 0), output(results, 1)) == (b"n0 0o41777\n", b"n1 0o41777\n")
    assert world.uncontrolled == {}


@pytest.mark.parametrize(("how", "kept"), [("process", True), ("machine", False)])
def test_what_is_written_there_stays_as_long_as_the_machine_runs(how: str, kept: bool, worlds: Worlds) -> None:
    command = NodeCommand(shell("a", LISTS + WRITES + "exec sleep 9"), crash=frozenset({how}))
    world = worlds(command)
    assert world.take(world.enabled()[0]).wrote == b"2 a\n"
    world.take(next(action for action in world.enabled() if action.kind is ActionKind(f"crash-{how}")))
    written = f"/dev/shm/{NAME}\n/tmp/{NAME}\n".encode() if kept else b""
    assert world.take(world.enabled()[0]).wrote == written + b"1001 a\n"


def test_a_folder_in_tmp_that_the_command_names_is_there(worlds: Worlds, tmp_path: Path) -> None:
    if tmp_path.parts[1] != "tmp":
        pytest.skip("temporary folders are elsewhere")
    (tmp_path / "script").write_text("echo from $0; ls -A /tmp")
    with TemporaryDirectory(dir="/tmp") as other:
        results = by_default(worlds(("sh", str(tmp_path / "script"))))
    first, *there = output(results, 0).decode().splitlines()
    assert first == f"from {tmp_path}/script"
    assert tmp_path.parts[2] in there
    assert Path(other).name not in there


def test_a_project_in_shared_memory_is_there() -> None:
    with TemporaryDirectory(dir="/dev/shm") as place:
        Path(place, "script").write_text("echo from $0; echo x > file; ls -A /dev/shm")
        world = NodeWorld([NodeCommand(("sh", f"{place}/script"))], Path(place, "world"))
        results = by_default(world)
        assert output(results, 0).decode().splitlines() == [f"from {place}/script", Path(place).name]
        assert world.content(0).folder.joinpath("file").read_text() == "x\n"
        assert world.uncontrolled == {}
        world.close()
