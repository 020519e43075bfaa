"""Failures that are chosen: what nodes and their peers see of them."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable
from pathlib import Path

from crashcheck.runtime.nodes.actions import Action, ActionKind
from crashcheck.runtime.nodes.machines import NodeCommand
from crashcheck.runtime.nodes.world import NodeWorld
from support.node_runs import Worlds, by_default, output

Program = Callable[[str], str]


def of_kind(world: NodeWorld, kind: ActionKind, node: int | None = None) -> list[Action]:
    return [action for action in world.enabled() if action.kind == kind and node in (None, action.node)]


def stream(node_program: Program) -> tuple[NodeCommand, NodeCommand]:
    program = node_program("stream")
    both = frozenset({"process", "machine"})
    return NodeCommand((program, "serve", "1"), crash=both), NodeCommand((program, "connect", "1"), crash=both)


def test_a_peer_of_a_process_that_crashes_reads_the_end(worlds: Worlds, node_program: Program) -> None:
    world = worlds(*stream(node_program))
    by_default(world)
    world.take(Action(ActionKind.CRASH_PROCESS, 0))
    results = by_default(world)
    assert output(results, 1) == b"end\n"
    assert results[-1].ended == 0


def test_a_process_that_crashes_with_bytes_unread_resets_the_connection(worlds: Worlds, node_program: Program) -> None:
    program = node_program("stream")
    code = "import socket,time; s=socket.create_server(('',7001)); c=s.accept()[0]; c.send(b'x'); time.sleep(99)"
    world = worlds(NodeCommand(("python3", "-c", code), crash=frozenset({"process"})), (program, "connect", "1"))
    by_default(world, most=6)  # both have the other's message; the server never reads
    world.take(Action(ActionKind.CRASH_PROCESS, 0))
    results = by_default(world)
    assert output(results, 1) == b"reset\n"
    assert results[-1].ended == 4 << 8


def test_a_peer_of_a_machine_that_crashes_hears_nothing_until_it_is_back(worlds: Worlds, node_program: Program) -> None:
    program = node_program("stream")
    code = (
        "import socket; s=socket.create_connection(('10.0.0.1',7001)); print(s.recv(9),flush=True)\n"
        "s.settimeout(5)\ntry: s.recv(9)\nexcept TimeoutError: s.send(b'?')\ns.settimeout(None); s.recv(9)"
    )
    served = NodeCommand((program, "serve", "1"), crash=frozenset({"machine"}))
    world = worlds(served, ("python3", "-c", code))
    by_default(world, most=5)
    world.take(Action(ActionKind.CRASH_MACHINE, 0))
    assert [result.action.kind for result in by_default(world)] == [ActionKind.TIMER]
    world.take(Action(ActionKind.RESTART, 0, -1, 1))
    results = by_default(world)
    assert [result.action.kind for result in results] == [ActionKind.DELIVER] * 2  # the "?", and the reset
    assert results[-1].ended == 1 << 8


def test_a_node_is_started_again_with_its_folder(worlds: Worlds) -> None:
    world = worlds(NodeCommand(("sh", "-c", "echo x >> f; wc -l < f; sleep 9"), crash=frozenset({"process"})))
    assert world.take(Action(ActionKind.START, 0)).wrote == b"1\n"
    for number in (1, 2):
        world.take(Action(ActionKind.CRASH_PROCESS, 0, -1, number - 1))
        assert world.take(Action(ActionKind.RESTART, 0, -1, number)).wrote == b"%d\n" % (number + 1)


def test_a_restarted_process_has_a_number_that_no_process_before_it_had(worlds: Worlds) -> None:
    """Else a server took its own number in the file that the killed one had left for that of a running one."""
    code = "cat /proc/self/stat | cut -d' ' -f1; echo $$; sleep 9"
    for crash, kind in (("process", ActionKind.CRASH_PROCESS), ("machine", ActionKind.CRASH_MACHINE)):
        world = worlds(NodeCommand(("sh", "-c", code), crash=frozenset({crash})))
        seen = [int(word) for word in world.take(Action(ActionKind.START, 0)).wrote.split()]
        for number in (1, 2):
            world.take(Action(kind, 0, -1, number - 1))
            seen += map(int, world.take(Action(ActionKind.RESTART, 0, -1, number)).wrote.split())
        assert len(set(seen)) == 6, seen


def test_a_connection_request_that_nobody_awaits_is_refused(worlds: Worlds, node_program: Program) -> None:
    world = worlds(("sleep", "9"), (node_program("stream"), "connect"))
    results = by_default(world, most=4)
    assert [result.action.kind.value for result in results] == ["start", "start", "connect", "deliver"]
    assert results[-1].ended == 2 << 8


def test_nothing_passes_a_link_that_is_cut_until_it_is_healed(worlds: Worlds, node_program: Program) -> None:
    world = worlds(*((node_program("datagrams"), str(node), "3") for node in range(3)))
    by_default(world, most=3)
    world.take(Action(ActionKind.CUT, 0, 2))
    delivered = {(result.action.peer, result.action.node) for result in by_default(world)}
    assert delivered == {(0, 1), (1, 0), (1, 2), (2, 1)}
    world.take(Action(ActionKind.HEAL, 0, 2))
    assert {(result.action.peer, result.action.node) for result in by_default(world)} == {(0, 2), (2, 0)}


def test_both_ends_of_a_connection_that_is_reset_read_so(worlds: Worlds, node_program: Program) -> None:
    world = worlds(*stream(node_program))
    by_default(world)
    world.take(of_kind(world, ActionKind.RESET)[0])
    assert world.enabled() == (Action(ActionKind.CUT, 0, 1),)
    folder = Path(os.fspath(world._nodes[0].folder))
    assert [bytes(node.output).splitlines()[-1] for node in world._nodes] == [b"reset", b"reset"]
    assert folder.is_dir()


def test_a_datagram_is_lost_or_comes_twice(worlds: Worlds, node_program: Program) -> None:
    world = worlds(*((node_program("datagrams"), str(node), "2") for node in range(2)))
    by_default(world, most=2)
    assert world.take(of_kind(world, ActionKind.DUPLICATE, 0)[0]).wrote == b"0 from 10.0.0.2:7000\n"
    world.take(of_kind(world, ActionKind.LOSE, 1)[0])
    results = by_default(world)
    assert (output(results, 0), output(results, 1)) == (b"0 from 10.0.0.2:7000\n", b"")


def test_whom_no_node_is_refuses_and_is_named(worlds: Worlds) -> None:
    code = (
        "import socket\ntry: socket.create_connection(('192.0.2.1', 80))\nexcept OSError as error: print(error.errno)"
    )
    world = worlds(("python3", "-c", code))
    assert output(by_default(world), 0) == b"111\n"
    assert world.uncontrolled == {0: ["192.0.2.1:80, which is no node"]}


def test_what_is_not_controlled_is_named(worlds: Worlds) -> None:
    world = worlds(("python3", "-c", "import socket\ntry: socket.socket(2, 3, 1)\nexcept OSError: pass"))
    by_default(world)
    assert world.uncontrolled == {0: ["socket of family 2, type 3, protocol 1"]}


def test_a_state_holds_folders_outputs_and_the_log(worlds: Worlds, tmp_path: Path) -> None:
    world = worlds(("sh", "-c", "echo content > file; echo words; echo error >&2"))
    by_default(world)
    world.state(tmp_path / "state")
    written = {path.name: path.read_bytes() for path in (tmp_path / "state").rglob("*") if path.is_file()}
    assert (written["file"], written["n0.output"], written["n0.errors"]) == (b"content\n", b"words\n", b"error\n")
    assert written["log.jsonl"].count(b"\n") == 1


def test_no_process_is_left_when_the_controller_is_killed(worlds: Worlds) -> None:
    world = worlds(("sh", "-c", "sleep 9 & sleep 9"), ("sleep", "9"))
    by_default(world, most=2)
    controller = world._controller.pid
    mine = descendants(controller)
    assert len(mine) == 6  # two inits, a shell with two children, a sleep
    ends = [os.pidfd_open(pid) for pid in mine]
    os.kill(controller, signal.SIGKILL)
    world._controller.wait()
    for end in ends:
        assert select.select([end], [], [], 60)[0]
        os.close(end)


def descendants(pid: int) -> list[int]:
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = [int(child) for child in path.read_text().split()]
    return [one for child in children for one in (child, *descendants(child))]
