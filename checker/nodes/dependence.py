"""Which actions of nodes are dependent, and which orders of them therefore differ.

An action reads and writes resources: its footprint. Two actions are dependent if one writes what the other reads or
writes; two orders in which dependent actions come in the same order are one partial order, and lead to the same.

    action             reads               writes
    start, restart                         its node, the way to it and from it
    connect            both links          both nodes
    deliver            its way             the receiver, the message
    duplicate          its way             the receiver, the message, its bound
    lose               its way             the message, its bound
    thread, complete                       its node
    timer, lapse                           its node; with `clock_error` the clock
    timer that ticks                       its node's ticks; with `clock_error` the clock
    crash                                  its node, the way to it and from it, its bound
    cut, heal                              both links; of a cut its bound
    reset                                  both nodes, both links, its bound
    fault                                  its node, its bound
    what it sends      each message's way
    the node's end                         the way to it
    a read of a clock  with `clock_error` the clock

The way of a message is the way from its sender, the link, and the way to its receiver.

So two actions on one node are dependent (MODIST 3.2), a loss and a delivery of one message, a cut and a delivery on the
link, and two failures that draw on one bound. Two deliveries on one link are dependent because their receiver is one
node; to send is independent of a delivery of what was sent before.

A timer ticks if nobody else sees anything of it, and did not when it fired last (ActionResult.ticks): when else it
fires is not searched. A time-out is quiet as well where it comes too late for anything, and may decide all if it comes
earlier: so when a timer first fires is.

What an action enables follows it in every order: there is an edge, but nothing to reverse.

With `clock_error` a timer that is due late may not fire as long as an earlier one is armed. So it is searched before
the action that armed the earlier one; and, where time passes it later, before the action that disarmed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult

Resource = tuple[str | int, ...]

CLOCK: Resource = ("clock",)
OF_MESSAGES = (ActionKind.DELIVER, ActionKind.LOSE, ActionKind.DUPLICATE)
CRASHES = (ActionKind.CRASH_PROCESS, ActionKind.CRASH_MACHINE)
# The bound of a run that each kind of failure draws on.
BOUND_OF = {
    **dict.fromkeys(CRASHES, "crashes"),
    ActionKind.LOSE: "loss",
    ActionKind.DUPLICATE: "duplicate",
    ActionKind.CUT: "cut",
    ActionKind.RESET: "reset",
    ActionKind.FAULT: "faults",
}


class Footprint(NamedTuple):
    """What an action reads and writes."""

    reads: frozenset[Resource]
    writes: frozenset[Resource]

    def depends_on(self, other: Footprint) -> bool:
        """Whether the order of two actions matters."""
        return not (
            self.writes.isdisjoint(other.writes)
            and self.writes.isdisjoint(other.reads)
            and self.reads.isdisjoint(other.writes)
        )


def footprint(action: Action, result: ActionResult | None = None, *, clock: bool = False) -> Footprint:
    """Of an action; without its result, what is known of it before it happens.

    `clock`: all nodes have one clock, up to an error.
    """
    reads: set[Resource] = set()
    writes: set[Resource] = set()
    node, peer, kind = action.node, action.peer, action.kind
    links: list[Resource] = [("link", node, peer), ("link", peer, node)]
    if kind in (ActionKind.START, ActionKind.RESTART, *CRASHES):
        writes.update((("node", node), ("to", node), ("from", node)))
    elif kind is ActionKind.CONNECT:
        reads.update(links)
        writes.update((("node", node), ("node", peer)))
    elif kind in OF_MESSAGES:
        reads.update(_way(peer, node))
        writes.add(("message", peer, node, action.channel, action.number))
        if kind is not ActionKind.LOSE:
            writes.add(("node", node))
    elif kind in (ActionKind.CUT, ActionKind.HEAL):
        writes.update(links)
    elif kind is ActionKind.RESET:
        writes.update((*links, ("node", node), ("node", peer)))
    else:
        writes.add(("ticks" if result is not None and result.ticks else "node", node))
        if kind in (ActionKind.TIMER, ActionKind.LAPSE) and clock:
            writes.add(CLOCK)
    if kind in BOUND_OF:
        writes.add(("bound", BOUND_OF[kind]))
    if result is not None:
        if result.ended is not None:
            writes.add(("to", node))
        for message in result.sent:
            reads.update(_way(message.sender, message.receiver))
        if result.read_clock and clock:
            reads.add(CLOCK)
    return Footprint(frozenset(reads), frozenset(writes))


def same_lapse(one: Action, other: Action) -> bool:
    """Whether both let a node's clock pass to one time."""
    return one.kind is other.kind is ActionKind.LAPSE and (one.node, one.due_ns) == (other.node, other.due_ns)


