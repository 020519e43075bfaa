"""Machines of a cluster that take part in a search: how they come to it, what each has under way, who is refused.

What is executed is known by numbers, the tickets. What this module has to keep is that none of them is lost:

1. A ticket is `held` by one slot, or waits in `_again`, until it is among what was executed.
2. A machine that is lost, does not answer in time or reports trouble gives back all that it held.
3. If no machine is left, all tickets come back as not executed.

A machine takes part once what is executed first ends there as it does here.
"""

from __future__ import annotations

import pickle
import secrets
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NamedTuple, Protocol

from crashcheck.checker.execution.worker_pool import STOPPED_S
from crashcheck.checker.remote import host
from crashcheck.checker.remote.packing import Place
from crashcheck.errors import CrashcheckError

SLOTS = 2  # for each thread of a machine: while one runs, the answer of the other is on its way
_SLACK_S = 60.0  # that a cluster may need for a call, beyond what the call takes
_MESSAGE_BYTES = 16 << 20  # of pieces that are sent at once
_END_S = 5.0  # for machines to end what they do, when the search has ended


class ClusterWorker(NamedTuple):
    """A machine of a cluster. `shown`: for a person; `threads`: how many calls it does at a time."""

    shown: str
    threads: int


class Returned(NamedTuple):
    """The end of a call: its value, or why there is none. `lost`: because the machine is out of reach."""

    call: int
    value: Any
    why: str = ""
    lost: bool = False


class Cluster(Protocol):
    """Machines that call functions of host.py for us."""

    name: str

    def workers(self) -> Mapping[str, ClusterWorker]:
        """Those that are there now, by address."""
        ...

    def call(self, worker: str, function: str, *arguments: object) -> int:
        """Begin a call; its number."""
        ...

    def returned(self) -> Iterable[Returned]:
        """Calls that have ended since this was last asked."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable when some have, or when workers come or go."""
        ...

    def wait(self, seconds: float) -> None:
        """Until it is readable, or so long."""
        ...


@dataclass(eq=False)
class MachineSlot:
    """What one machine does at a time."""

    machine: ClusterMachine
    number: int
    begun: Any  # what the machine answered when it began
    held: list[int] = field(default_factory=list)  # tickets under way


