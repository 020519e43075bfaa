"""Starts worker processes quickly: one process imports what a worker needs, and each worker is a copy of it.

Importing takes most of a worker's start, and one run of crashcheck needs several pools of workers: for the search, for
fixes, for the prefix of a finding. The process that is copied runs no check and ends when we do.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import wait
from pathlib import Path

import crashcheck

_BOOT = (
    "import gc, sys; gc.disable(); sys.path[:0] = [sys.argv[1]]; "
    "from crashcheck.checker.execution.worker import serve; serve(int(sys.argv[2]))"
)


class Started:
    """A child of this process that we did not start ourselves."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._code: int | None = None

    def wait(self) -> int:
        """Its exit code, negative for a signal."""
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._code

    def end(self, timeout_s: float) -> bool:
        """Wait for its end, and kill it after the time; whether it ended by itself."""
        if self._code is not None:
            return True
        pidfd = os.pidfd_open(self.pid)
        try:
            ended = bool(wait([pidfd], timeout_s))
        finally:
            os.close(pidfd)
        if not ended:
            os.kill(self.pid, signal.SIGKILL)
        self.wait()
        return ended


class _Original:
    """The process that is copied, and our end of the channel to it."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        library = str(Path(crashcheck.__file__).parent.parent)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-S", "-c", _BOOT, library, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,  # Ctrl-C is ours to handle
            )

    def copy(self, descriptor: int) -> Started | None:
        """A worker that has our end of a connection as its own; None if the process that is copied has ended."""
        try:
            socket.send_fds(self._channel, [b"\0"], [descriptor])
            answer = self._channel.recv(64)
        except OSError:
            return None
        return Started(int(answer)) if answer else None

    def close(self) -> None:
        self._channel.close()
        if self.owner == os.getpid():
            self._process.wait()
        else:
            self._process.returncode = 0  # it is no child of ours


_lock = threading.Lock()
_original: _Original | None = None


def start_worker(descriptor: int) -> Started:
    """Start a worker that reads its tasks from `descriptor`; it is a child of this process. Raises OSError."""
    global _original
    with _lock:
        if _original is not None and _original.owner == os.getpid():
            started = _original.copy(descriptor)
            if started is not None:
                return started
        _forget()
        _original = _Original()
        started = _original.copy(descriptor)
    if started is None:
        raise ChildProcessError("the process that workers are copies of has ended")
    return started


def _forget() -> None:
    global _original
    if _original is not None:
        _original.close()
        _original = None


atexit.register(_forget)
