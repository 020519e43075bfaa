"""Toy nodes that run inside the test: programs of messages, timers, losses and crashes, and all their orders.

A program is a pure function from a state and an action to the next state. `MessageWorld` runs it as nodes are run;
`every_order` goes through all orders by recursion over states, and knows nothing of the search.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import NamedTuple

from crashcheck.checker.nodes.dependence import BOUND_OF
from crashcheck.runtime.nodes.actions import Action, ActionKind, ActionResult, Message, NodeContent, World

Sends = Sequence[tuple[int, str]]  # receivers and data


class Does(NamedTuple):
    """What a node does at an event: its next memory, what it sends, prints, and whether it ends, with which status."""

    memory: str
    sends: Sends = ()
    prints: str = ""
    ends: int | None = None
    timer: bool | None = None  # arm its timer, or cancel it


@dataclass(frozen=True)
class MessageProgram:
    """`starts`: of each node; `receives`: the node, its memory, the sender and the data; `fires`: its timer."""

    nodes: int
    starts: Callable[[int], Does]
    receives: Callable[[int, str, int, str], Does]
    fires: Callable[[int, str], Does] = lambda node, memory: Does(memory)
    tcp: bool = False
    failures: Mapping[str, int] = field(default_factory=dict)
    lasts: Callable[[int, str], int] = lambda node, memory: 1  # how long a node's timer lasts, armed with this memory
    clock_error: int | None = None  # None: each node has a clock of its own


class Node(NamedTuple):
    memory: str = ""
    printed: str = ""
    up: bool = True
    ended: bool = False
    armed: bool = False
    timers: int = 0  # armed so far
    crashes: int = 0
    now: int = 0
    due: int = 0  # of its timer


class State(NamedTuple):
    nodes: tuple[Node, ...]
    sent: Mapping[tuple[int, int], int]  # by link
    waiting: tuple[Message, ...]  # in the order in which they were sent
    used: Mapping[str, int]


def _does(
    program: MessageProgram, state: State, node: int, does: Does, action: Action | None
) -> tuple[State, ActionResult]:
    old = state.nodes[node]
    armed = old.armed if does.timer is None else does.timer
    new = old._replace(
        memory=does.memory,
        printed=old.printed + does.prints,
        ended=does.ends is not None,
        armed=armed and does.ends is None,
        timers=old.timers + bool(does.timer),
        due=old.now + program.lasts(node, does.memory) if does.timer else old.due,
    )
    sent, out = dict(state.sent), []
    for receiver, data in does.sends:
        number = sent.get((node, receiver), 0)
        sent[node, receiver] = number + 1
        out.append(Message(node, receiver, 0, number, data.encode(), "tcp" if program.tcp else "udp"))
    nodes = (*state.nodes[:node], new, *state.nodes[node + 1 :])
    waiting = (*state.waiting, *(one for one in out if nodes[one.receiver].up and not nodes[one.receiver].ended))
    if does.ends is not None:
        waiting = tuple(one for one in waiting if one.receiver != node)
    ended = None if does.ends is None else does.ends << 8
    begun = action or Action(ActionKind.START, node)
    result = ActionResult(begun, tuple(out), bool(does.timer), does.prints.encode(), ended)
    return state._replace(nodes=nodes, sent=sent, waiting=waiting), result


def started(program: MessageProgram) -> tuple[State, list[ActionResult]]:
    state, results = State(tuple(Node() for _ in range(program.nodes)), {}, (), {}), []
    for node in range(program.nodes):
        state, result = _does(program, state, node, program.starts(node), None)
        results.append(result)
    return state, results


def initial(program: MessageProgram) -> State:
    return started(program)[0]


def possible(program: MessageProgram, state: State) -> list[Action]:
    """What may happen, however many failures there were."""
    first: dict[tuple[int, int], int] = {}
    for one in state.waiting:
        first.setdefault((one.sender, one.receiver), one.number)
    messages = [one for one in state.waiting if not program.tcp or first[one.sender, one.receiver] == one.number]
    out = [Action(ActionKind.DELIVER, one.receiver, one.sender, one.number) for one in messages]
    early = held(program, state)
    out += [timer for timer in timers(state) if timer not in early]
    out += [Action(ActionKind.RESTART, at, -1, node.crashes) for at, node in enumerate(state.nodes) if not node.up]
    if program.failures.get("loss") and not program.tcp:
        out += [Action(ActionKind.LOSE, one.receiver, one.sender, one.number) for one in messages]
    if program.failures.get("duplicate") and not program.tcp:
        out += [Action(ActionKind.DUPLICATE, one.receiver, one.sender, one.number) for one in messages]
    if program.failures.get("crashes"):
        out += [
            Action(ActionKind.CRASH_PROCESS, at, -1, node.crashes)
            for at, node in enumerate(state.nodes)
            if node.up and not node.ended
        ]
    return out


def timers(state: State) -> list[Action]:
    return [
        Action(ActionKind.TIMER, at, -1, node.timers, 0, node.due)
        for at, node in enumerate(state.nodes)
        if node.armed and node.up
    ]


def held(program: MessageProgram, state: State) -> list[Action]:
    """The timers that the clocks do not permit yet."""
    if program.clock_error is None:
        return []
    armed = timers(state)
    latest = min((timer.due_ns for timer in armed), default=0) + program.clock_error
    return [timer for timer in armed if timer.due_ns > latest]


def permitted(program: MessageProgram, state: State) -> list[Action]:
    def within(action: Action) -> bool:
        bound = BOUND_OF.get(action.kind, "")
        return not bound or state.used.get(bound, 0) < program.failures.get(bound, 0)

    return [action for action in possible(program, state) if within(action)]


def step(program: MessageProgram, state: State, action: Action) -> tuple[State, ActionResult]:
    bound, node = BOUND_OF.get(action.kind, ""), action.node
    if bound:
        state = state._replace(used={**state.used, bound: state.used.get(bound, 0) + 1})
    old = state.nodes[node]
    if action.kind in (ActionKind.DELIVER, ActionKind.DUPLICATE, ActionKind.LOSE):
        named = (action.peer, action.node, action.number)
        message = next(one for one in state.waiting if (one.sender, one.receiver, one.number) == named)
        if action.kind is not ActionKind.DUPLICATE:
            state = state._replace(waiting=tuple(one for one in state.waiting if one is not message))
        if action.kind is ActionKind.LOSE:
            return state, ActionResult(action)
        return _does(
            program, state, node, program.receives(node, old.memory, message.sender, message.data.decode()), action
        )
    if action.kind is ActionKind.TIMER:
        state = _with(state, node, old._replace(armed=False))
        for at, each in enumerate(state.nodes) if program.clock_error is not None else ():
            passed = old.due - (program.clock_error or 0) * (at != node)
            state = _with(state, at, each._replace(now=max(each.now, passed)))
        return _does(program, state, node, program.fires(node, old.memory), action)
    if action.kind is ActionKind.RESTART:
        state = _with(state, node, old._replace(up=True, memory=""))
        return _does(program, state, node, program.starts(node), action)
    assert action.kind is ActionKind.CRASH_PROCESS
    state = _with(state, node, old._replace(up=False, armed=False, memory="", crashes=old.crashes + 1))
    waiting = tuple(one for one in state.waiting if node not in (one.sender, one.receiver))
    return state._replace(waiting=waiting), ActionResult(action)


def _with(state: State, number: int, node: Node) -> State:
    return state._replace(nodes=(*state.nodes[:number], node, *state.nodes[number + 1 :]))


class MessageWorld(World):
    """A program run as nodes are run (actions.World)."""

    def __init__(self, program: MessageProgram) -> None:
        self.uncontrolled: Mapping[int, Sequence[str]] = {}
        self.untried_disks = 0
        self.met_faults: frozenset[int] = frozenset()
        self.program = program
        self.reached, self._to_start = started(program)

    def enabled(self) -> Sequence[Action]:
        return [self._to_start[0].action] if self._to_start else possible(self.program, self.reached)

    @property
    def early(self) -> Sequence[Action]:
        return held(self.program, self.reached)

    def permits(self, action: Action) -> bool:
        return False  # no node compares times

    def take(self, action: Action) -> ActionResult:
        if self._to_start:
            return self._to_start.pop(0)
        self.reached, result = step(self.program, self.reached, action)
        return result

    def state(self, folder: Path) -> None:
        for number, node in enumerate(self.reached.nodes):
            (folder / f"n{number}").mkdir()
            (folder / f"n{number}" / "output").write_text(node.printed)

    def log(self) -> Sequence[str]:
        return ()

    def content(self, node: int) -> NodeContent:
        raise NotImplementedError

    def close(self) -> None:
        return


# -- all orders, by brute force


def every_order(program: MessageProgram) -> Iterator[tuple[tuple[Action, ...], State]]:
    """Each order in which a program's actions may come until nothing is left, with what it leaves."""

    def from_here(state: State, order: tuple[Action, ...]) -> Iterator[tuple[tuple[Action, ...], State]]:
        may = permitted(program, state)
        if not may:
            yield order, state
        for action in may:
            yield from from_here(step(program, state, action)[0], (*order, action))

    return from_here(initial(program), ())


