"""The base of a change, searched by a process of its own while the change is searched, where there are cores for both.

It begins when the change is built and recorded: two builds, or two workloads, at once may use one port or file. Its
result is kept in the cache like any other; if it fails, the base is searched afterwards, which shows why.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from types import TracebackType

SEARCHING = "checking"  # the phase of a run in which the base may be searched
LEAST_JOBS = 4  # with fewer, half of them would test too little of the change in the same budget


class BaseAhead:
    """The process, started at most once. `jobs`: what it may use, taken from those of the run; 0: none is started."""

    def __init__(self, jobs: int) -> None:
        """`jobs`: of both."""
        self.jobs = jobs // 2 if jobs >= LEAST_JOBS else 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Search the base as this command does, with the same options."""
        if self.jobs and self._process is None:
            words = [sys.executable, "-P", "-m", "crashcheck", *sys.argv[1:], "--search-base", "--jobs", str(self.jobs)]
            null = subprocess.DEVNULL
            self._process = subprocess.Popen(words, stdin=null, stdout=null, stderr=null)

    def wait(self) -> None:
        """Until it has ended; its budget is that of the run."""
        if self._process is not None:
            self._process.wait()

    def __enter__(self) -> BaseAhead:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)  # it ends its workers
            self._process.wait()
