"""Worker processes that run the check on crash images, and give back how each run ended, by ticket.

Each worker's images follow the crash points that it is asked for (worker.py). How far a base has to move is decided
here, because only this process has the trace. What a run means for its state is for an oracle to judge (oracles).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import select
import shutil
import signal
import socket
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

from crashcheck.checker.budget import DiskFull
from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.followed import without_own
from crashcheck.checker.execution.process import Ended, Limits
from crashcheck.checker.execution.worker import DURABLE, INITIAL, ISSUED, Exploration, Task, Trouble, pool_of
from crashcheck.checker.execution.worker_start import Started, start_worker
from crashcheck.checker.images import image_folder
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import sparse
from crashcheck.runtime.record import continue_if_stopped

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from crashcheck.checker.images.piecewise import FilePatch
    from crashcheck.checker.images.transition import Content
    from crashcheck.checker.states.points import CrashPoint
    from crashcheck.checker.states.space import CrashState

_STOPPED_S = 1.0  # how long a worker that was stopped may stay so
_CLOSE_S = 20.0  # how long a worker may take to end its check and remove its images
_END_S = 5.0  # a killed process is gone at once, unless the kernel is busy with it
_AHEAD = 2  # tasks a worker holds at once, so that it need not wait for us; bounds what its socket must hold

FIRST = -1  # instead of a crash point: the image before the workload
FINAL = -2  # the image after it


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the check that has ended. `names`: paths of its worker, and what they are called in outputs."""

    point: int  # or FIRST, FINAL
    ended: Ended
    names: Mapping[str, str]


@dataclass(slots=True)
class _Ticket:
    number: int
    point: int  # or FIRST, FINAL
    state: CrashState | None
    stages: tuple[bytes, ...]  # files of operations for {ops}: one run per file
    bare: bool  # on the initial image, which stays as it is
    kept_bytes: int | None  # of its output, instead of the limits' value
    timeout_s: float | None  # instead of the limits' value
    # of an exploration: its words, its environment, and when its time is over
    explored: tuple[tuple[str, ...], dict[str, str], float | None] | None = None
    run: Run | None = None  # once it has ended
    followed: bool = False  # with what it depends on


