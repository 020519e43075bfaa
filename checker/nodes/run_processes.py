"""Runs in processes of their own: of threads, one at a time has Python, and that takes most of a run.

Each process is a copy of this one, so what worlds are made of need not be sent. Jobs and runs are, as to and from the
workers of a cluster. A copy ends when there are no more jobs, and with this process.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import LifoQueue, SimpleQueue
from threading import Event, Thread
from time import monotonic
from typing import Any, NamedTuple, Protocol

from crashcheck.checker.budget import BrokenOff, OutOfTime
from crashcheck.checker.nodes.paths import SleepPath
from crashcheck.checker.nodes.runs import NodeRun, RunRules
from crashcheck.checker.nodes.under_way import Restless, RunsUnderWay
from crashcheck.runtime.copied_process import end_with_parent, fork
from crashcheck.runtime.nodes.actions import World

_END_S = 5.0  # for all copies to end, once there are no more jobs


class Copied(Protocol):
    """What runs need and leave beside their results, which a copy of this process has for itself."""

    def begin_copy(self, number: int) -> None:
        """This process is the copy with that number."""
        ...

    def news(self) -> Sequence[Any]:
        """What its runs found since this was asked last, and other copies need not find."""
        ...

    def hear_news(self, news: Sequence[Any]) -> None:
        """Take over what runs of other copies found."""
        ...

    def end_copy(self) -> object:
        """It ends. Returns what `hear` is given where it was copied."""
        ...

    def hear(self, kept: Any) -> None: ...


class _Job(NamedTuple):
    world: int  # which of those that copies can make
    path: SleepPath
    until_failure: bool
    news: Sequence[Any]  # for the copy that makes the run


class _Raised(NamedTuple):
    """An error, as it can be sent, whatever its kind is made from."""

    kind: type[Exception]
    arguments: tuple[object, ...]
    state: dict[str, object]

    def error(self) -> Exception:
        error = self.kind.__new__(self.kind, *self.arguments)
        error.__dict__.update(self.state)
        return error


class _Answer(NamedTuple):
    run: NodeRun | _Raised
    news: Sequence[Any]  # of the copy that made it


class _LastWords(NamedTuple):
    restless: Sequence[Restless]
    kept: object


class RunProcesses:
    """As RunsUnderWay, with so many copies of this process."""

    def __init__(
        self, jobs: int, worlds: Sequence[Callable[[], World]], rules: RunRules, copied: Copied | None = None
    ) -> None:
        """`worlds`, `rules`: all that `execute` is called with."""
        # constant
        self._worlds = worlds
        self._rules = rules
        self._copied = copied
        self._over = Event()
        # changing
        self.restless: list[Restless] = []
        self._copies: dict[Connection, int] = {}  # their process numbers
        self._free: LifoQueue[Connection] = LifoQueue()
        self._news: list[Any] = []  # of all copies
        self._known: dict[Connection, int] = {}  # how many of them each copy knows
        for number in range(jobs):
            self._copy(number, jobs)

    def _copy(self, number: int, jobs: int) -> None:
        ours, theirs = (Connection(end.detach()) for end in socket.socketpair())
        parent, copy = os.getpid(), fork()
        if not copy:
            try:
                end_with_parent()
                for connection in (ours, *self._copies):
                    connection.close()
                if os.getppid() == parent:
                    self._serve(theirs, number, jobs)
            finally:
                os._exit(0)
        theirs.close()
        self._copies[ours] = copy
        self._free.put(ours)

    def execute(
        self, make: Callable[[], World], path: SleepPath, rules: RunRules, *, until_failure: bool = False
    ) -> NodeRun:
        """As RunsUnderWay.execute. Raises BrokenOff as well."""
        copy = self._free.get()
        try:
            if self._over.is_set():
                raise OutOfTime
            news = self._news[self._known.get(copy, 0) :]
            self._known[copy] = self._known.get(copy, 0) + len(news)
            copy.send(_Job(self._worlds.index(make), path, until_failure, news))
            answer: _Answer = copy.recv()
            self._news += answer.news
        except (EOFError, OSError) as error:
            if self._over.is_set():
                raise OutOfTime from error
            hint = "If the system ran out of memory, lower --jobs."
            raise BrokenOff("worker-died", "a process that makes runs of the nodes has ended", hint) from error
        finally:
            self._free.put(copy)
        if isinstance(answer.run, _Raised):
            raise answer.run.error()
        return answer.run

    def end(self) -> None:
        """As RunsUnderWay.end."""
        self._over.set()
        for copy in self._copies:
            with suppress(OSError), socket.socket(fileno=os.dup(copy.fileno())) as end:
                end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the copies, once `end` was called and no other thread waits for a run."""
        until = monotonic() + _END_S
        for copy, process in self._copies.items():
            try:
                while copy.poll(max(0.0, until - monotonic())):
                    if isinstance(words := copy.recv(), _LastWords):  # not a run that nobody waited for
                        self.restless += words.restless
                        if self._copied is not None:
                            self._copied.hear(words.kept)
            except (EOFError, OSError):
                pass  # it has ended
            else:
                os.kill(process, signal.SIGKILL)
            copy.close()
            os.waitpid(process, 0)
        self._copies.clear()

    def _serve(self, connection: Connection, number: int, jobs: int) -> None:
        """Make runs, in a copy."""
        os.setsid()  # Ctrl-C is the parent's to handle
        for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if callable(signal.getsignal(each)):
                signal.signal(each, signal.SIG_DFL)
        processors = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, processors[number::jobs] or [processors[number % len(processors)]])
        if self._copied is not None:
            self._copied.begin_copy(number)
        under_way, received = RunsUnderWay(), SimpleQueue[_Job | None]()

        def receive() -> None:
            with suppress(EOFError, OSError):
                while True:
                    received.put(connection.recv())
            received.put(None)
            under_way.end()

        Thread(target=receive, daemon=True).start()
        while (job := received.get()) is not None:
            run: NodeRun | _Raised
            if self._copied is not None:
                self._copied.hear_news(job.news)
            try:
                make = self._worlds[job.world]
                run = under_way.execute(make, job.path, self._rules, until_failure=job.until_failure)
            except Exception as error:
                run = _Raised(type(error), error.args, error.__dict__)
            connection.send(_Answer(run, self._copied.news() if self._copied is not None else ()))
        connection.send(_LastWords(under_way.restless, self._copied.end_copy() if self._copied is not None else None))
