"""What may happen next in a run of several nodes, and the interface of one such run: the joint to whoever chooses.

A node is a process under control; nodes are numbered from 0. A run begins with no node started. Between two actions all
threads of all nodes wait. A link is one direction of one connection, or of one flow of datagrams, from a node to
another; messages of a link are numbered from 0 in the order in which the sender wrote them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

from crashcheck.errors import CrashcheckError
from crashcheck.runtime.sparse import copy_tree


class NodeError(CrashcheckError):
    """Why a run of nodes cannot continue, for the user.

    `action`: the one that was under way, if that is known, since `seconds`.
    """

    action: Action | None = None
    seconds = 0.0


class ActionKind(StrEnum):
    START = "start"  # a node's process begins; `number` counts its starts
    CONNECT = "connect"  # a connection request reaches `node`, from `peer`
    DELIVER = "deliver"
    LOSE = "lose"  # a datagram is never delivered; `node` is the receiver, which does not run
    DUPLICATE = "duplicate"  # a datagram is delivered, and stays to be delivered once more
    TIMER = "timer"  # a timer of the node fires
    CRASH_PROCESS = "crash-process"  # as by kill -9: what it wrote to files stays
    CRASH_MACHINE = "crash-machine"  # its folder becomes what a power failure may leave
    RESTART = "restart"
    CUT = "cut"  # nothing passes between `node` and `peer`, `node` being the smaller number, until
    HEAL = "heal"
    RESET = "reset"  # the connection `channel` between both ends with RST
    FAULT = "fault"  # the call that the node waits in fails, or the next one that it makes
    # One of several threads of the node that may continue, after calls that waited; `number` is in order of birth, and
    # `channel` counts how often this one was chosen.
    THREAD = "thread"
    COMPLETE = "complete"  # the node hears that a request to a file has ended (io_submit)
    # The node's clock moves to `due_ns`, and then a comparison that the node's next step makes has another outcome;
    # `number` is that of the step, `channel` names the comparison (Compared).
    LAPSE = "lapse"


class Action(NamedTuple):
    """The name of something that may happen.

    The same action of another run has an equal name as long as what happened before it on its node and on its link is
    the same: so names carry no count of a whole run.
    """

    kind: ActionKind
    node: int  # on which it acts; of a delivery the receiver
    peer: int = -1  # the other node of a message or link
    # Which message of its link, timer, thread, request to a file or start of its node, fault of the configuration
    number: int = 0
    # Which connection or flow between the two, in the order in which these began; of a restart after a machine's crash
    # the name of what its disk kept (DiskState).
    channel: int = 0
    due_ns: int = 0  # of a timer: when it is due, by its node's clock


ACCEPTED, REFUSED, END, RESET = "accepted", "refused", "end", "reset"


class Message(NamedTuple):
    """What a node sent: one write to a connection, one datagram, or what ends or begins a connection: `what`."""

    sender: int
    receiver: int
    channel: int
    number: int  # of its link
    data: bytes
    protocol: str  # "tcp" or "udp"
    stack: tuple[str, ...] = ()  # the calls that sent it, the innermost first, as "function (file:line)"
    call: int = 0  # which call of this execution sent it, for World.stacks; 0: that is not known
    what: str = ""  # it is no data, but one of these


class DiskState(NamedTuple):
    """What the disk of a machine that lost the power kept of what had been written to the node's folder."""

    name: int  # ALL_WRITTEN, LEAST_WRITTEN, or a number of what the folder holds
    pending: int = 0  # how many updates could have been lost
    losses: int = 0  # of these, how many were
    lost: tuple[str, ...] = ()  # the first of them in program order: what was written, and by which call
    place: str = ""  # of the first that was lost, as "function (file:line)"; empty if no source is known


ALL_WRITTEN, LEAST_WRITTEN = 0, 1


class Compared(NamedTuple):
    """A comparison of a time that a node made. `name`: a number for its place, "function (file:line)"."""

    name: int
    place: str


