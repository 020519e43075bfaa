"""Worker processes that run the check on crash images, and give back how each run ended, by ticket.

Each worker's images follow the crash points that it is asked for (worker.py, tasks.py). What a run means for its
state is for an oracle to judge (oracles).
"""

from __future__ import annotations

import contextlib
import select
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from crashcheck.checker.budget import BrokenOff
from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.process import Ended, Limits
from crashcheck.checker.execution.tasks import FIRST, Run, Tasks, Ticket
from crashcheck.checker.execution.time_limit import TimeLimit
from crashcheck.checker.execution.worker import Task, Trouble
from crashcheck.checker.execution.worker_process import Bases, WorkerDied, WorkerProcess
from crashcheck.checker.execution.worker_start import Start, start_worker
from crashcheck.checker.images import image_folder
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import sparse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crashcheck.checker.images.transition import Content
    from crashcheck.checker.states.points import CrashPoint
    from crashcheck.checker.states.space import CrashState

STOPPED_S = 1.0  # how long a worker that was stopped may stay so
AHEAD = 2  # tasks a worker holds at once, so that it need not wait for us; bounds what its socket must hold


class Arrival(NamedTuple):
    """How a state ended that was given to others. `ended`: None if they did not execute it."""

    ticket: int
    ended: Ended | None
    names: Mapping[str, str]
    place: str


class Elsewhere(Protocol):
    """Other machines that execute crash states. What they take comes back as arrivals, whatever happens to them."""

    @property
    def works(self) -> bool:
        """Whether they take states now."""
        ...

    @property
    def ahead(self) -> int:
        """How many states they can be busy with at once."""
        ...

    def take(self, waiting: deque[int], task_of: Callable[[Bases, int], Task], wanted: int | None) -> None:
        """Take tickets from the left of `waiting`, as many as are worth a message; fewer if `wanted` is one of them.

        `task_of`: the task of a ticket for a worker with such bases, which then are where that leaves them.
        """
        ...

    def arrivals(self) -> Iterable[Arrival]:
        """What has come back since this was last asked. To be asked once in a second, too."""
        ...

    def fileno(self) -> int:
        """A descriptor that is readable when something has."""
        ...


