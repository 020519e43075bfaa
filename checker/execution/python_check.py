"""Checks that are functions of a test: workers are copies of the test's own process and call them.

A run "from the beginning" is a copy of the worker, made for this run alone, that calls the check and ends. Most states
are given to a process that stays and checks one after another (`forks`), which saves the 6 ms of CPU that a copy of a
test's process takes. What a check leaves behind in such a process ends it, and verdicts are confirmed as those of
checks that wait in crashcheck_ready() (checker/oracles/copies.py).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

from crashcheck.checker.execution.capture import drain
from crashcheck.checker.execution.process import Abandoned, CheckNotStarted, Ended, Limits, Runner, RunOrder
from crashcheck.checker.execution.waiting import Offer
from crashcheck.checker.execution.worker import serve
from crashcheck.checker.execution.worker_start import Channel, Started
from crashcheck.runtime.copied_process import end_with_parent, fork, use_streams
from crashcheck.runtime.supervise import end_all

WORDS = ("{pool}", "{acked}", "{stdout}")  # of the command that is written where a function is called
_FAILED, _LEFT_SOMETHING = 1, 2  # bits of what the process that stays answers
_EXIT_FAILED = 1 << 8  # a wait status


class CheckCall(NamedTuple):
    """What a run of the check is about: a folder, how many operations had ended, and a file of what was printed."""

    pool: str
    acked: int
    printed: str


class Entered(BaseException):
    """In a copy of a worker: it leaves the worker's code, and what catches this becomes the run of the check."""

    def __init__(self, called: CheckCall) -> None:
        super().__init__(called.pool)
        self.called = called


Judge = Callable[[CheckCall], str]  # why a state fails, empty if it passes


class ForkServer(Channel):
    """A copy of this process, of which workers are copies. The test continues in this process."""

    def __init__(self, judge: Judge | None) -> None:
        """`judge`: calls the check. None: a run of the check leaves here as `Entered`, in a process of its own."""
        super().__init__()
        self._pid = fork()
        if self._pid:
            self.theirs.close()
            return
        try:
            self._channel.close()
            os.setsid()  # Ctrl-C is for the test
            serve(self.theirs.detach(), partial(PythonRunner, judge))
        except Entered:
            raise
        except BaseException:
            traceback.print_exc()
        os._exit(0)

    def start(self, descriptor: int) -> Started:
        """Start a worker. Raises OSError."""
        pid = self.copy(descriptor)
        if not pid:
            raise OSError("the test's process cannot be copied (clone with CLONE_PARENT)")
        return Started(pid)

    def close(self) -> None:
        super().close()
        os.waitpid(self._pid, 0)


