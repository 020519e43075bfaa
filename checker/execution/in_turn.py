"""Runs of the check in a process that stays, and is given one folder after another.

Unlike a run "from the beginning" it may keep something from one folder to the next. So each folder has a name that no
folder before it had, its real name: what is remembered by path, and what is written late to a path, meets nothing of
another state. Whatever goes wrong ends the process, and verdicts are confirmed (checker/verdicts/copies.py).
"""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from crashcheck.checker.execution.capture import Capture, drain
from crashcheck.checker.execution.process import Abandoned, Ended, Limits, Runner, RunOrder
from crashcheck.checker.execution.time_limit import RunClock
from crashcheck.runtime.supervise import end_all, own_children

_EXIT_FAILED = 1 << 8  # a wait status


class CheckCall(NamedTuple):
    """What a run of the check is about: a folder, and what else it is given, as how many operations had ended."""

    pool: str
    more: tuple[str, ...] = ()


class Answer(NamedTuple):
    """How a process that stays judges a folder."""

    passed: bool
    ends: bool = False  # whether it must not be given another folder
    refused: str = ""  # why no process should be given several folders


class StayingProcess(ABC):
    """A process that is given one folder after another. It is a child of ours."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.adopted: set[int] = set()  # what it has started and left to us

    @property
    @abstractmethod
    def answers_fd(self) -> int:
        """Where its answers arrive."""

    def streams(self, wanted: Mapping[int, Capture]) -> dict[int, Capture]:
        """What it writes about the next folder, by the descriptor that it is read from."""
        return dict(wanted)

    @abstractmethod
    def ask(self, called: CheckCall) -> None:
        """Give it a folder. One that has ended takes no notice: its pidfd shows that."""

    @abstractmethod
    def answer(self) -> Answer | None:
        """Its answer about that, None if that is not there yet. Raises EOFError if there will be none."""

    def close(self) -> None:
        os.close(self.pidfd)


class InTurnRunner(Runner):
    """Runs checks from the beginning as `Runner` does, and those that may be run in turn in a process that stays."""

    def __init__(self, limits: Limits, folder: Path) -> None:
        super().__init__(limits, folder)
        self._staying: StayingProcess | None = None
        self._runs = 0

    def wait_below(self, root: Path) -> None:
        """Nothing: this takes the place of waiting in crashcheck_ready()."""

    def close(self) -> None:
        self._end_staying()
        super().close()

    @abstractmethod
    def _called(self, argv: Sequence[str]) -> CheckCall | None:
        """What a run is about, by its words; None if it cannot be run in turn."""

    @abstractmethod
    def _begin_staying(self, order: RunOrder) -> StayingProcess:
        """Start a process that stays. Raises CheckNotStarted."""

    def _in_turn(self, order: RunOrder, abandon_fd: int | None) -> Ended | None:
        called = self._called(order.argv)
        # Without a list of children, what the process starts could not be distinguished from what others leave.
        if called is None or own_children() is None:
            return None
        answer: Answer | None = None
        started = time.monotonic()
        with self._renamed(called.pool) as pool:
            process = self._stay(order)
            streams = process.streams(order.streams)
            process.ask(called._replace(pool=pool))
            reason = "ready"
            clock = RunClock(process.pid, order.limit, started, self._spared - process.adopted)
            try:
                while reason == "ready" and answer is None:
                    reason = self._wait(process.pidfd, abandon_fd, streams, clock, process.answers_fd)
                    answer = process.answer() if reason in ("ready", "ended") else None
            except EOFError:
                reason = "ended"
            for fd, capture in streams.items():
                drain(fd, capture)
            status = self._status(answer, reason)
        if reason == "abandoned":
            raise Abandoned
        output = order.streams[self._read]
        here, known_as = (os.fsencode(os.path.dirname(path)) for path in (pool, called.pool))
        shown = output.bytes().replace(here, known_as)
        return Ended(
            status,
            reason == "time",
            "output" if reason == "output" else "",
            shown,
            output.truncated,
            time.monotonic() - started,
            output.digest(),
            total_bytes=output.total,
            forked=True,
            refused=answer.refused if answer is not None else "",
        )

    def _status(self, answer: Answer | None, reason: str) -> int:
        """The wait status of a run. Ends the process, unless it has answered and may be given another folder."""
        ended = 0
        if answer is None or answer.ends or reason == "ended":
            ended = self._end_staying()
        else:
            self._adopt()
        if answer is not None and answer.passed:
            return ended if reason == "ended" else 0
        return _EXIT_FAILED if answer is not None else ended or _EXIT_FAILED  # one that ends by itself has not passed

    @contextmanager
    def _renamed(self, pool: str) -> Iterator[str]:
        """A folder under a name that no run before has had, and that is as long."""
        self._runs += 1
        folder, name = os.path.split(pool)
        parent, own = os.path.split(folder)
        other = f"{parent}/{self._runs % 10 ** len(own):0{len(own)}d}"
        os.rename(folder, other)
        try:
            yield f"{other}/{name}"
        finally:
            os.rename(other, folder)

    def _stay(self, order: RunOrder) -> StayingProcess:
        """The process that stays, made if there is none."""
        if self._staying is not None and self._staying.pid not in self._spared:
            self._end_staying()  # it has been reaped with what another run had left
        if self._staying is None:
            self._staying = self._begin_staying(order)
            self._spared.add(self._staying.pid)
        return self._staying

    def _adopt(self) -> None:
        """Spare what the process has started and left to us, for as long as it stays."""
        assert self._staying is not None
        others = set(own_children() or ()) - self._spared
        self._staying.adopted |= others
        self._spared |= others

    def _end_staying(self) -> int:
        """End the process that stays, and all that it has started; its wait status, 0 if there is none."""
        process, self._staying = self._staying, None
        if process is None:
            return 0
        process.close()
        self._spared -= process.adopted
        if process.pid not in self._spared:
            return 0
        self._spared.discard(process.pid)
        return end_all(process.pid, self._spared)[0]
