"""Running the check on crash states, on several workers at once, with results that do not depend on how many.

The executor hands states to worker processes (worker.py) and gives verdicts back by ticket. Each
worker's image follows the crash points it is asked for; how far a base has to move is decided here,
because only this process has the trace.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING

import crashcheck
from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.process import Ended, Limits, captured
from crashcheck.checker.execution.worker import DURABLE, INITIAL, ISSUED, Task, Trouble, pool_of
from crashcheck.checker.images import image_folder, sparse
from crashcheck.checker.oracles import FINAL, FIRST, Oracle
from crashcheck.checker.results import Verdict
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.exploration import Explored, explore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from crashcheck.checker.images.transition import Content, FilePatch
    from crashcheck.checker.states.space import CrashPoint, CrashState
    from crashcheck.runtime.exploration import End, OpenGranule

_END_S = 5.0  # a killed process is gone at once, unless the kernel is busy with it
_AHEAD = 2  # tasks a worker holds at once, so that it need not wait for us; bounds what its socket must hold
_BOOT = (
    "import sys; sys.path[:0] = [sys.argv[1]]; "
    "from crashcheck.checker.execution.worker import main; main(int(sys.argv[2]))"
)


class DiskFull(CrashcheckError):
    """No room for an image; verdicts given so far stand."""


@dataclass(slots=True)
class _Ticket:
    number: int
    point: int  # or FIRST, FINAL
    state: CrashState | None
    stages: tuple[bytes, ...] = ()  # of a bare run: what it is to do instead of what the oracle says
    kept_bytes: int | None = None
    patient: bool = False
    ended: Ended | None = None  # with its worker's names
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class _Worker:
    index: int
    process: subprocess.Popen[bytes]
    connection: Connection
    root: Path
    # of its image of what is durable, and its image of everything issued (worker.py): the crash point; None: the first
    # image
    bases: list[int | None] = field(default_factory=lambda: [None, None])
    busy: deque[int] = field(default_factory=deque)  # tickets sent and not answered

    @property
    def names(self) -> dict[str, str]:
        """Its paths, and what they are called in outputs."""
        pools = {str(pool_of(self.root, image)): "{pool}" for image in (DURABLE, ISSUED, INITIAL)}
        return {**pools, str(self.root / "stdout"): "{stdout}", str(self.root / "ops"): "{ops}"}


class Executor:
    """Submit states, ask for verdicts. A context manager: leaving it ends every worker and check, and removes images.

    Verdicts are a function of the state (as far as the check is), not of the worker: every pool path
    has the same length and is written {pool} in outputs.
    """

    def __init__(
        self,
        content: Content,
        points: Sequence[CrashPoint],
        setup: CheckSetup,
        oracle: Oracle,
        *,
        limits: Limits | None = None,
        jobs: int = 1,
        stdout_bytes: int = 0,
        operations: int = 0,
        told: tuple[int, int] | None = None,
    ) -> None:
        """`stdout_bytes`, `operations`: all that the workload printed and ended, for the final image.

        `told`: (operations, bytes) that were acknowledged at every point, whatever the points say.
        """
        self._content = content
        self._points = points
        self._setup = setup
        self._oracle = oracle
        self._limits = limits or Limits()
        self._hasty_s: float | None = None
        self._jobs = max(1, jobs)
        self._told = told
        self._whole = told or (operations, stdout_bytes)
        self._home: Path | None = None
        self._lock: int | None = None
        self._workers: list[_Worker] = []
        self._tickets: dict[int, _Ticket] = {}
        self._queue: deque[int] = deque()
        self._urgent: deque[int] = deque()
        self._next = 0
        self._aside = False
        self.executed = 0

    # -- life

    def __enter__(self) -> Executor:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        bytes_held = sparse.data_bytes(self._setup.first)
        image_folder.remove_abandoned(self._setup.work)
        self._home = image_folder.home(self._setup.work, bytes_held, self._jobs)
        self._lock = image_folder.lock(self._home)
        library = str(Path(crashcheck.__file__).parent.parent)
        for index in range(self._jobs):
            root = self._home / f"w{index:03d}"
            root.mkdir()
            ours, theirs = socket.socketpair()
            with theirs:
                process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _BOOT, library, str(theirs.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C is ours to handle
                )
            worker = _Worker(index, process, Connection(ours.detach()), root)
            self._workers.append(worker)
            worker.connection.send((self._setup, self._limits, root))
        for worker in self._workers:
            answer = self._receive(worker)
            if isinstance(answer, Trouble):
                raise self._error(worker, answer)

    def close(self) -> None:
        """End the workers, their checks included, and remove the images. May be called twice."""
        for worker in self._workers:
            worker.connection.close()
        for worker in self._workers:
            try:
                worker.process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
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

    @property
    def kept_bytes(self) -> int:
        """Of each output."""
        return self._limits.kept_bytes

    # -- states

    def submit(self, state: CrashState) -> int:
        """Queue a state; its verdict is had with `result`."""
        return self._submit(state.point, state)

    def result(self, ticket: int, timeout_s: float | None = None) -> Verdict | None:
        """Wait for a verdict; each ticket once. None if it has not come in time (never without a time).

        CrashcheckError if a worker dies or an image cannot be written.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        self._dispatch()
        while self._tickets[ticket].ended is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._collect(left)
            self._dispatch()
        self.executed += 1
        done = self._tickets.pop(ticket)
        assert done.ended is not None
        # Judged in the order in which verdicts are asked for, not in that of the runs' ends.
        return self._oracle.judge(done.ended, done.names, done.point)

    def run(self, state: CrashState, *, patient: bool = False) -> Verdict:
        """Execute one state now, before anything that waits; `patient`: with all the time that the limits allow."""
        return self._now(self._submit(state.point, state, urgent=True, patient=patient))

    @property
    def hasty_s(self) -> float | None:
        """What a crash state's check is given, where that is less than what the limits allow."""
        return self._hasty_s

    def set_timeout(self, seconds: float) -> None:
        """From now on the checks of crash states have so much time each, but no more than the limits allow."""
        self._hasty_s = seconds if seconds < self._limits.timeout_s else None

    def run_first(self) -> Verdict:
        """Execute the check on the image before the workload: nothing acknowledged, nothing printed."""
        return self._now(self._submit(FIRST, None, urgent=True))

    def run_final(self) -> Verdict:
        """Execute the check on the image after the workload, all acknowledged."""
        return self._now(self._submit(FINAL, None, urgent=True))

    def submit_bare(self, stages: tuple[bytes, ...], kept_bytes: int | None = None) -> int:
        """Queue runs of the check on the first image, one after another; how they ended is had with `ended`.

        They have an image of their own: no base moves for them. `kept_bytes` of their output, if not what the limits
        say; then nothing else may be under way.
        """
        return self._submit(FIRST, None, stages=stages, kept_bytes=kept_bytes)

    def ended(self, ticket: int) -> tuple[Ended, Mapping[str, str]]:
        """Wait for the end of a bare run; each ticket once. With the names of its worker's paths, for oracles."""
        if ticket in self._queue:
            self._queue.remove(ticket)
            self._urgent.append(ticket)
        self._dispatch()
        while self._tickets[ticket].ended is None:
            self._collect()
            self._dispatch()
        done = self._tickets.pop(ticket)
        assert done.ended is not None
        return done.ended, done.names

    def _now(self, ticket: int) -> Verdict:
        verdict = self.result(ticket)
        assert verdict is not None
        return verdict

    @contextlib.contextmanager
    def aside(self) -> Iterator[None]:
        """While a failing state is looked into, its worker is given nothing else: its base would go back and forth."""
        self._aside = True
        try:
            yield
        finally:
            self._aside = False

    def write_image(self, state: CrashState, folder: Path) -> None:
        """Write a state's image into `folder`, which must not exist."""
        durable = _plain(self._content.durable(None, state.point))
        image_folder.write_image(self._setup.first, durable, folder)
        image_folder.patch_image(folder, _plain(self._content.patches(state)))

    def stages(self, point: int) -> tuple[bytes, ...]:
        """What the check is given to do at a crash point, a run each."""
        return self._oracle.stages(point)

    def explored(
        self, point: int, stages: tuple[bytes, ...], granules: Sequence[OpenGranule], folder: Path, timeout_s: float
    ) -> Explored:
        """Run the check on the image in `folder`/pool with each combination of the granules' contents.

        What else lies in `folder` may be overwritten. Several threads may ask at once, for one image each.
        """
        if len(stages) > 1:
            return Explored((), 0, 0, "it runs more than once", final=True)
        acked, printed = self._acknowledged(point)
        pool, stdout, ops = folder / "pool", folder / "stdout", folder / "ops"
        ops.write_bytes(b"".join(stages))
        recorded = self._setup.recorded_stdout
        stdout.write_bytes(recorded.read_bytes()[:printed] if printed and recorded is not None else b"")
        return explore(
            self._setup.command.argv(str(pool), acked, str(stdout), str(ops) if stages else None),
            pool,
            granules,
            folder,
            env=self._setup.environment(pool),
            cwd=self._setup.folder,
            timeout_s=timeout_s,
            memory_bytes=self._limits.memory_bytes,
            apart=self._limits.apart,
        )

    def judged(self, end: End, point: int, folder: Path) -> Verdict:
        """The verdict of an end of what was explored in `folder`."""
        names = {str(folder / name): "{" + name + "}" for name in ("pool", "stdout", "ops")}
        return self._oracle.judge(captured(end.status, end.output, self._limits), names, point)

    def shown_command(self, state: CrashState, pool: str) -> str:
        """The check as a person would type it for an image of this state at `pool`."""
        return self._setup.command.shown(pool, self._acknowledged(state.point)[0], "{stdout}")

    def shown_plain(self, pool: str, *, final: bool) -> str:
        """The check as a person would type it for an uncrashed image."""
        return self._setup.command.shown(pool, self._whole[0] if final else 0, "{stdout}")

    # -- between us and the workers

    def _submit(
        self,
        point: int,
        state: CrashState | None,
        *,
        urgent: bool = False,
        stages: tuple[bytes, ...] = (),
        kept_bytes: int | None = None,
        patient: bool = False,
    ) -> int:
        number = self._next
        self._next += 1
        self._tickets[number] = _Ticket(number, point, state, stages, kept_bytes, patient)
        (self._urgent if urgent else self._queue).append(number)
        self._dispatch()
        return number

    def _dispatch(self) -> None:
        while self._urgent:
            number = self._urgent.popleft()
            bare = bool(self._tickets[number].stages)
            worker = min(self._workers, key=lambda worker: len(worker.busy)) if bare else self._workers[0]
            self._send(worker, number)
        while self._queue:
            free = [w for w in self._workers if len(w.busy) < _AHEAD and not (self._aside and w.index == 0)]
            if not free:
                return
            self._send(min(free, key=lambda worker: len(worker.busy)), self._queue.popleft())

    def _send(self, worker: _Worker, number: int) -> None:
        while len(worker.busy) >= _AHEAD:
            self._collect()
        ticket = self._tickets[number]
        task = self._task(worker, ticket)
        worker.busy.append(number)
        try:
            worker.connection.send(task)
        except OSError:
            self._receive(worker)  # says what became of it
            raise

    def _task(self, worker: _Worker, ticket: _Ticket) -> Task:
        if ticket.stages:
            return Task(ticket.number, INITIAL, False, (), (), 0, 0, ticket.stages, ticket.kept_bytes)
        if ticket.state is None:
            moved = worker.bases[DURABLE] is not None
            worker.bases[DURABLE] = None
            final = ticket.point == FINAL
            acked, printed = self._whole if final else self._told or (0, 0)
            patches = _plain(self._content.final()) if final else ()
            stages = self._oracle.stages(ticket.point)
            return Task(ticket.number, DURABLE, moved, (), patches, acked, printed, stages)
        acked, printed = self._acknowledged(ticket.point)
        full = self._content.near_full(ticket.state)
        image = ISSUED if full else DURABLE
        base = worker.bases[image]
        back = (
            self._content.taken_back(base, ticket.point) if full and base is not None and base > ticket.point else None
        )
        reset = base is not None and base > ticket.point and back is None
        origin = None if reset else base
        advance: image_folder.Patches = ()
        if back is not None:
            advance = _plain(back)
        elif origin != ticket.point:
            move = self._content.issued if full else self._content.durable
            advance = _plain(move(origin, ticket.point))
        worker.bases[image] = ticket.point
        patches = _plain(self._content.lost(ticket.state) if full else self._content.patches(ticket.state))
        stages = self._oracle.stages(ticket.point)
        limit_s = None if ticket.patient else self._hasty_s
        return Task(ticket.number, image, reset, advance, patches, acked, printed, stages, timeout_s=limit_s)

    def _acknowledged(self, point: int) -> tuple[int, int]:
        """(operations, bytes of output) by a crash point."""
        here = self._points[point]
        return self._told or (int(here.acked), int(here.stdout_bytes))

    def _collect(self, timeout_s: float | None = None) -> None:
        """Wait for at least one answer, or the time, and file what came."""
        by_connection = {worker.connection: worker for worker in self._workers if worker.busy}
        for connection in wait(list(by_connection), timeout_s):
            assert isinstance(connection, Connection)
            worker = by_connection[connection]
            answer = self._receive(worker)
            if isinstance(answer, Trouble):
                raise self._error(worker, answer)
            number, ended = answer
            assert isinstance(ended, Ended)
            worker.busy.remove(number)
            ticket = self._tickets[number]
            ticket.ended, ticket.names = ended, worker.names
            if not ticket.stages:
                self._oracle.arrived(ended, worker.names, ticket.point)

    def _receive(self, worker: _Worker) -> Trouble | tuple[int, Ended]:
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

    def _error(self, worker: _Worker, trouble: Trouble) -> CrashcheckError:
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
    return tuple(
        (
            patch.path,
            bool(patch.exists),
            int(patch.size),
            tuple((int(offset), bytes(data)) for offset, data in patch.writes),
        )
        for patch in patches
    )


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