def partial_orders(program: MessageProgram, orders: Sequence[tuple[Action, ...]]) -> dict[tuple[Action, ...], int]:
    """The number of each order's partial order: orders are one if swaps of independent neighbours lead from one to the
    other."""
    every, number = set(orders), dict[tuple[Action, ...], int]()
    for count, order in enumerate(orders):
        left = [order]
        while left:
            one = left.pop()
            if one in number:
                continue
            number[one] = count
            state = initial(program)
            for at in range(len(one) - 1):
                other = (*one[:at], one[at + 1], one[at], *one[at + 2 :])
                if other in every and other not in number and not _dependent(program, state, one[at], one[at + 1]):
                    left.append(other)
                state, _ = step(program, state, one[at])
    return number


def _dependent(program: MessageProgram, state: State, first: Action, second: Action) -> bool:
    """Whether two actions that are both possible in a state are dependent, as docs/nodes.md has it."""
    crashes = (ActionKind.CRASH_PROCESS, ActionKind.RESTART)
    if BOUND_OF.get(first.kind, "first") == BOUND_OF.get(second.kind, "second"):
        return True
    runs = [set() if action.kind is ActionKind.LOSE else {action.node} for action in (first, second)]
    if runs[0] & runs[1]:
        return True
    messages = [(one.peer, one.node, one.number) for one in (first, second) if one.peer >= 0]
    if len(messages) == 2 and messages[0] == messages[1]:
        return True
    for one, other in ((first, second), (second, first)):
        sent = {message.receiver for message in step(program, state, other)[1].sent}
        if one.kind in crashes and one.node in {*sent, other.peer, other.node}:
            return True
        lost = {other.node} if other.kind is ActionKind.LOSE else set()
        if step(program, state, one)[1].ended is not None and one.node in sent | lost:
            return True
    return False


