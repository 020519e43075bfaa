"""Crash states that machines of a cluster execute.

A search hands over its states in its order, and takes how they ended in that order: which machine executed what, and
when, does not matter to it (worker_pool.py). remote_machines.py keeps that no state is lost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from crashcheck.checker.execution.process import Limits
from crashcheck.checker.execution.tasks import FINAL, Run
from crashcheck.checker.execution.worker import Task
from crashcheck.checker.execution.worker_pool import Arrival, WorkerPool
from crashcheck.checker.execution.worker_process import UNKNOWN, Bases
from crashcheck.checker.oracles.references import Printed, masked
from crashcheck.checker.remote import host
from crashcheck.checker.remote.remote_machines import SLOTS, Cluster, MachineSlot, RemoteMachines, SessionPlan
from crashcheck.checker.remote.shipment import Shipment

_BATCH_S = host.BATCH_S / 2  # what a batch should take
_MOST = 64  # states of a batch
_MOST_AHEAD = 2_000  # states that are handed over before the first of them has ended: a search chooses about a thousand
# of them in a second


class RemoteRuns(RemoteMachines):
    """The crash states of one search on a cluster (worker_pool.Elsewhere)."""

    def __init__(
        self,
        cluster: Cluster,
        pool: WorkerPool,
        shipment: Shipment,
        stages: tuple[bytes, ...],
        tell: Callable[[str], None],
    ) -> None:
        """`stages`: of the uncrashed image after the workload; `tell`: prints a line for the user."""
        run_s = _most_seconds(pool.limits, stages)
        super().__init__(
            cluster, SessionPlan(host.StateSession, shipment.description, shipment.places, "crash states", run_s), tell
        )
        # constant
        self._final = pool.tasks.final(stages)
        # what a machine must show before it takes part; two, to see what differs from run to run here
        self._uncrashed = [pool.ended(pool.submit_uncrashed(FINAL, stages)) for _ in range(2)]
        # whether what it prints is the same in each run
        self._repeats = not pool.setup.command.command.holds("port") and len({*map(_printed, self._uncrashed)}) == 1
        for _ in pool.arrivals():
            pass  # no verdict will be asked for
        seconds = max(run.ended.seconds for run in self._uncrashed)
        self._batch = max(1, min(_MOST, round(_BATCH_S / max(seconds, 1e-4))))
        # changing
        self._bases: dict[MachineSlot, Bases] = {}  # where the last task of a worker process left them
        self._arrived: list[Arrival] = []

    # -- worker_pool.Elsewhere

    @property
    def ahead(self) -> int:
        slots = SLOTS * self.threads + 1
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
            bases = self._bases.setdefault(slot, [None, None])
            tasks = [task_of(bases, ticket) for ticket in tickets]
            self._give(slot, tickets, tasks, SLOTS * (host.BATCH_S + self._plan.run_s))

    def arrivals(self) -> list[Arrival]:
        self._look()
        arrived, self._arrived = self._arrived, []
        return arrived

    # -- remote_machines.RemoteMachines

    def _first(self) -> object:
        return self._final

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

    def _executed(self, slot: MachineSlot, tickets: Sequence[int], outcome: host.BatchOutcome) -> int:
        names, place = slot.begun.names[slot.number], slot.machine.worker.shown
        for ticket, one in zip(tickets, outcome.ended, strict=False):
            self._arrived.append(Arrival(ticket, one, names, place))
        if len(outcome.ended) < len(tickets):
            self._bases[slot] = [UNKNOWN, UNKNOWN]
        return len(outcome.ended)

    def _not_executed(self, tickets: Sequence[int]) -> None:
        self._arrived += [Arrival(ticket, None, {}, "") for ticket in tickets]


def _most_seconds(limits: Limits, stages: Sequence[bytes]) -> float:
    """What the check of one image may take."""
    return limits.timeout_s * max(1, len(stages))


def _ending(run: Run) -> tuple[int, bool, str]:
    return run.ended.status, run.ended.timed_out, run.ended.limit


def _printed(run: Run) -> tuple[bytes, bytes]:
    return Printed.of(run.ended, run.names).key, masked(run.ended.errors, run.names)
