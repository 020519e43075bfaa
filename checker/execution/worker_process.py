"""A worker process as whoever started it sees it: its connection, its images' paths, how it ended.

Started by the pool of this machine (worker_pool.py), and by a machine of a cluster (checker/remote/host.py).
"""

from __future__ import annotations

import os
import pickle
import signal
import socket
from collections import deque
from multiprocessing.connection import Connection, wait
from pathlib import Path

from crashcheck.checker.execution.check_command import CheckSetup
from crashcheck.checker.execution.process import Ended, Limits
from crashcheck.checker.execution.worker import (
    DURABLE,
    INITIAL,
    ISSUED,
    Exploration,
    GivenFolder,
    Task,
    Trouble,
    pool_of,
)
from crashcheck.checker.execution.worker_start import Start, start_worker
from crashcheck.runtime.record import continue_if_stopped

_CLOSE_S = 20.0  # how long a worker may take to end its check and remove its images
_END_S = 5.0  # a killed process is gone at once, unless the kernel is busy with it

UNKNOWN = -1  # where a base is: nobody knows, so it starts from the first image again
Bases = list[int | None]  # by image (DURABLE, ISSUED): the crash point of its base; None: the first image


class WorkerDied(Exception):
    """The process has ended without being asked to; the text describes how."""


class WorkerProcess:
    """One worker. `close`, then `end`, when it is not needed any more."""

    def __init__(self, index: int, home: Path, setup: CheckSetup, limits: Limits, start: Start = start_worker) -> None:
        """Start it with images below `home`. The first answer (`receive`) is None once it is ready, or Trouble."""
        # constant
        self.index = index
        self.root = home / f"w{index:03d}"
        self.root.mkdir()
        pools = {str(pool_of(self.root, image)): "{pool}" for image in (DURABLE, ISSUED, INITIAL)}
        # its paths, and what they are called in outputs
        self.names = {**pools, str(self.root / "stdout"): "{stdout}", str(self.root / "ops"): "{ops}"}
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = start(theirs.fileno())
        self.connection = Connection(ours.detach())
        # changing
        self.bases: Bases = [None, None]
        self.busy: deque[int] = deque()  # tickets sent and not answered
        self.connection.send((setup, limits, self.root, dict(os.environ)))

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, task: Task | Exploration | GivenFolder) -> None:
        """Raises OSError if it is gone."""
        self.connection.send_bytes(pickle.dumps(task, pickle.HIGHEST_PROTOCOL))

    def receive(self) -> Trouble | tuple[int, Ended] | None:
        """Wait for its next answer. Raises WorkerDied."""
        try:
            answer: Trouble | tuple[int, Ended] | None = self.connection.recv()
        except (EOFError, ConnectionResetError):
            code = self._process.wait()
            end_checks_of(self.root)
            how = f"was ended by signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exited with {code}"
            raise WorkerDied(f"worker {self.index} (process {self.pid}) {how}") from None
        return answer

    def continue_if_stopped(self) -> None:
        """A check may stop its worker (`kill -STOP $PPID`), which then would never answer: let it continue."""
        try:
            continue_if_stopped(self.pid)
        except ChildProcessError:
            pass

    def close(self) -> None:
        """Let it end, and the check that it runs."""
        self.connection.close()

    def end(self) -> None:
        """Wait for that."""
        if not self._process.end(_CLOSE_S):
            end_checks_of(self.root)


def end_checks_of(root: Path) -> None:
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