@dataclass(eq=False)
class ClusterMachine:
    """One machine of the cluster."""

    address: str
    worker: ClusterWorker
    ready: bool = False
    refused: bool = False  # or lost; until it is no longer among the workers
    slots: list[MachineSlot] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether a thread of it has nothing to do."""
        return sum(bool(slot.held) for slot in self.slots) < self.worker.threads


class _Call(NamedTuple):
    machine: ClusterMachine
    then: Callable[[Any], None]
    until: float  # by the monotonic clock; what takes longer has no answer


class SessionPlan(NamedTuple):
    """What machines are sent first. `session`: a class of which each makes one (host.py), with `description`.

    `noun`: what is executed, in messages: "crash states"; `run_s`: what one execution may take.
    """

    session: Callable[..., Any]
    description: object
    places: Mapping[bytes, Place]  # where this machine has the pieces that the description names
    noun: str
    run_s: float


class RemoteMachines:
    """The machines of one search. `begin` once, `close` in any case.

    A subclass decides what a machine executes first (`_first`), and what its answers mean.
    """

    def __init__(self, cluster: Cluster, plan: SessionPlan, tell: Callable[[str], None]) -> None:
        """`tell`: prints a line for the user."""
        # constant
        self._cluster = cluster
        self._session = secrets.token_bytes(8)
        self._plan = plan
        self._description = pickle.dumps((plan.session, plan.description), pickle.HIGHEST_PROTOCOL)
        self._tell = tell
        # changing
        self._machines: dict[str, ClusterMachine] = {}
        self._calls: dict[int, _Call] = {}
        self._again: deque[int] = deque()  # tickets that a machine gave back
        self._began = False
        self._gone = False  # whether nobody is left, which was printed
        self._closing = False
        self._reasons: list[str] = []  # why machines are refused

    # -- what a subclass knows

    def _first(self) -> object:
        """What a machine executes first: the argument of a session's `begin`."""
        raise NotImplementedError

    def _differs(self, begun: Any) -> str:
        """How the first execution has ended there, if not as it did here."""
        raise NotImplementedError

    def _executed(self, slot: MachineSlot, tickets: Sequence[int], outcome: Any) -> int:
        """Take what a session's `run` has returned: of how many of the tickets, from the first, it is the result."""
        raise NotImplementedError

    def _not_executed(self, tickets: Sequence[int]) -> None:
        """Take tickets that nobody executes."""
        raise NotImplementedError

    # -- from begin to end

    def begin(self) -> None:
        """Wait for the first machine that can be used. Raises CrashcheckError(executor-unusable) if there is none."""
        self._look()
        while not self.works:
            if all(machine.refused for machine in self._machines.values()):
                reasons = "; ".join(f"{why} ({count} of them)" for why, count in Counter(self._reasons).items())
                raise CrashcheckError(
                    "executor-unusable",
                    f"no worker of {self._cluster.name} can be used: {reasons or 'it has none'}",
                    "Install this crashcheck[dask] for the scheduler and all workers, best in one container image.",
                )
            self._cluster.wait(STOPPED_S)
            self._look()
        self._began = True

    def close(self) -> None:
        """Let the machines remove what they were sent, as far as they do so in a short time."""
        self._closing = True
        until = monotonic() + _END_S
        used = [machine for machine in self._machines.values() if not machine.refused]
        ending = [self._call(machine, lambda value: None, _END_S, "end") for machine in used]
        while any(call in self._calls for call in ending) and monotonic() < until:
            self._cluster.wait(max(0.0, until - monotonic()))
            self._look()

    @property
    def works(self) -> bool:
        return any(machine.ready for machine in self._machines.values())

    @property
    def threads(self) -> int:
        """How many executions the machines do at a time, once all of them take part."""
        return sum(machine.worker.threads for machine in self._machines.values() if not machine.refused)

    def fileno(self) -> int:
        return self._cluster.fileno()

    def _give(self, slot: MachineSlot, tickets: list[int], tasks: Sequence[object], most_s: float) -> None:
        """Let a slot execute the tasks of tickets."""
        slot.held = tickets
        self._call(slot.machine, partial(self._ran, slot), most_s, "run", slot.number, tasks)

    # -- what happens

    def _look(self) -> None:
        """Take note of who is there, of what calls have returned, and of those that are overdue."""
        there = self._cluster.workers()
        for address in self._machines.keys() - there.keys():
            self._lost(self._machines.pop(address))
        for address, worker in there.items():
            if address not in self._machines and not self._closing:
                machine = self._machines[address] = ClusterMachine(address, worker)
                self._greet(machine)
        for number, value, why, lost in self._cluster.returned():
            call = self._calls.pop(number, None)
            if call is None:
                continue
            if lost:
                self._lost(call.machine)
            elif why:
                self._refuse(call.machine, why)
            else:
                call.then(value)
        now = monotonic()
        for machine in {call.machine: None for call in self._calls.values() if call.until < now}:
            self._refuse(machine, "it does not answer")
        if not self.works:
            self._give_up()

    def _call(
        self, machine: ClusterMachine, then: Callable[[Any], None], most_s: float, name: str, *arguments: Any
    ) -> int:
        number = self._cluster.call(machine.address, name, self._session, *arguments)
        self._calls[number] = _Call(machine, then, monotonic() + most_s + _SLACK_S)
        return number

    def _slots(self) -> Iterator[MachineSlot]:
        """Of machines that take part: first one for each thread, then the others."""
        ready = [machine for machine in self._machines.values() if machine.ready]
        for number in range(max((len(machine.slots) for machine in ready), default=0)):
            yield from (machine.slots[number] for machine in ready if number < len(machine.slots))

    # -- a machine's way to taking part

    def _greet(self, machine: ClusterMachine) -> None:
        self._call(machine, partial(self._greeted, machine), 0.0, "hello", host.versions(), self._description)

    def _greeted(self, machine: ClusterMachine, answer: tuple[str, list[bytes]]) -> None:
        why, lacks = answer
        if why:
            self._refuse(machine, why)
            return
        self._send(machine, deque(lacks))

    def _send(self, machine: ClusterMachine, lacks: deque[bytes], answer: None = None) -> None:
        """Send the pieces that it lacks, some at a time, and then let it begin."""
        pieces: list[bytes] = []
        while lacks and sum(map(len, pieces)) < _MESSAGE_BYTES:
            place = self._plan.places[lacks.popleft()]
            try:
                pieces.append(place.read())
            except OSError as error:
                self._refuse(machine, f"{place.path} cannot be read any more: {error.strerror}")
                return
        if pieces:
            self._call(machine, partial(self._send, machine, lacks), 0.0, "put", pieces)
            return
        slots = SLOTS * machine.worker.threads
        self._call(machine, partial(self._begun, machine, slots), self._plan.run_s, "begin", self._first(), slots)

    def _begun(self, machine: ClusterMachine, slots: int, begun: Any) -> None:
        if begun is None:
            self._greet(machine)
            return
        why = begun.why or self._differs(begun)
        if why:
            self._refuse(machine, why)
            return
        machine.slots = [MachineSlot(machine, number, begun) for number in range(slots)]
        machine.ready = True
        self._gone = False

    def _ran(self, slot: MachineSlot, outcome: Any) -> None:
        held, slot.held = slot.held, []
        executed = 0 if outcome is None else self._executed(slot, held, outcome)
        self._again.extend(held[executed:])
        if outcome is None:
            self._restart(slot.machine)
        elif outcome.why:
            self._refuse(slot.machine, outcome.why)

    def _restart(self, machine: ClusterMachine) -> None:
        """It has no session any more."""
        if machine.ready:
            self._take_back(machine)
            self._greet(machine)

    def _take_back(self, machine: ClusterMachine) -> None:
        """What it holds is executed by others. Calls that are under way there do not matter any more."""
        machine.ready = False
        self._calls = {number: call for number, call in self._calls.items() if call.machine is not machine}
        for slot in machine.slots:
            self._again.extend(slot.held)
        machine.slots = []

    def _lost(self, machine: ClusterMachine) -> None:
        self._take_back(machine)
        if not machine.refused and not self._closing:
            machine.refused = True
            self._tell(f"{machine.worker.shown} was lost: its {self._plan.noun} are executed elsewhere")

    def _refuse(self, machine: ClusterMachine, why: str) -> None:
        self._take_back(machine)
        machine.refused = True
        self._reasons.append(why)
        self._cluster.call(machine.address, "end", self._session)
        self._tell(f"{machine.worker.shown} is not used: {why}")

    def _give_up(self) -> None:
        """Nobody takes part: what was handed over is executed where it came from."""
        coming = any(not machine.refused for machine in self._machines.values())
        if self._began and not (self._gone or coming or self._closing):
            self._gone = True
            self._tell(f"NO WORKER IS LEFT: {self._plan.noun} are executed on this machine alone")
        self._not_executed(list(self._again))
        self._again.clear()