def _way(sender: int, receiver: int) -> tuple[Resource, ...]:
    return ("from", sender), ("link", sender, receiver), ("to", receiver)


class HappensBefore:
    """The partial order of a run's actions, built as they are added: a set of them is the bits of an integer."""

    def __init__(self) -> None:
        self._direct: list[list[int]] = []  # of each action, those that precede it with nothing between
        self._needs: list[frozenset[int]] = []
        self._before: list[int] = []  # of each action, all that precede it
        self._written: dict[Resource, int] = {}  # the last action that wrote it
        self._read: dict[Resource, list[int]] = {}  # actions that read it since

    def add(self, shown: Footprint, needs: frozenset[int] = frozenset()) -> list[int]:
        """Add the run's next action; what is `reversible` of it.

        `needs`: actions without which it could not have happened.
        """
        number, direct = len(self._before), self.direct(shown, needs)
        self._direct.append(direct)
        self._needs.append(needs)
        self._before.append(self.closed(direct))
        for resource in shown.writes:
            self._written[resource] = number
            self._read[resource] = []
        for resource in shown.reads - shown.writes:
            self._read.setdefault(resource, []).append(number)
        return self.reversible(number)

    def reversible(self, number: int) -> list[int]:
        """The actions before one whose order with it can be reversed, the last one first."""
        return [earlier for earlier in self._direct[number] if earlier not in self._needs[number]]

    def direct(self, shown: Footprint, needs: frozenset[int] = frozenset()) -> list[int]:
        """The actions that would precede a next one with nothing between, the last first."""
        found = {self._written[resource] for resource in shown.writes | shown.reads if resource in self._written}
        found |= needs
        found.update(reader for resource in shown.writes for reader in self._read.get(resource, ()))
        inner = 0
        for earlier in found:
            inner |= self._before[earlier]
        return sorted((earlier for earlier in found if not inner >> earlier & 1), reverse=True)

    def closed(self, direct: Sequence[int]) -> int:
        """Some actions and all that precede them."""
        before = 0
        for earlier in direct:
            before |= self._before[earlier] | 1 << earlier
        return before

    def before(self, number: int) -> int:
        """All that precede an action."""
        return self._before[number]

    def precedes(self, earlier: int, later: int) -> bool:
        return bool(self._before[later] >> earlier & 1)

    def initials(self, earlier: int, later: int, before: int) -> list[int]:
        """What may be first, instead of `earlier`, in a run that brings `later`, which `before` precede, before it.

        That is of the actions between the two that `earlier` does not precede, and `later`, each that none of the
        others precedes (source sets: Abdulla et al. 2014, section 4).
        """
        between = [number for number in range(earlier + 1, later) if not self.precedes(earlier, number)]
        own = sum(1 << number for number in between)
        found = [number for number in between if not self._before[number] & own]
        return found if before & own else [*found, later]

    def canonical(self, names: Sequence[Action]) -> bytes:
        """Equal for two runs, of actions with these names, only if they are one partial order."""
        seen: Counter[Action] = Counter()
        unique = []
        for name in names:
            unique.append((*name, seen[name]))
            seen[name] += 1
        edges = [(unique[at], sorted(unique[earlier] for earlier in each)) for at, each in enumerate(self._direct)]
        return repr(sorted(edges)).encode()
