"""Which machine of a cluster executes which crash states, what happens to those of a lost machine, and who is refused.

A search hands over its states in its order, and takes how they ended in that order: which machine executed what, and
when, does not matter to it (worker_pool.py). What this module has to keep is that no state is lost:

1. A ticket is `held` by one slot, or waits in `_again`, until it is among the arrivals.
2. A machine that is lost, does not answer in time or reports trouble gives back all that it held.
3. If no machine is left, all tickets arrive as not executed.

A machine takes part once its check of the uncrashed image has ended as the one here.
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

from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.tasks import FINAL, Run
from crashcheck.checker.execution.worker import Task
from crashcheck.checker.execution.worker_pool import STOPPED_S, Arrival, WorkerPool
from crashcheck.checker.execution.worker_process import UNKNOWN, Bases
from crashcheck.checker.oracles.references import Printed, masked
from crashcheck.checker.remote import host
from crashcheck.checker.remote.shipment import Shipment
from crashcheck.errors import CrashcheckError

_BATCH_S = host.BATCH_S / 2  # what a batch should take
_MOST = 64  # states of a batch
_MOST_AHEAD = 2_000  # states that are handed over before the first of them has ended: a search chooses about a thousand
# of them in a second
_SLOTS = 2  # for each thread of a machine: while one runs, the answer of the other is on its way
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
class _Slot:
    """One worker process of a machine."""

    machine: _Machine
    number: int
    names: Mapping[str, str] = field(default_factory=dict)
    bases: Bases = field(default_factory=lambda: [None, None])
    held: list[int] = field(default_factory=list)  # tickets under way


@dataclass(eq=False)
class _Machine:
    address: str
    worker: ClusterWorker
    ready: bool = False
    refused: bool = False  # or lost; until it is no longer among the workers
    slots: list[_Slot] = field(default_factory=list)

    @property
    def idle(self) -> bool:
        """Whether a thread of it has nothing to do."""
        return sum(bool(slot.held) for slot in self.slots) < self.worker.threads


class _Call(NamedTuple):
    machine: _Machine
    then: Callable[[Any], None]
    until: float  # by the monotonic clock; what takes longer has no answer


class RemoteRuns:
    """The crash states of one search on a cluster (worker_pool.Elsewhere). `begin` once, `close` in any case."""

    def __init__(
        self,
        cluster: Cluster,
        pool: WorkerPool,
        shipment: Shipment,
        stages: tuple[bytes, ...],
        tell: Callable[[str], None],
    ) -> None:
        """`stages`: of the uncrashed image after the workload; `tell`: prints a line for the user."""
        # constant
        self._cluster = cluster
        self._session = secrets.token_bytes(8)
        self._shipment = shipment
        self._description = pickle.dumps(shipment.description, pickle.HIGHEST_PROTOCOL)
        self._tell = tell
        self._final = pool.tasks.final(stages)
        # what a machine must show before it takes part; two, to see what differs from run to run here
        self._uncrashed = [pool.ended(pool.submit_uncrashed(FINAL, stages)) for _ in range(2)]
        # whether what it prints is the same in each run
        self._repeats = not pool.setup.command.command.holds("port") and len({*map(_printed, self._uncrashed)}) == 1
        for _ in pool.arrivals():
            pass  # no verdict will be asked for
        seconds = max(run.ended.seconds for run in self._uncrashed)
        self._batch = max(1, min(_MOST, round(_BATCH_S / max(seconds, 1e-4))))
        self._run_s = _most_seconds(pool.limits, stages)
        # changing
        self._machines: dict[str, _Machine] = {}
        self._calls: dict[int, _Call] = {}
        self._again: deque[int] = deque()  # tickets that a machine gave back
        self._arrived: list[Arrival] = []
        self._began = False
        self._gone = False  # whether nobody is left, which was printed
        self._closing = False
        self._reasons: list[str] = []  # why machines are refused

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

    # -- worker_pool.Elsewhere

    @property
    def works(self) -> bool:
        return any(machine.ready for machine in self._machines.values())

    @property
    def ahead(self) -> int:
        threads = sum(machine.worker.threads for machine in self._machines.values() if not machine.refused)
        slots = _SLOTS * threads + 1
        return min(slots * self._batch, max(_MOST_AHEAD, slots))

    def take(self, waiting: deque[int], task_of: Callable[[Bases, int], Task], wanted: int | None) -> None:
        few = wanted in self._again or wanted in waiting
        if len(self._again) + len(waiting) < self._batch and not few:
            return
        free = [slot for slot in self._slots() if not slot.held]
        for left, slot in zip(range(len(free), 0, -1), free, strict=True):
            there = len(self._again) + len(waiting)
            if not there or (there < self._batch and not (few and slot.machine.idle)):
                continue
            share = min(self._batch, -(-there // left)) if few else self._batch
            tickets = [(self._again or waiting).popleft() for _ in range(share)]
            tasks = [task_of(slot.bases, ticket) for ticket in tickets]
            slot.held = tickets
            then = partial(self._ran, slot)
            self._call(slot.machine, then, _SLOTS * (host.BATCH_S + self._run_s), "run", slot.number, tasks)

    def arrivals(self) -> list[Arrival]:
        self._look()
        arrived, self._arrived = self._arrived, []
        return arrived

    def fileno(self) -> int:
        return self._cluster.fileno()

    # -- what happens

    def _look(self) -> None:
        """Take note of who is there, of what calls have returned, and of those that are overdue."""
        there = self._cluster.workers()
        for address in self._machines.keys() - there.keys():
            self._lost(self._machines.pop(address))
        for address, worker in there.items():
            if address not in self._machines and not self._closing:
                machine = self._machines[address] = _Machine(address, worker)
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

    def _call(self, machine: _Machine, then: Callable[[Any], None], most_s: float, name: str, *arguments: Any) -> int:
        number = self._cluster.call(machine.address, name, self._session, *arguments)
        self._calls[number] = _Call(machine, then, monotonic() + most_s + _SLACK_S)
        return number

    def _slots(self) -> Iterator[_Slot]:
        """Of machines that take part: first one for each thread, then the others."""
        ready = [machine for machine in self._machines.values() if machine.ready]
        for number in range(max((len(machine.slots) for machine in ready), default=0)):
            yield from (machine.slots[number] for machine in ready if number < len(machine.slots))

    # -- a machine's way to taking part

    def _greet(self, machine: _Machine) -> None:
        self._call(machine, partial(self._greeted, machine), 0.0, "hello", host.versions(), self._description)

    def _greeted(self, machine: _Machine, answer: tuple[str, list[bytes]]) -> None:
        why, lacks = answer
        if why:
            self._refuse(machine, why)
            return
        self._send(machine, deque(lacks))

    def _send(self, machine: _Machine, lacks: deque[bytes], answer: None = None) -> None:
        """Send the pieces that it lacks, some at a time, and then let it begin."""
        pieces: list[bytes] = []
        while lacks and sum(map(len, pieces)) < _MESSAGE_BYTES:
            place = self._shipment.places[lacks.popleft()]
            try:
                pieces.append(place.read())
            except OSError as error:
                self._refuse(machine, f"{place.path} cannot be read any more: {error.strerror}")
                return
        if pieces:
            self._call(machine, partial(self._send, machine, lacks), 0.0, "put", pieces)
            return
        slots = _SLOTS * machine.worker.threads
        self._call(machine, partial(self._begun, machine, slots), self._run_s, "begin", self._final, slots)

    def _begun(self, machine: _Machine, slots: int, begun: host.Begun | None) -> None:
        if begun is None:
            self._greet(machine)
            return
        why = begun.why or self._differs(begun)
        if why:
            self._refuse(machine, why)
            return
        machine.slots = [_Slot(machine, number, begun.names[number]) for number in range(slots)]
        machine.ready = True
        self._gone = False

    def _differs(self, begun: host.Begun) -> str:
        """How the check of the uncrashed image has ended, if not as it did here."""
        if begun.ended is None:
            return "it did not run the check"
        there = Run(FINAL, begun.ended, begun.names[0])
        here = self._uncrashed
        if _ending(there) != _ending(here[0]):
            last = masked(begun.ended.output, there.names).decode("utf-8", "replace").strip().splitlines()[-1:]
            shown = f": {last[0][:200]}" if last else ""
            return f"the check of the uncrashed image does not end as it does here{shown}"
        if self._repeats and _printed(here[0]) != _printed(there):
            return "the check of the uncrashed image prints something else than here"
        return ""

    # -- states

    def _ran(self, slot: _Slot, batch: host.BatchOutcome | None) -> None:
        held, slot.held = slot.held, []
        ended = () if batch is None else batch.ended
        for ticket, one in zip(held, ended, strict=False):
            self._arrived.append(Arrival(ticket, one, slot.names, slot.machine.worker.shown))
        if len(ended) < len(held):
            self._again.extend(held[len(ended) :])
            slot.bases = [UNKNOWN, UNKNOWN]
        if batch is None:
            self._restart(slot.machine)
        elif batch.why:
            self._refuse(slot.machine, batch.why)

    def _restart(self, machine: _Machine) -> None:
        """It has no session any more."""
        if machine.ready:
            self._take_back(machine)
            self._greet(machine)

    def _take_back(self, machine: _Machine) -> None:
        """What it holds is executed by others. Calls that are under way there do not matter any more."""
        machine.ready = False
        self._calls = {number: call for number, call in self._calls.items() if call.machine is not machine}
        for slot in machine.slots:
            self._again.extend(slot.held)
        machine.slots = []

    def _lost(self, machine: _Machine) -> None:
        self._take_back(machine)
        if not machine.refused and not self._closing:
            machine.refused = True
            self._tell(f"{machine.worker.shown} was lost: its crash states are executed elsewhere")

    def _refuse(self, machine: _Machine, why: str) -> None:
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
            self._tell("NO WORKER IS LEFT: crash states are executed on this machine alone")
        self._arrived += [Arrival(ticket, None, {}, "") for ticket in self._again]
        self._again.clear()


def _most_seconds(limits: Limits, stages: Sequence[bytes]) -> float:
    """What the check of one image may take."""
    return limits.timeout_s * max(1, len(stages))


def _ending(run: Run) -> tuple[int, bool, str]:
    return run.ended.status, run.ended.timed_out, run.ended.limit


def _printed(run: Run) -> tuple[bytes, bytes]:
    return Printed.of(run.ended, run.names).key, masked(run.ended.errors, run.names)
