"""One execution of nodes: unmodified processes whose system calls the controller answers."""

from __future__ import annotations

import socket
import subprocess
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import starmap
from pathlib import Path

from crashcheck.runtime.build import JAVASCRIPT, NodePrograms, build_nodes
from crashcheck.runtime.nodes.actions import (
    ACCEPTED,
    END,
    REFUSED,
    RESET,
    Action,
    ActionKind,
    ActionResult,
    Compared,
    NodeContent,
    NodeError,
    ThreadWait,
    World,
)
from crashcheck.runtime.nodes.failures import failures, link
from crashcheck.runtime.nodes.machines import CallFault, CrashDisk, Machine, NameCalls, NodeCommand, empty_folder
from crashcheck.runtime.nodes.network import Network, Packet, Request, packet_action
from crashcheck.runtime.nodes.node_clocks import NodeClocks
from crashcheck.runtime.nodes.placed_calls import PlacedCalls
from crashcheck.runtime.nodes.steps import ActionStep, log_line
from crashcheck.runtime.nodes.timers import Timer
from crashcheck.runtime.nodes.wire import NodeEvent, NodeOrder, StartFlag, Wire, WireFrame, error_of

_REFUSED_ERROR = 111  # ECONNREFUSED
_STANDARD_OUTPUT = 1
PATIENCE_S = 10
_FOR_EVER = 0xFFFF  # times that a call fails
# What a timer may lead to that is quiet: nobody else sees it.
_QUIET = (NodeEvent.ARMED, NodeEvent.DISARMED, NodeEvent.CLOCK_READ, NodeEvent.COMPARED, NodeEvent.REST)
# Actions after which files and output are as before, unless the node changes them.
_KEEPING = (ActionKind.CONNECT, ActionKind.DELIVER, ActionKind.LOSE, ActionKind.DUPLICATE, ActionKind.TIMER)
_ERROR_BITS = 16  # of an error; what is above is the fault's number


def _timer_action(node: int, timer: Timer) -> Action:
    return Action(ActionKind.TIMER, node, -1, timer.number, 0, timer.due_ns)


