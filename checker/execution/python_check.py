"""Checks that are functions of a test: workers are copies of the test's own process and call them.

A run "from the beginning" is a copy of the worker, made for this run alone, that calls the check and ends. Most states
are given to a process that stays and checks one after another (`forks`), which saves the 6 ms of CPU that a copy of a
test's process takes. What a check leaves behind in such a process ends it, and verdicts are confirmed as those of
checks that wait in crashcheck_ready() (checker/verdicts/copies.py).
"""

from __future__ import annotations

import contextlib
import os
import pickle
import socket
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NoReturn

from crashcheck.checker.execution.in_turn import Answer, CheckCall, InTurnRunner, StayingProcess
from crashcheck.checker.execution.process import CheckNotStarted, Limits, RunOrder
from crashcheck.checker.execution.waiting import Offer
from crashcheck.checker.execution.worker import main
from crashcheck.checker.execution.worker_start import Started
from crashcheck.runtime import zygote
from crashcheck.runtime.copied_process import end_with_parent, fork, use_streams

WORDS = ("{pool}", "{acked}", "{stdout}")  # of the command that is written where a function is called
_FAILED, _LEFT_SOMETHING = 1, 2  # bits of what the process that stays answers


class Entered(BaseException):
    """In a copy of a worker: it leaves the worker's code, and what catches this becomes the run of the check."""

    def __init__(self, called: CheckCall) -> None:
        super().__init__(called.pool)
        self.called = called


Judge = Callable[[CheckCall], str]  # why a state fails, empty if it passes


class ForkServer(zygote.Channel):
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
            zygote.serve(self.theirs.detach(), {zygote.WORKER: partial(main, runner_of=partial(PythonRunner, judge))})
        except Entered:
            raise
        except BaseException:
            traceback.print_exc()
        os._exit(0)

    def start(self, descriptor: int) -> Started:
        """Start a worker. Raises OSError."""
        pid = self.copy(zygote.WORKER, descriptor)
        if not pid:
            raise OSError("the test's process cannot be copied (clone with CLONE_PARENT)")
        return Started(pid)

    def close(self) -> None:
        super().close()
        os.waitpid(self._pid, 0)


class PythonRunner(InTurnRunner):
    """Calls a function where `Runner` starts a command. The words of that command are WORDS."""

    def __init__(self, judge: Judge | None, limits: Limits, folder: Path) -> None:
        super().__init__(limits, folder)
        self._judge = judge

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

    def _called(self, argv: Sequence[str]) -> CheckCall | None:
        return None if self._judge is None else _called(argv)

    def _begin_staying(self, order: RunOrder) -> StayingProcess:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            pid = self._fork()
            if pid == 0:
                ours.close()
                assert self._judge is not None
                _answer_in_turn(theirs, self._judge)
        return _Staying(pid, ours)


class _Staying(StayingProcess):
    """A copy of the test's process that checks one state after another."""

    def __init__(self, pid: int, requests: socket.socket) -> None:
        super().__init__(pid)
        requests.setblocking(False)
        self._requests = requests

    @property
    def answers_fd(self) -> int:
        return self._requests.fileno()

    def ask(self, called: CheckCall) -> None:
        with contextlib.suppress(OSError):
            self._requests.send(pickle.dumps(tuple(called)))

    def answer(self) -> Answer | None:
        try:
            bits = self._requests.recv(1)
        except BlockingIOError:
            return None
        if not bits:
            raise EOFError
        return Answer(not bits[0] & _FAILED, ends=bool(bits[0] & _LEFT_SOMETHING))

    def close(self) -> None:
        super().close()
        self._requests.close()


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
    pool, *more = argv
    return CheckCall(pool, tuple(more))