# -- programs


def all_to_all(nodes: int, each: int = 1, *, tcp: bool = False) -> MessageProgram:
    """Each node sends so many messages to each other one, and prints what it receives."""

    def starts(node: int) -> Does:
        return Does(
            "", [(other, f"{node}{number}") for other in range(nodes) if other != node for number in range(each)]
        )

    return MessageProgram(nodes, starts, lambda node, memory, sender, data: Does(memory, (), f"{data} "), tcp=tcp)


def two_phase_commit(*, planted: bool = False, votes: str = "yyy") -> MessageProgram:
    """A coordinator, node 0, and participants, which end with the decision; a wrong one is status 1.

    `planted`: it commits after the first yes.
    """
    count = len(votes)

    def starts(node: int) -> Does:
        return Does("", [(other, "prepare") for other in range(1, count + 1)] if node == 0 else [])

    def receives(node: int, memory: str, sender: int, data: str) -> Does:
        if node:
            if data == "prepare":
                return Does(votes[node - 1], [(0, votes[node - 1])])
            return Does(memory, (), data, ends=int(data == "commit" and "n" in memory))
        heard = memory + data
        if "n" in data and "n" not in memory and "!" not in memory:
            return Does(heard + "!", [(other, "abort") for other in range(1, count + 1)], "abort")
        done = planted or heard.count("y") == count
        if data == "y" and "!" not in memory and done:
            return Does(heard + "!", [(other, "commit") for other in range(1, count + 1)], "commit")
        return Does(heard)

    return MessageProgram(count + 1, starts, receives, tcp=True)


MOST_ORDERS = 200


def generated(seed: int) -> tuple[MessageProgram, list[tuple[tuple[Action, ...], State]]]:
    """A program of messages, timers, losses and crashes, and all its orders, of which there are not too many."""
    for attempt in range(1000):
        program = _generated(f"{seed}/{attempt}")
        found = []
        for each in every_order(program):
            found.append(each)
            if len(found) > MOST_ORDERS:
                break
        if 1 < len(found) <= MOST_ORDERS:
            return program, found
    raise AssertionError(f"no program of seed {seed} is small enough")


def _generated(seed: str) -> MessageProgram:
    drawing = Random(seed)
    nodes = drawing.choice([2, 3, 3])
    failures = {name: 1 for name in ("loss", "crashes", "duplicate") if drawing.random() < 0.3}
    timers = drawing.random() < 0.4

    def does(*context: object, depth: int) -> Does:
        choice = Random(f"{seed}/{context}")
        node = int(str(context[1]))
        others = [other for other in range(nodes) if other != node]
        sends = []
        if depth < 2:
            for _ in range(choice.choice([0, 1, 1, 2] if depth else [1, 2])):
                sends.append((choice.choice(others), f"{choice.choice('ab')}{depth + 1}"))
        timer = choice.choice([None, True, False]) if timers and depth < 2 else None
        ends = choice.choice([0, 1]) if choice.random() < 0.1 and depth else None
        memory = f"{context[2] if len(context) > 2 else ''}{context[-1]}"
        return Does(memory, sends, f"{context[0]}{context[-1]} ", ends, timer)

    return MessageProgram(
        nodes,
        lambda node: does("start", node, depth=0),
        lambda node, memory, sender, data: does("got", node, memory, sender, data, depth=int(data[1:])),
        lambda node, memory: does("fired", node, memory, "t", depth=1),
        tcp=drawing.random() < 0.4,
        failures=failures,
    )