class WorkerPool:
    """Submit runs, ask how they ended. A context manager: leaving it ends every worker and check, and removes images.

    How a run ends is a function of the state (as far as the check is), not of the worker: every pool path has the same
    length, and `Run.names` has its name in outputs.
    """

    def __init__(
        self,
        content: Content,
        points: Sequence[CrashPoint],
        setup: CheckSetup,
        *,
        limits: Limits | None = None,
        jobs: int = 1,
        stdout_bytes: int = 0,
        operations: int = 0,
        acknowledged: tuple[int, int] | None = None,
        start: Start = start_worker,
    ) -> None:
        """`stdout_bytes`, `operations`: all that the workload printed and ended, for the final image.

        `acknowledged`: (operations, bytes) that were acknowledged at every point, instead of those of the points.
        """
        # what is run; never changes
        self.content = content
        self._points = points
        self.setup = setup
        self.limits = limits or Limits()
        self.jobs = max(1, jobs)
        whole = acknowledged or (operations, stdout_bytes)
        self.acknowledged = acknowledged
        self._start_worker = start
        self.tasks = Tasks(content, points, setup.first, self.limits.timeout_s, acknowledged, whole)
        # the workers, while the pool is open
        self._home: Path | None = None  # the folder of all images
        self._ending = contextlib.ExitStack()  # removes it
        self._workers: list[WorkerProcess] = []
        self._elsewhere: Elsewhere | None = None
        # the runs under way
        self._tickets: dict[int, Ticket] = {}  # submitted, and not yet asked for
        self._queue: deque[int] = deque()  # tickets that wait for a free worker
        self._urgent: deque[int] = deque()  # those that go first
        self._likely: deque[int] = deque()  # those that go next, where a worker has room
        self._dropped: set[int] = set()  # under way, and nobody will ask for them
        self._returned: deque[int] = deque()  # those that went elsewhere, and must be executed here after all
        self._arrived: deque[Run] = deque()  # on crash states, ended since `arrivals` was last asked
        self._next = 0  # the next ticket
        self.is_aside = False  # whether a failing state is diagnosed

    # -- life

    def __enter__(self) -> WorkerPool:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        bytes_held = sparse.data_bytes(self.setup.first)
        held = image_folder.held_home(self.setup.work, bytes_held, self.jobs, self.setup.source)
        self._home = self._ending.enter_context(held)
        for index in range(self.jobs):
            self._workers.append(WorkerProcess(index, self._home, self.setup, self.limits, self._start_worker))
        for worker in self._workers:
            answer = self._receive(worker)
            if isinstance(answer, Trouble):
                raise self._error(worker, answer)

    def close(self) -> None:
        """End the workers, their checks included, and remove the images. May be called twice."""
        for worker in self._workers:
            worker.close()
        for worker in self._workers:
            worker.end()
        self._workers.clear()
        self._ending.close()

    @property
    def home(self) -> Path:
        """Where the images are."""
        assert self._home is not None
        return self._home

    def send_elsewhere(self, elsewhere: Elsewhere | None) -> None:
        """From now on, let others execute crash states that are not urgent; None: execute all here again.

        Only what ends there with status 0 counts. Everything else is executed here as well, and then that counts.
        """
        self._elsewhere = elsewhere

    @property
    def ahead(self) -> int:
        """How many states others can be busy with at once."""
        return 0 if self._elsewhere is None else self._elsewhere.ahead

    def beside(self, setup: CheckSetup, limits: Limits, acknowledged: tuple[int, int]) -> WorkerPool:
        """One more worker, for other files or limits; `acknowledged`: at every point, unless that is fixed already."""
        always = self.acknowledged or acknowledged
        start = self._start_worker
        return WorkerPool(self.content, self._points, setup, limits=limits, acknowledged=always, start=start)

    # -- runs

    def submit(
        self,
        state: CrashState,
        stages: tuple[bytes, ...] = (),
        *,
        urgent: bool = False,
        likely: bool = False,
        limit: TimeLimit | None = None,
        doubted: str = "",
        forks: bool = False,
    ) -> int:
        """Queue the check of a crash state; `urgent`: before anything that waits, and here. How it ended: `ended`.

        `likely`: after these, and it may be dropped; `stages`: the files of operations for {ops}; `limit`: of its time,
        instead of the limits' value; `doubted`: as Run has it; `forks`: from a process that waits in
        crashcheck_ready(), if there is one.
        """
        return self._submit(
            state.point,
            state,
            stages,
            urgent=urgent,
            likely=likely,
            limit=limit,
            doubted=doubted,
            forks=forks,
        )

    def submit_uncrashed(
        self, point: int, stages: tuple[bytes, ...] = (), *, forks: bool = False, limit: TimeLimit | None = None
    ) -> int:
        """Queue the check of an image that no crash left (FIRST, FINAL, DAMAGED), before anything that waits."""
        return self._submit(point, None, stages, urgent=True, forks=forks, limit=limit)

    def submit_bare(self, stages: tuple[bytes, ...], kept_bytes: int | None = None) -> int:
        """Queue runs of the check on the first image, one after another.

        They have an image of their own: no base moves for them. `kept_bytes` of their output, instead of the limits'
        value; then nothing else may be under way.
        """
        return self._submit(FIRST, None, stages, bare=True, kept_bytes=kept_bytes)

    def submit_ended(self, run: Run) -> int:
        """A ticket for a run on a crash state that has ended elsewhere."""
        number = self._next
        self._next += 1
        self._tickets[number] = Ticket(number, run.point, None, (), False, None, None, run=run)
        self._arrived.append(run)
        return number

    def submit_exploration(
        self, point: int, argv: Sequence[str], env: Mapping[str, str], timeout_s: float, until_s: float | None
    ) -> int:
        """Queue a run of the check on images of a crash point that is explored, before anything that waits."""
        number = self._next
        self._next += 1
        explored = tuple(argv), dict(env), until_s
        self._tickets[number] = Ticket(number, point, None, (), False, None, TimeLimit(timeout_s), explored)
        self._urgent.append(number)
        self._dispatch()
        return number

    def ended(self, ticket: int) -> Run:
        """Wait for the end of a run, which does not wait for others any more; each ticket once.

        CrashcheckError if a worker dies or an image cannot be written.
        """
        self._hurry(ticket, self._queue, self._returned)
        while (run := self.poll(ticket)) is None:
            pass
        return run

    def poll(self, ticket: int, timeout_s: float | None = None) -> Run | None:
        """How a run ended, once; None if it has not after the next end of any run, or after the time.

        CrashcheckError as `ended`.
        """
        self._hurry(ticket, self._likely)
        self._dispatch(None if self._tickets[ticket].run is not None else ticket)
        if self._tickets[ticket].run is None:
            self._collect(timeout_s)
            self._dispatch()
        if self._tickets[ticket].run is None:
            return None
        return self._tickets.pop(ticket).run

    def drop(self, ticket: int) -> None:
        """Nobody will ask for a likely run; it is not begun if it was not."""
        waits = ticket in self._likely
        if waits:
            self._likely.remove(ticket)
        if waits or self._tickets[ticket].run is not None:
            del self._tickets[ticket]
        else:
            self._dropped.add(ticket)

    def arrivals(self) -> Iterator[Run]:
        """The runs on crash states and uncrashed images that have ended since this was last asked, each once."""
        while self._arrived:
            yield self._arrived.popleft()

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """While a failing state is diagnosed, give its worker nothing else: its base would move back and forth."""
        self.is_aside = True
        try:
            yield
        finally:
            self.is_aside = False

    @property
    def _is_kept_free(self) -> bool:
        """Whether the first worker takes urgent tickets alone. A single worker takes them in turn with the others."""
        return self.is_aside and self.jobs > 1

    # -- between us and the workers

    def _hurry(self, ticket: int, *waiting: deque[int]) -> None:
        """Let a run go first if it waits in one of the queues."""
        for queue in waiting:
            if ticket in queue:
                queue.remove(ticket)
                self._urgent.append(ticket)

    def _submit(
        self,
        point: int,
        state: CrashState | None,
        stages: tuple[bytes, ...],
        *,
        urgent: bool = False,
        likely: bool = False,
        bare: bool = False,
        kept_bytes: int | None = None,
        limit: TimeLimit | None = None,
        doubted: str = "",
        forks: bool = False,
    ) -> int:
        number = self._next
        self._next += 1
        self._tickets[number] = Ticket(
            *(number, point, state, stages, bare, kept_bytes, limit),
            doubted=doubted,
            forks=forks,
        )
        (self._urgent if urgent else self._likely if likely else self._queue).append(number)
        self._dispatch()
        return number

    def _dispatch(self, wanted: int | None = None) -> None:
        """Give what waits to workers. `wanted`: nothing else will be submitted before this one has ended."""
        while self._urgent:
            number = self._urgent.popleft()
            ticket = self._tickets[number]
            first, *others = self._workers
            if ticket.bare or ticket.explored is not None:  # not behind a failing state's run: that may hang
                anywhere = others if self._is_kept_free and first.busy else self._workers
                self._send(min(anywhere, key=lambda worker: len(worker.busy)), number)
            else:
                self._send(first, number)
        while self._likely and (free := [worker for worker in self._workers if len(worker.busy) < AHEAD]):
            self._send(min(free, key=lambda worker: len(worker.busy)), self._likely.popleft())
        if self._elsewhere is not None and self._elsewhere.works:
            self._elsewhere.take(self._queue, self._task_elsewhere, wanted)
            here = self._returned
        else:
            self._queue.extendleft(reversed(self._returned))
            self._returned.clear()
            here = self._queue
        while here:
            free = [w for w in self._workers if len(w.busy) < AHEAD and not (self._is_kept_free and w.index == 0)]
            if not free:
                return
            self._send(min(free, key=lambda worker: len(worker.busy)), here.popleft())

    def _send(self, worker: WorkerProcess, number: int) -> None:
        while len(worker.busy) >= AHEAD:
            self._collect()
        ticket = self._tickets[number]
        task = self.tasks.of(worker.bases, ticket)
        worker.busy.append(number)
        try:
            worker.send(task)
        except OSError:
            # The worker is gone. What it sent before gives the reason, or `_receive` raises at the end of that.
            while not isinstance(answer := self._receive(worker), Trouble):
                pass
            raise self._error(worker, answer) from None

    def _task_elsewhere(self, bases: Bases, number: int) -> Task:
        task = self.tasks.of(bases, self._tickets[number])
        assert isinstance(task, Task)  # explorations are urgent
        return task

    def _collect(self, timeout_s: float | None = None) -> None:
        """Wait for at least one answer, or the time, and file what came."""
        by_connection = {worker.connection: worker for worker in self._workers if worker.busy}
        for connection in self._answering(list(by_connection), timeout_s):
            worker = by_connection[connection]
            answer = self._receive(worker)
            if isinstance(answer, Trouble):
                raise self._error(worker, answer)
            assert answer is not None
            number, ended = answer
            assert isinstance(ended, Ended)
            worker.busy.remove(number)
            ticket = self._tickets[number]
            ticket.run = Run(ticket.point, ended, worker.names, doubted=ticket.doubted)
            if number in self._dropped:
                self._dropped.remove(number)
                del self._tickets[number]
                continue
            if not ticket.bare and ticket.explored is None:
                self._arrived.append(ticket.run)
        if self._elsewhere is not None:
            for arrival in self._elsewhere.arrivals():
                self._file(arrival)

    def _file(self, arrival: Arrival) -> None:
        """Take a run that ended elsewhere, unless it must be executed here to count."""
        number, ended, names, place = arrival
        ticket = self._tickets[number]
        if ended is not None and ended.status == 0 and not ended.timed_out and not ended.limit:
            ticket.run = Run(ticket.point, ended, names, place, ticket.state)
            self._arrived.append(ticket.run)
            return
        if ended is not None and not ended.timed_out:
            ticket.doubted = place
        self._returned.append(number)

    def _answering(self, connections: list[Connection], timeout_s: float | None) -> list[Connection]:
        """Those of them that have an answer; none after the time, or when something has come from elsewhere."""
        by_fd = {connection.fileno(): connection for connection in connections}
        poll = select.poll()
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        if self._elsewhere is not None:
            poll.register(self._elsewhere.fileno(), select.POLLIN)
        while timeout_s is None or timeout_s >= 0:
            part_s = STOPPED_S if timeout_s is None else min(timeout_s, STOPPED_S)
            answered = [fd for fd, _ in poll.poll(part_s * 1000)]
            if answered:
                return [by_fd[fd] for fd in answered if fd in by_fd]
            for worker in self._workers:
                worker.continue_if_stopped()
            if self._elsewhere is not None:
                break  # it wants to be asked now and then
            timeout_s = None if timeout_s is None else (timeout_s - part_s or -1.0)
        return []

    def _receive(self, worker: WorkerProcess) -> Trouble | tuple[int, Ended] | None:
        try:
            answer = worker.receive()
        except WorkerDied as died:
            doing = [self._tickets[number].point for number in worker.busy if number in self._tickets]
            raise BrokenOff(
                "worker-died",
                f"{died} while it checked {f'a state of crash point {doing[0]}' if doing else 'nothing'}",
                "If the system ran out of memory, lower --jobs or set [check] memory_mib.",
            ) from None
        return answer

    def _error(self, worker: WorkerProcess, trouble: Trouble) -> CrashcheckError:
        if trouble.slug == "disk-full-checking":
            return BrokenOff(
                trouble.slug,
                f"no room is left for crash images: {trouble.text}",
                f"Free some room in {self.home.parent}, or lower --jobs: each worker holds six copies of the image.",
            )
        if trouble.slug == "check-not-started":
            return CrashcheckError(
                trouble.slug, f"the check cannot be started: {trouble.text}", "Correct [check] command."
            )
        return CrashcheckError(
            trouble.slug, f"worker {worker.index} could not write or restore a crash image: {trouble.text}", ""
        )
