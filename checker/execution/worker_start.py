"""Starts worker processes quickly: each is a copy of a zygote (runtime/zygote.py).

One run of crashcheck needs several pools of workers: for the search, for fixes, for the prefix of a finding. Where no
zygote was forked when the command began, as where crashcheck is a library, one is started as a program of its own. It
runs no check and ends when we do.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import wait
from pathlib import Path

import crashcheck
from crashcheck.runtime import zygote

_BOOT = (
    "import gc, sys; gc.disable(); sys.path[:0] = [sys.argv[1]]; "
    "from crashcheck.checker.execution import worker; getattr(worker, sys.argv[2])(int(sys.argv[3]))"
)


def _start(function: str, descriptor: int) -> subprocess.Popen[bytes]:
    """Start Python without the user's own modules; it calls a function of worker.py with a descriptor of ours."""
    library = str(Path(crashcheck.__file__).parent.parent)
    return subprocess.Popen(
        [sys.executable, "-P", "-S", "-c", _BOOT, library, function, str(descriptor)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(descriptor,),
        start_new_session=True,  # Ctrl-C is ours to handle
    )


class Started:
    """A child of this process, by its number alone."""

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


Start = Callable[[int], Started]  # starts a worker that reads its tasks from a descriptor. Raises OSError


class _Original(zygote.Channel):
    """A zygote that is a program of its own: it has loaded what a worker needs, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        with self.theirs:
            self._process = _start("serve", self.theirs.fileno())

    def close(self) -> None:
        super().close()
        if self.is_ours:
            self._process.wait()
        else:
            self._process.returncode = 0  # it is no child of ours


_lock = threading.Lock()
_original: _Original | None = None


def start_worker(descriptor: int) -> Started:
    """Start a worker that reads its tasks from `descriptor`; it is a child of this process. Raises OSError."""
    global _original
    if pid := zygote.copy(zygote.WORKER, descriptor):
        return Started(pid)
    with _lock:
        pid = _original.copy(zygote.WORKER, descriptor) if _original is not None and _original.is_ours else None
        if pid is None:
            _forget()
            _original = _Original()
            pid = _original.copy(zygote.WORKER, descriptor)
    return Started(pid or _uncopied(descriptor))


def _uncopied(descriptor: int) -> int:
    """Start a worker by itself, as in a sandbox that refuses CLONE_PARENT; its process number."""
    process = _start("main", descriptor)
    process.returncode = 0  # it is waited for by its number
    return process.pid


def _forget() -> None:
    global _original
    if _original is not None:
        _original.close()
        _original = None


atexit.register(_forget)