@dataclass(slots=True)
class _Process:
    """A worker process, as this one sees it."""

    index: int
    process: Started
    connection: Connection
    root: Path
    # of its image of what is durable, and its image of everything issued (worker.py): the crash point; None: the first
    # image
    bases: list[int | None] = field(default_factory=lambda: [None, None])
    busy: deque[int] = field(default_factory=deque)  # tickets sent and not answered
    names: dict[str, str] = field(init=False)  # its paths, and what they are called in outputs

    def __post_init__(self) -> None:
        pools = {str(pool_of(self.root, image)): "{pool}" for image in (DURABLE, ISSUED, INITIAL)}
        self.names = {**pools, str(self.root / "stdout"): "{stdout}", str(self.root / "ops"): "{ops}"}


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
    ) -> None:
        """`stdout_bytes`, `operations`: all that the workload printed and ended, for the final image.

        `acknowledged`: (operations, bytes) that were acknowledged at every point, instead of those of the points.
        """
        # what is run; never changes
        self.setup = setup
        self.limits = limits or Limits()
        self._content = content
        self._points = points
        self._jobs = max(1, jobs)
        self._follows = setup.inputs is not None
        self._always = acknowledged  # by every crash point, if given
        self._whole = acknowledged or (operations, stdout_bytes)  # by the end of the workload
        # the workers, while the pool is open
        self._home: Path | None = None  # the folder of all images
        self._lock: int | None = None  # on the home, so that another run does not take it for abandoned
        self._workers: list[_Process] = []
        # the runs under way
        self._tickets: dict[int, _Ticket] = {}  # submitted, and not yet asked for
        self._queue: deque[int] = deque()  # tickets that wait for a free worker
        self._urgent: deque[int] = deque()  # those that go first
        self._arrived: deque[Run] = deque()  # on crash states, ended since `arrivals` was last asked
        self._next = 0  # the next ticket
        self._bare_inputs: dict[bytes | None, None] = {}  # what runs on the first image depended on, each once
        self.followed: set[bytes | None] = set()  # what all runs depended on, each once; None: that is not known
        self.is_aside = False  # whether the first worker takes urgent tickets alone

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
        image_folder.remove_abandoned(self.setup.work)
        self._home = image_folder.home(self.setup.work, bytes_held, self._jobs)
        self._lock = image_folder.lock(self._home)
        for index in range(self._jobs):
            root = self._home / f"w{index:03d}"
            root.mkdir()
            ours, theirs = socket.socketpair()
            with theirs:
                process = start_worker(theirs.fileno())
            worker = _Process(index, process, Connection(ours.detach()), root)
            self._workers.append(worker)
            worker.connection.send((self.setup, self.limits, root, dict(os.environ)))
        for worker in self._workers:
            answer = self._receive(worker)
            if isinstance(answer, Trouble):
                raise self._error(worker, answer)

    def close(self) -> None:
        """End the workers, their checks included, and remove the images. May be called twice."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            if not worker.process.end(_CLOSE_S):
                _end_checks_of(worker.root)
        self._workers.clear()
        if self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def home(self) -> Path:
        """Where the images are."""
        assert self._home is not None
        return self._home

    # -- runs

    def submit(
        self, state: CrashState, stages: tuple[bytes, ...] = (), *, urgent: bool = False, timeout_s: float | None = None
    ) -> int:
        """Queue the check of a crash state; `urgent`: before anything that waits. How it ended: `ended`.

        `stages`: the files of operations for {ops}; `timeout_s`: instead of the limits' value.
        """
        return self._submit(state.point, state, stages, urgent=urgent, timeout_s=timeout_s)

    def submit_uncrashed(self, point: int, stages: tuple[bytes, ...] = ()) -> int:
        """Queue the check of the image before the workload (FIRST) or after it (FINAL), before anything that waits."""
        return self._submit(point, None, stages, urgent=True)

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
        self._tickets[number] = _Ticket(number, run.point, None, (), False, None, None, run=run)
        self._arrived.append(run)
        return number

    def submit_exploration(
        self, point: int, argv: Sequence[str], env: Mapping[str, str], timeout_s: float, until_s: float | None
    ) -> int:
        """Queue a run of the check on images of a crash point that is explored, before anything that waits."""
        number = self._next
        self._next += 1
        explored = tuple(argv), dict(env), until_s
        self._tickets[number] = _Ticket(number, point, None, (), False, None, timeout_s, explored, None, self._follows)
        self._urgent.append(number)
        self._dispatch()
        return number

    def ended(self, ticket: int) -> Run:
        """Wait for the end of a run, which does not wait for others any more; each ticket once.

        CrashcheckError if a worker dies or an image cannot be written.
        """
        if ticket in self._queue:
            self._queue.remove(ticket)
            self._urgent.append(ticket)
        while (run := self.poll(ticket)) is None:
            pass
        return run

    def poll(self, ticket: int, timeout_s: float | None = None) -> Run | None:
        """How a run ended, once; None if it has not after the next end of any run, or after the time.

        CrashcheckError as `ended`.
        """
        self._dispatch()
        if self._tickets[ticket].run is None:
            self._collect(timeout_s)
            self._dispatch()
        if self._tickets[ticket].run is None:
            return None
        return self._tickets.pop(ticket).run

    def arrivals(self) -> Iterator[Run]:
        """The runs on crash states and uncrashed images that have ended since this was last asked, each once."""
        while self._arrived:
            yield self._arrived.popleft()

    @property
    def bare_inputs(self) -> tuple[bytes | None, ...]:
        """What followed runs on the first image depended on, each once, in the order in which they ended."""
        return tuple(self._bare_inputs)

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """While a failing state is diagnosed, give its worker nothing else: its base would move back and forth."""
        self.is_aside = True
        try:
            yield
        finally:
            self.is_aside = False

    def write_image(self, state: CrashState, folder: Path) -> None:
        """Write a state's image into `folder`, which must not exist."""
        durable = _plain(self._content.durable(None, state.point))
        image_folder.write_image(self.setup.first, durable, folder)
        image_folder.patch_image(folder, _plain(self._content.patches(state)))

    def write_issued(self, from_point: int | None, to_point: int, folder: Path) -> None:
        """Move the image in `folder` from everything issued by one point to that by a later one; None: make it."""
        patches = _plain(self._content.issued(from_point, to_point))
        if from_point is None:
            image_folder.write_image(self.setup.first, patches, folder)
        else:
            image_folder.patch_image(folder, patches)

    def acknowledged(self, point: int) -> tuple[int, int]:
        """(operations, bytes of output) that were acknowledged by a crash point, or by the end (FINAL)."""
        if point == FINAL:
            return self._whole
        if self._always is not None:
            return self._always
        return (0, 0) if point == FIRST else (int(self._points[point].acked), int(self._points[point].stdout_bytes))

    # -- between us and the workers

    def _submit(
        self,
        point: int,
        state: CrashState | None,
        stages: tuple[bytes, ...],
        *,
        urgent: bool = False,
        bare: bool = False,
        kept_bytes: int | None = None,
        timeout_s: float | None = None,
    ) -> int:
        number = self._next
        self._next += 1
        self._tickets[number] = _Ticket(
            number, point, state, stages, bare, kept_bytes, timeout_s, followed=self._follows
        )
        (self._urgent if urgent else self._queue).append(number)
        self._dispatch()
        return number

    def _dispatch(self) -> None:
        while self._urgent:
            number = self._urgent.popleft()
            ticket = self._tickets[number]
            anywhere = ticket.bare or ticket.explored is not None
            worker = min(self._workers, key=lambda worker: len(worker.busy)) if anywhere else self._workers[0]
            self._send(worker, number)
        while self._queue:
            free = [w for w in self._workers if len(w.busy) < _AHEAD and not (self.is_aside and w.index == 0)]
            if not free:
                return
            self._send(min(free, key=lambda worker: len(worker.busy)), self._queue.popleft())

    def _send(self, worker: _Process, number: int) -> None:
        while len(worker.busy) >= _AHEAD:
            self._collect()
        ticket = self._tickets[number]
        task = self._task(worker, ticket)
        worker.busy.append(number)
        try:
            worker.connection.send_bytes(pickle.dumps(task, pickle.HIGHEST_PROTOCOL))
        except OSError:
            # The worker is gone. What it sent before gives the reason, or `_receive` raises at the end of that.
            while not isinstance(answer := self._receive(worker), Trouble):
                pass
            raise self._error(worker, answer) from None

    def _task(self, worker: _Process, ticket: _Ticket) -> Task | Exploration:
        """What a worker has to do for a ticket. Notes where the worker's base will be after that."""
        if ticket.explored is not None:
            argv, env, until_s = ticket.explored
            timeout_s = ticket.timeout_s or self.limits.timeout_s
            return Exploration(ticket.number, argv, env, timeout_s, until_s, ticket.followed)
        acked, printed = self.acknowledged(ticket.point)
        if ticket.bare:
            return Task(
                *(ticket.number, INITIAL, False, (), (), 0, 0, ticket.stages, ticket.kept_bytes),
                followed=ticket.followed,
            )
        if ticket.state is None:
            moved = worker.bases[DURABLE] is not None
            worker.bases[DURABLE] = None
            patches = _plain(self._content.final()) if ticket.point == FINAL else ()
            return Task(
                *(ticket.number, DURABLE, moved, (), patches, acked, printed, ticket.stages),
                followed=ticket.followed,
            )
        near_full = self._content.near_full(ticket.state)
        image = ISSUED if near_full else DURABLE
        reset, advance = self._move(image, worker.bases[image], ticket.point)
        worker.bases[image] = ticket.point
        patches = _plain(self._content.lost(ticket.state) if near_full else self._content.patches(ticket.state))
        return Task(
            *(ticket.number, image, reset, advance, patches, acked, printed, ticket.stages),
            timeout_s=ticket.timeout_s,
            followed=ticket.followed,
        )

    def _move(self, image: int, base: int | None, point: int) -> tuple[bool, image_folder.Patches]:
        """How a base gets from one crash point (None: the first image) to another.

        (whether it starts from the first image again, patches after that)
        """
        if base == point:
            return False, ()
        content = self._content
        if base is not None and base > point:
            back = (content.taken_back if image == ISSUED else content.durable_back)(base, point)
            if back is not None:
                return False, _plain(back)
            base = None
            reset = True
        else:
            reset = False
        return reset, _plain((content.issued if image == ISSUED else content.durable)(base, point))

    def _collect(self, timeout_s: float | None = None) -> None:
        """Wait for at least one answer, or the time, and file what came."""
        by_connection = {worker.connection: worker for worker in self._workers if worker.busy}
        for connection in self._answering(list(by_connection), timeout_s):
            worker = by_connection[connection]
            answer = self._receive(worker)
            if isinstance(answer, Trouble):
                raise self._error(worker, answer)
            number, ended = answer
            assert isinstance(ended, Ended)
            worker.busy.remove(number)
            ticket = self._tickets[number]
            if ticket.explored is not None:
                ended = ended._replace(inputs=without_own(ended.inputs))
            ticket.run = Run(ticket.point, ended, worker.names)
            if ticket.followed:
                self.followed.add(ended.inputs)
            if ticket.bare and ticket.followed:
                self._bare_inputs[ended.inputs] = None
            if not ticket.bare and ticket.explored is None:
                self._arrived.append(ticket.run)

    def _answering(self, connections: list[Connection], timeout_s: float | None) -> list[Connection]:
        """Those of them that have an answer, or none after the time.

        A check may stop its worker (`kill -STOP $PPID`), which then would never answer: it continues.
        """
        by_fd = {connection.fileno(): connection for connection in connections}
        poll = select.poll()
        for fd in by_fd:
            poll.register(fd, select.POLLIN)
        ready: list[Connection] = []
        while not ready and (timeout_s is None or timeout_s >= 0):
            part_s = _STOPPED_S if timeout_s is None else min(timeout_s, _STOPPED_S)
            ready = [by_fd[fd] for fd, _ in poll.poll(part_s * 1000)]
            timeout_s = None if timeout_s is None else (timeout_s - part_s or -1.0)
            for worker in () if ready else self._workers:
                with contextlib.suppress(ChildProcessError):
                    continue_if_stopped(worker.process.pid)
        return ready

    def _receive(self, worker: _Process) -> Trouble | tuple[int, Ended]:
        try:
            answer: Trouble | tuple[int, Ended] = worker.connection.recv()
        except (EOFError, ConnectionResetError):
            code = worker.process.wait()
            _end_checks_of(worker.root)
            how = f"was ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exited with {code}"
            doing = [self._tickets[number].state for number in worker.busy if number in self._tickets]
            raise CrashcheckError(
                "worker-died",
                f"worker {worker.index} (process {worker.process.pid}) {how} "
                f"while it checked {doing[0] if doing else 'nothing'}",
                "If the system ran out of memory, lower --jobs or set [check] memory_mib.",
            ) from None
        return answer

    def _error(self, worker: _Process, trouble: Trouble) -> CrashcheckError:
        if trouble.slug == "disk-full-checking":
            return DiskFull(
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


def _plain(patches: Iterable[FilePatch]) -> image_folder.Patches:
    return tuple((patch.path, patch.exists, patch.size, patch.writes) for patch in patches)


def _end_checks_of(root: Path) -> None:
    """Kill what a dead worker left: everything whose environment names its image; wait until it is gone."""
    pools = [pool_of(root, image) for image in (DURABLE, ISSUED, INITIAL)]
    marks = [b"CRASHCHECK_POOL=" + os.fsencode(pool) + b"\0" for pool in pools]
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            environment = (folder / "environ").read_bytes() + b"\0"
            if any(mark in environment for mark in marks):
                pidfd = os.pidfd_open(int(folder.name))
                try:
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                    wait([pidfd], timeout=_END_S)
                finally:
                    os.close(pidfd)
        except OSError:
            continue