class NodeWorld(World):
    """An execution of `commands`, whose folders are made in `folder`, which must be empty, or an earlier one's.

    clock_error_ns: of the timers of all nodes only those due up to so long after the earliest may fire; None: any
    node's earliest may, as each node has a clock of its own. A node's timers fire in the order in which they are due.
    Timers that only tick fire in stretches, and not for ever (see NodeTimers).

    crash_disk: what a crash leaves of the folder of a machine that may crash; None: all that was written.
    programs: of `build_nodes`, for those who make many worlds. name_calls: messages have the call stacks of their
    senders (`stacks`); this records all nodes, and takes time in each call that sends. recorded: is given each trace
    once all processes have ended; this records all nodes as well.

    After `take`, `uncontrolled` names what is not under control: a run that has any may differ when it is repeated.
    """

    def __init__(
        self,
        commands: Sequence[NodeCommand],
        folder: Path,
        clock_error_ns: int | None = None,
        crash_disk: CrashDisk | None = None,
        programs: NodePrograms | None = None,
        name_calls: NameCalls | None = None,
        private: Path | None = None,
        recorded: Callable[[Path], None] | None = None,
        patience_s: int = PATIENCE_S,
    ) -> None:
        """`private`: where the nodes' own /tmp and /dev/shm are, if not below `folder`; it is removed. `patience_s`: so
        long a node may compute in one action."""
        self._calls = PlacedCalls(name_calls) if name_calls is not None else None
        self._machine = folder / "machine"
        self._recorded = recorded
        records_all = self._calls is not None or recorded is not None
        crashes = {"machine"} if crash_disk is not None else set()
        empty_folder(self._machine)  # first: files that are newer than it are the run's
        self._nodes = [
            Machine(
                command,
                folder / (command.folder or f"n{index}"),
                folder / "traces" / f"n{index}" if records_all or crashes & command.crash else None,
                (private or folder / "private") / f"n{index}",
            )
            for index, command in enumerate(commands)
        ]
        self._crash_disk = crash_disk
        self._clocks = NodeClocks(self._nodes, clock_error_ns)
        self._network = Network(len(commands))
        self._cuts: set[tuple[int, int]] = set()
        self._failed = False  # a node did, or did not come to rest: then there are no more actions
        self._log: list[str] = []  # a line for each action
        self._enabled: tuple[Action, ...] | None = None  # as long as nothing happens
        self.uncontrolled: dict[int, list[str]] = {}
        self.untried_disks = 0
        self.met_faults: set[int] = set()
        self.stopped = False
        self.calls = 0
        programs = programs or build_nodes()
        ours, theirs = socket.socketpair()
        with theirs:
            self._controller = subprocess.Popen(
                [
                    programs.controller,
                    str(theirs.fileno()),
                    self._machine,
                    programs.attached,
                    JAVASCRIPT,
                    programs.java,
                    str(patience_s),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        self._end = ours
        self._wire = Wire(ours)

    def enabled(self) -> Sequence[Action]:
        if self._enabled is None:
            self._enabled = tuple(self._possible())
        return self._enabled

    @property
    def early(self) -> Sequence[Action]:
        return tuple(starmap(_timer_action, self._clocks.early()))

    def permits(self, action: Action) -> bool:
        return self._clocks.permits(action)

    def take(self, action: Action) -> ActionResult:
        step = ActionStep()
        if action not in self.enabled() and not self.permits(action):
            raise NodeError(
                "action-not-enabled",
                f"{action.kind.value} of {self._name_of(action.node)} is not possible now",
                "Follow a schedule only with the programs that it was recorded with.",
            )
        self._enabled = None
        before = self._clocks.before()
        getattr(self, "_" + action.kind.name.lower())(action, step)
        self._note_outside(step)
        result = ActionResult(
            action,
            tuple(step.sent),
            step.read_clock,
            bytes(step.wrote),
            step.ended,
            step.disk,
            errors=bytes(step.errors),
            thread=step.thread,
            fired=step.fired,
            quiet=action.kind is ActionKind.TIMER and not step.seen,
            ticks=action.kind is ActionKind.TIMER and not step.seen and not step.first,
            kept=not step.changed and action.kind in _KEEPING,
        )
        if step.compared:
            compared = tuple(comparison for _, comparison in step.compared)
            result = result._replace(compared=compared, lapses=self._clocks.lapses(before, step.compared))
        self._log.append(log_line(result))
        return result

    def state(self, folder: Path) -> None:
        for node in self._nodes:
            node.content.write(folder)
        (folder / "log.jsonl").write_text("".join(self._log), encoding="utf-8")

    def log(self) -> Sequence[str]:
        return self._log

    def content(self, node: int) -> NodeContent:
        return self._nodes[node].content

    @property
    def idle(self) -> bool:
        return self._clocks.idle

    @property
    def controller_pid(self) -> int:
        """The process that all processes of the execution are below."""
        return self._controller.pid

    def stacks(self) -> Mapping[int, tuple[str, ...]]:
        if self._calls is None:
            return {}
        if self._failed:
            self._controller.wait()  # it ends, and all processes with it
            return self._calls.named()
        for number, node in enumerate(self._nodes):
            if node.answers:
                self._order(NodeOrder.KILL, number, ActionStep(), other=1)  # which ends its trace
        return self._calls.named()

    def stop(self) -> None:
        self.stopped = True
        self._controller.kill()  # all processes of the nodes end with it

    def close(self) -> None:
        self._end.close()
        self._controller.wait()
        for node in self._nodes:
            if self._recorded is not None:
                for trace in node.traces:
                    self._recorded(trace)
            node.remove(rests=not (self._failed or self.stopped))

    def _name_of(self, node: int) -> str:
        return self._nodes[node].command.name or f"node {node}"

    # What may happen

    def _possible(self) -> Iterator[Action]:
        for index, node in enumerate(self._nodes):
            for number in node.threads:
                yield Action(ActionKind.THREAD, index, -1, number, node.turns[number])
        for index, node in enumerate(self._nodes):
            if not node.starts:
                yield Action(ActionKind.START, index)
        for request in self._network.requests:
            if self._nodes[request.peer].answers and not self._is_cut(request.socket.node, request.peer):
                yield Action(ActionKind.CONNECT, request.peer, request.socket.node, 0, request.channel)
        for index, node in enumerate(self._nodes):
            for number in node.requests:
                yield Action(ActionKind.COMPLETE, index, -1, number)
        for packet in sorted(self._deliverable(), key=lambda packet: packet.order):
            yield packet_action(ActionKind.DELIVER, packet)
        for index, timer in sorted(self._clocks.may_fire(), key=lambda each: (each[1].due_ns, each[0], each[1].number)):
            yield _timer_action(index, timer)
        yield from failures(self._nodes, self._network, self._cuts)

    def _is_cut(self, one: int, other: int) -> bool:
        return link(one, other) in self._cuts

    def _deliverable(self) -> Iterator[Packet]:
        for packet in self._network.deliverable():
            sender, receiver = packet.message.sender, packet.message.receiver
            if self._nodes[receiver].answers and not self._is_cut(sender, receiver):
                yield packet

    # How it happens

    def _start(self, action: Action, step: ActionStep) -> None:
        number = self._nodes[action.node].starts
        for fault in self._nodes[action.node].command.faults if not number else ():
            times = 0 if not fault.nth else fault.times or _FOR_EVER
            self._fail_call(action.node, fault, step, skip=max(fault.nth - 1, 0), times=times)
        node = self._nodes[action.node]
        data = node.start()
        flags = StartFlag(0) if self._calls is None else StartFlag.PLACES
        flags |= StartFlag.EXPLORES if node.command.explores else StartFlag(0)
        self._network.all_started = all(node.starts for node in self._nodes)
        self._order(NodeOrder.START, action.node, step, number=number, other=flags, data=data)

    def _restart(self, action: Action, step: ActionStep) -> None:
        step.disk = self._nodes[action.node].keep(action.channel)
        self._start(action, step)

    def _connect(self, action: Action, step: ActionStep) -> None:
        request = next(
            one
            for one in self._network.requests
            if (one.peer, one.socket.node, one.channel) == (action.node, action.peer, action.channel)
        )
        self._network.requests.remove(request)
        listener = self._network.listener(request)
        if listener:
            self._order(NodeOrder.REQUEST, action.node, step, number=listener.number, other=request.socket.number)
        else:
            step.sent.append(self._network.refuse(request))

    def _complete(self, action: Action, step: ActionStep) -> None:
        self._order(NodeOrder.COMPLETE, action.node, step, number=action.number)

    def _thread(self, action: Action, step: ActionStep) -> None:
        node = self._nodes[action.node]
        step.thread = node.threads[action.number]
        node.turns[action.number] += 1
        self._order(NodeOrder.CONTINUE, action.node, step, number=action.number)

    def _deliver(self, action: Action, step: ActionStep) -> None:
        packet, end = self._network.packet(action)
        if end is None:
            self._network.datagrams.remove(packet)
            self._hand_over(packet, step)
            return
        end.under_way.popleft()
        receiver = end.peer
        assert receiver is not None
        what = packet.message.what
        if receiver.gone:
            if what not in (RESET, REFUSED) and not end.gone:
                step.sent += self._network.write_reset(receiver)
        elif what in (ACCEPTED, REFUSED):
            error = _REFUSED_ERROR if what == REFUSED else 0
            self._order(NodeOrder.CONNECTED, action.node, step, number=receiver.number, other=error)
        elif what == RESET:
            self._network.reset(receiver)
            self._order(NodeOrder.RESET, action.node, step, number=receiver.number)
        elif what == END:
            self._order(NodeOrder.FINISH, action.node, step, number=receiver.number)
        else:
            self._order(NodeOrder.ARRIVE, action.node, step, number=receiver.number, data=packet.message.data)

    def _hand_over(self, packet: Packet, step: ActionStep) -> None:
        receiver = self._network.receiver(packet)
        assert receiver is not None
        assert packet.source is not None
        data = packet.source.ip.packed + packet.message.data
        node = packet.message.receiver
        self._order(NodeOrder.DATAGRAM, node, step, number=receiver.number, port=packet.source.port, data=data)

    def _lose(self, action: Action, step: ActionStep) -> None:
        self._network.datagrams.remove(self._network.packet(action)[0])

    def _duplicate(self, action: Action, step: ActionStep) -> None:
        self._hand_over(self._network.packet(action)[0], step)

    def _timer(self, action: Action, step: ActionStep) -> None:
        timers = self._nodes[action.node].timers
        timer = next(one for one in timers.first() if one.number == action.number)
        for _ in range(timers.stretch):
            self._clocks.move(action.node, timer.due_ns)
            self._order(NodeOrder.FIRE, action.node, step, number=timer.number)
            step.fired += 1
            step.first |= not timers.ticks(timer)
            timers.fired(timer, not step.seen)
            following = next((one for node, one in self._clocks.may_fire() if node == action.node), None)
            if step.seen or following is None:
                break
            timer = following
        if step.seen:
            self._clocks.acted(action.node)

    def _lapse(self, action: Action, step: ActionStep) -> None:
        self._clocks.lapse(action)

    def _crash_process(self, action: Action, step: ActionStep) -> None:
        self._nodes[action.node].crashed = "process"
        self._order(NodeOrder.KILL, action.node, step)

    def _crash_machine(self, action: Action, step: ActionStep) -> None:
        self._nodes[action.node].crashed = "machine"
        self._network.power_lost(action.node)
        self._order(NodeOrder.KILL, action.node, step, other=1)
        disk = self._nodes[action.node].lose_power(self._crash_disk)
        if disk is not None:
            self.untried_disks += not disk.complete
        for what in disk.unaccounted if disk is not None else ():
            self.uncontrolled.setdefault(action.node, []).append(what)

    def _fault(self, action: Action, step: ActionStep) -> None:
        node = self._nodes[action.node]
        node.chosen_faults[action.number] += 1
        fault = next(fault for fault in node.command.faults if fault.number == action.number)
        self._fail_call(action.node, fault, step, skip=0, times=1)

    def _fail_call(self, node: int, fault: CallFault, step: ActionStep, *, skip: int, times: int) -> None:
        name = fault.call.encode() + b"\0"
        error = fault.error | fault.number << _ERROR_BITS
        self._order(NodeOrder.FAULT, node, step, number=skip, other=error, port=times, data=name)

    def _cut(self, action: Action, step: ActionStep) -> None:
        self._cuts.add((action.node, action.peer))

    def _heal(self, action: Action, step: ActionStep) -> None:
        self._cuts.discard((action.node, action.peer))

    def _reset(self, action: Action, step: ActionStep) -> None:
        ends = self._network.ends(action)
        for end in ends:
            self._network.reset(end)
        for end in ends:
            self._order(NodeOrder.RESET, end.node, step, number=end.number)

    # What it leads to

    def _order(
        self,
        tag: NodeOrder,
        node: int,
        step: ActionStep,
        *,
        number: int = 0,
        other: int = 0,
        port: int = 0,
        data: bytes = b"",
    ) -> None:
        if tag != NodeOrder.FIRE:
            self._clocks.acted(node)
        if tag != NodeOrder.KILL and node not in step.ran:
            self._nodes[node].acts()
            step.ran.add(node)
        for each in self._nodes:
            each.threads.clear()
        try:
            self._wire.send(WireFrame(tag, node, port, number, self._nodes[node].timers.now_ns, other, data))
            for frame in self._wire.events():
                self._event(frame, step)
        except (EOFError, OSError) as error:
            raise NodeError(
                "controller-ended", "the controller of the nodes has ended", "Run again; if it recurs, report it."
            ) from error
        step.sent += self._network.resolve()

    def _event(self, frame: WireFrame, step: ActionStep) -> None:
        node = self._nodes[frame.node]
        step.seen |= frame.tag not in _QUIET
        step.changed |= frame.tag in (NodeEvent.OUTPUT, NodeEvent.SUBMITTED)
        if frame.tag == NodeEvent.ARMED:
            node.timers.arm(frame.number, frame.value, frame.port)
            step.read_clock |= bool(frame.other)
        elif frame.tag == NodeEvent.DISARMED:
            node.timers.disarm(frame.number)
        elif frame.tag == NodeEvent.SUBMITTED:
            node.requests.append(frame.number)
        elif frame.tag == NodeEvent.WITHDRAWN:
            node.requests.remove(frame.number)
        elif frame.tag == NodeEvent.CLOCK_READ:
            step.read_clock = True
        elif frame.tag == NodeEvent.COMPARED:
            compared = Compared(zlib.crc32(frame.data), frame.data.decode(errors="replace"))
            step.compared.setdefault((frame.node, compared), []).append(frame.value)
        elif frame.tag == NodeEvent.OUTPUT:
            if frame.number == _STANDARD_OUTPUT:
                step.wrote += frame.data
                node.output += frame.data
            else:
                step.errors += frame.data
                node.errors += frame.data
        elif frame.tag == NodeEvent.ENDED:
            node.alive = False
            if not node.crashed:
                node.status = step.ended = frame.number
        elif frame.tag == NodeEvent.CALLED and self._calls:
            self._calls.called(node.trace, (frame.number, frame.other))
        elif frame.tag == NodeEvent.RUNNABLE:
            call = self._calls.take() if self._calls else 0
            node.threads[frame.number] = ThreadWait(frame.data.decode(errors="replace"), call)
        elif frame.tag == NodeEvent.FAULT_MET:
            self.met_faults.add(frame.number)
        elif frame.tag == NodeEvent.UNCONTROLLED:
            self.uncontrolled.setdefault(frame.node, []).append(frame.data.decode(errors="replace"))
        elif frame.tag in (NodeEvent.FAILED, NodeEvent.UNREST):
            self._failed = True
            raise error_of(frame, self._name_of(frame.node))
        elif frame.tag == NodeEvent.REST:
            self.calls = frame.value
            step.seen |= bool(frame.number)
            step.changed |= bool(frame.number or frame.port)
        else:
            step.sent += self._network.event(frame, self._calls.take() if self._calls else 0)

    def _note_outside(self, step: ActionStep) -> None:
        """Refuse what goes to an address that no node has."""
        while self._network.outside:
            node, target = self._network.outside.pop(0)
            named = self.uncontrolled.setdefault(node, [])
            if f"{target}, which is no node" not in named:
                named.append(f"{target}, which is no node")
            refused: list[Request] = [one for one in self._network.requests if one.peer < 0]
            for request in refused:
                self._network.requests.remove(request)
                self._order(
                    NodeOrder.CONNECTED, request.socket.node, step, number=request.socket.number, other=_REFUSED_ERROR
                )
