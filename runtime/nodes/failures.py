"""What may fail in a run of nodes: messages, links, connections, processes, machines, calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from crashcheck.runtime.nodes.actions import Action, ActionKind
from crashcheck.runtime.nodes.machines import Machine
from crashcheck.runtime.nodes.network import Network, packet_action


def failures(nodes: Sequence[Machine], network: Network, cuts: Set[tuple[int, int]]) -> Iterator[Action]:
    """The failures that are possible now. `cuts`: links that are cut, the smaller number first."""
    for index, node in enumerate(nodes):
        if node.crashed:
            for disk in node.disk_states:
                yield Action(ActionKind.RESTART, index, -1, node.starts, disk)
    for packet in network.datagrams:
        yield packet_action(ActionKind.LOSE, packet)
    for packet in network.datagrams:
        if network.receiver(packet) and link(packet.message.sender, packet.message.receiver) not in cuts:
            yield packet_action(ActionKind.DUPLICATE, packet)
    for index, node in enumerate(nodes):
        for kind, name in ((ActionKind.CRASH_PROCESS, "process"), (ActionKind.CRASH_MACHINE, "machine")):
            if node.alive and name in node.command.crash:
                yield Action(kind, index, -1, node.starts - 1)
        for fault in node.command.faults if node.alive else ():
            if not fault.nth:
                yield Action(ActionKind.FAULT, index, -1, fault.number, node.chosen_faults[fault.number])
    for one in range(len(nodes)):
        for other in range(one + 1, len(nodes)):
            yield Action(ActionKind.HEAL if (one, other) in cuts else ActionKind.CUT, one, other)
    for end in network.connections():
        if end.peer and not end.gone and not end.peer.gone:
            one, other = sorted((end.node, end.peer.node))
            yield Action(ActionKind.RESET, one, other, 0, end.channel)


def link(one: int, other: int) -> tuple[int, int]:
    """The link between two nodes, the smaller number first."""
    return min(one, other), max(one, other)