class PythonRunner(Runner):
    """Calls a function where `Runner` starts a command. The words of that command are WORDS."""

    def __init__(self, judge: Judge | None, limits: Limits, folder: Path) -> None:
        super().__init__(limits, folder)
        self._judge = judge
        self._staying: _Staying | None = None
        self._runs = 0

    def wait_below(self, root: Path) -> None:
        """Nothing: there is no command that could wait in crashcheck_ready()."""

    def close(self) -> None:
        self._end_staying()
        super().close()

    def _start(self, program: str, argv: Sequence[str], env: Mapping[str, str], offer: Offer | None) -> int:
        called = _called(argv)
        pid = self._fork()
        if pid:
            return pid
        os.chdir(called.pool)
        if self._judge is None:
            raise Entered(called)
        text = self._judge(called)
        _print(text)
        os._exit(1 if text else 0)

    def _fork(self) -> int:
        """Fork a process with a group of its own, whose outputs are those of a check; it ends when this one does."""
        try:
            pid = fork()
        except OSError as error:
            raise CheckNotStarted(f"the test's process cannot be copied: {error.strerror}") from error
        with contextlib.suppress(OSError):  # both do it, whoever is first
            os.setpgid(pid, 0)
        if pid == 0:
            end_with_parent()
            use_streams(self._write, self._write_errors if self.limits.apart else self._write)
        return pid

    def _in_turn(self, order: RunOrder, abandon_fd: int | None) -> Ended | None:
        """A run in the process that stays, under a path that no other run has had: the check may remember paths."""
        if self._judge is None:
            return None
        called, streams = _called(order.argv), order.streams
        pool = Path(called.pool)
        self._runs += 1
        link = pool.parent.with_name(f"{self._runs:012d}")
        link.symlink_to(pool.parent.name)
        started = time.monotonic()
        try:
            process = self._stay()
            process.ask(called._replace(pool=f"{link}/{pool.name}"))
            reason = self._wait(process.pidfd, abandon_fd, streams, started + order.limit_s, process.requests.fileno())
        finally:
            link.unlink()
        answer = process.answer() if reason == "ready" else None
        status = _EXIT_FAILED
        if answer is None or answer & _LEFT_SOMETHING:
            status = self._end_staying() or _EXIT_FAILED  # one that ends by itself has not passed
        if answer is not None:
            status = _EXIT_FAILED if answer & _FAILED else 0
        seconds = time.monotonic() - started
        for fd, capture in streams.items():
            drain(fd, capture)
        if reason == "abandoned":
            raise Abandoned
        output = streams[self._read]
        shown = output.bytes().replace(os.fsencode(link), os.fsencode(pool.parent))
        limit = "output" if reason == "output" else ""
        return Ended(
            *(status, reason == "time", limit, shown, output.truncated, seconds, output.digest()),
            total_bytes=output.total,
            forked=True,
        )

    def _stay(self) -> _Staying:
        """The process that stays, made if there is none."""
        if self._staying is not None and self._staying.pid not in self._spared:
            self._staying.close()  # it has been reaped with what another run had left
            self._staying = None
        if self._staying is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                pid = self._fork()
                if pid == 0:
                    ours.close()
                    assert self._judge is not None
                    _answer_in_turn(theirs, self._judge)
            self._staying = _Staying(pid, os.pidfd_open(pid), ours)
            self._spared.add(pid)
        return self._staying

    def _end_staying(self) -> int:
        """End the process that stays, and all that it has started; its wait status, 0 if there is none."""
        process, self._staying = self._staying, None
        if process is None:
            return 0
        process.close()
        if process.pid not in self._spared:
            return 0
        self._spared.discard(process.pid)
        return end_all(process.pid, self._spared)[0]


class _Staying(NamedTuple):
    """A process that checks one state after another."""

    pid: int
    pidfd: int
    requests: socket.socket

    def ask(self, called: CheckCall) -> None:
        with contextlib.suppress(OSError):  # it has ended: its pidfd shows that
            self.requests.send(pickle.dumps(tuple(called)))

    def answer(self) -> int | None:
        """Bits of how the check ended; None if the process ended with it."""
        answer = self.requests.recv(1)
        return answer[0] if answer else None

    def close(self) -> None:
        self.requests.close()
        os.close(self.pidfd)


def _answer_in_turn(requests: socket.socket, judge: Judge) -> NoReturn:
    """In the process that stays: call the check for each folder that arrives."""
    before = _held()
    while order := requests.recv(1 << 16):
        called = CheckCall(*pickle.loads(order))
        os.chdir(called.pool)
        text = judge(called)
        _print(text)
        requests.send(bytes([_FAILED * bool(text) | _LEFT_SOMETHING * (_held() != before)]))
    os._exit(0)


def _print(text: str) -> None:
    """Print why a state fails, behind what the check itself has printed."""
    sys.stderr.flush()
    print(text, end="")
    sys.stdout.flush()


def _held() -> tuple[int, int, str]:
    """What a check may leave: open files, threads, child processes."""
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        children = file.read()
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")), children


def _called(argv: Sequence[str]) -> CheckCall:
    pool, acked, printed = argv
    return CheckCall(pool, int(acked), printed)