class ThreadWait(NamedTuple):
    """The thread that an action lets continue, where that is asked for: its name, and the call stack in which it waited
    (as Message.stack)."""

    name: str
    call: int = 0  # as Message.call
    stack: tuple[str, ...] = ()


class ActionResult(NamedTuple):
    """What an action led to, until all threads of its node waited again."""

    action: Action
    sent: tuple[Message, ...] = ()
    read_clock: bool = False  # whether the node read a clock, or armed a timer that is due so long after now
    wrote: bytes = b""  # to its standard output
    ended: int | None = None  # the wait status, if the node's process ended
    disk: DiskState | None = None  # of a restart, what the machine's crash left
    compared: tuple[Compared, ...] = ()  # the comparisons of times that it made
    # What could have happened just before: time passes, and one of these comparisons has another outcome.
    lapses: tuple[Action, ...] = ()
    errors: bytes = b""  # what it wrote to its standard error
    thread: ThreadWait | None = None
    fired: int = 0  # timers: one, or a stretch of those that only tick, with what follows them
    quiet: bool = False  # timers fired, and nobody else may see anything of it
    ticks: bool = False  # the same, and so it was when each of them fired last
    kept: bool = False  # the files and the output of all nodes are certainly as before


class NodeContent(NamedTuple):
    """What a check sees of a node: its folder as it is, which nobody may change, and what it has printed."""

    folder: Path
    output: bytes
    errors: bytes

    def write(self, to: Path) -> None:
        """Copy it to the folder of a state."""
        name = self.folder.name
        copy_tree(self.folder, to / name)
        (to / f"{name}.output").write_bytes(self.output)
        (to / f"{name}.errors").write_bytes(self.errors)


class World(Protocol):
    """One execution of all nodes, from the start."""

    uncontrolled: Mapping[int, Sequence[str]]  # by node, what it did that may differ when the run is repeated
    untried_disks: int = 0  # crashes of machines that may leave more than `enabled` offers
    met_faults: Set[int] = frozenset()  # the numbers of those with which a call has failed
    stopped: bool = False  # `stop` was called: nobody needs to know more of it

    def enabled(self) -> Sequence[Action]:
        """What may happen now; empty if nothing is left. The order is the same in each run.

        The first is what happens by default: threads in the order of their births, starts in the order of nodes,
        connection requests, then requests to files in the order in which they were made, deliveries in that in which
        the messages were sent, then timers by the time at which they are due; failures are last. Of timers only those
        that the clock permits. Of failures all that are possible, however many there were before: whoever chooses
        counts them, because an order that one failure prevented is an order to be searched.
        """
        ...

    @property
    def idle(self) -> bool:
        """Whether there are timers that are not offered, because they have ticked for long without effect."""
        return False

    @property
    def early(self) -> Sequence[Action]:
        """The first timers of nodes that may not fire yet, because those of other nodes are due so much earlier."""
        return ()

    def permits(self, action: Action) -> bool:
        """Whether a LAPSE, which is never among what is enabled, may happen now: only an action that was taken here in
        this run or another one shows it (ActionResult.lapses)."""
        return False

    def take(self, action: Action) -> ActionResult:
        """Let an action happen, which must be enabled or permitted.

        Raises NodeError: node-unrest if the node computes for ever.
        """
        ...

    def state(self, folder: Path) -> None:
        """Write to a folder, for a check: for each node its folder, and the log of actions so far."""
        ...

    def stacks(self) -> Mapping[int, tuple[str, ...]]:
        """The call stacks of calls by number (Message.call, ThreadWait.call), where they were asked for; this ends the
        execution."""
        return {}

    def log(self) -> Sequence[str]:
        """The actions so far, a line of JSON each."""
        ...

    def content(self, node: int) -> NodeContent:
        """What `state` would write of a node, until the next action."""
        ...

    def stop(self) -> None:
        """End all nodes at once, whatever they do: `take`, also one that is under way, raises NodeError from then on.

        May be called by another thread.
        """

    def close(self) -> None:
        """End all processes of the execution, and remove what it wrote outside of the folder of a state."""
        ...
