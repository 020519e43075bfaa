"""Checks whose command holds `{folders}` or `{states}`: one process is given one folder after another, in lines.

A run from the beginning gives a process of its own a single folder (crashcheck.one_folder, where the lines are
described). After each answer nothing of the folder may still be open: the files would change under the check, and the
next state under what the check writes late.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from crashcheck import one_folder
from crashcheck.checker.execution.capture import Capture, drain
from crashcheck.checker.execution.in_turn import Answer, CheckCall, InTurnRunner, StayingProcess
from crashcheck.checker.execution.process import RunOrder, limited, spawn


class FoldersRunner(InTurnRunner):
    """Gives a check one folder after another. A run from the beginning has the words of crashcheck.one_folder."""

    def _called(self, argv: Sequence[str]) -> CheckCall | None:
        (pool, *more), _ = one_folder.parts_of(argv)
        return None if {"\t", "\n"} & set("".join((pool, *more))) else CheckCall(pool, tuple(more))

    def _begin_staying(self, order: RunOrder) -> StayingProcess:
        _, words = one_folder.parts_of(order.argv)
        given, give = os.pipe2(os.O_CLOEXEC)
        read, write = os.pipe2(os.O_CLOEXEC)
        read_errors, write_errors = os.pipe2(os.O_CLOEXEC)
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((given, write, write_errors))]
        try:
            pid = limited(self.limits.of_resources(), partial(spawn, words[0], words, order.env, actions))
        except BaseException:
            for fd in (give, read, read_errors, write_errors):
                os.close(fd)
            raise
        finally:
            for fd in (given, write):
                os.close(fd)
        return _GivenFolders(pid, give, read, (read_errors, write_errors), self._read)


class _GivenFolders(StayingProcess):
    """A process of the check's program."""

    def __init__(self, pid: int, give: int, read: int, errors: tuple[int, int], output: int) -> None:
        """`give`: where folders are written; `errors`: both ends, so that its standard error has no end.

        `output`: for which descriptor what it prints is captured.
        """
        super().__init__(pid)
        self._give, self._read, self._errors, self._output = give, read, errors, output
        self._folder = ""
        self._answers = one_folder.Answers("")
        self._capture = Capture(0)
        for fd in (read, errors[0]):
            os.set_blocking(fd, False)

    @property
    def answers_fd(self) -> int:
        return self._read

    def streams(self, wanted: Mapping[int, Capture]) -> dict[int, Capture]:
        for fd in (self._read, self._errors[0]):
            drain(fd, Capture(0))  # what was printed after the last answer
        self._capture = wanted[self._output]
        return {self._errors[0]: self._capture}

    def ask(self, called: CheckCall) -> None:
        self._folder = called.pool
        self._answers = one_folder.Answers(called.pool)
        with contextlib.suppress(BrokenPipeError):
            os.write(self._give, one_folder.line_of((called.pool, *called.more)))

    def answer(self) -> Answer | None:
        while data := one_folder.read_available(self._read):
            self._capture.add(self._answers.add(data))
        if not self._answers.given:
            if data == b"":
                self._capture.add(self._answers.end())
                raise EOFError
            return None
        (passed, why), *more = self._answers.given
        self._capture.add(why + b"\n" if why else b"")
        left = self._left_open()
        return Answer(passed and not more, ends=bool(more or left), refused=left)

    def close(self) -> None:
        super().close()
        for fd in (self._give, self._read, *self._errors):
            os.close(fd)

    def _left_open(self) -> str:
        """Which file of the folder the process still uses, or one that it has started; empty if none."""
        parent = f"{os.path.dirname(self._folder)}/"
        try:
            for pid in _descendants(self.pid, *self.adopted):
                for path in _used(pid):
                    if f"{path}/".startswith(parent):
                        what = path.replace(self._folder, "{pool}", 1)
                        return f"the check still uses {what} when it answers: it must close a folder's files before"
        except PermissionError as error:
            return f"it is not known which files the check still uses: {error}"
        return ""


def _descendants(*pids: int) -> Iterator[int]:
    """Processes, and those that they have started."""
    waiting = list(pids)
    while waiting:
        pid = waiting.pop()
        yield pid
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                    waiting += map(int, file.read().split())


def _used(pid: int) -> Iterator[str]:
    """Paths of what a process has open, has mapped, and works in; none of one that has ended."""
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        yield os.readlink(f"/proc/{pid}/cwd")
        for number in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(FileNotFoundError):
                yield os.readlink(f"/proc/{pid}/fd/{number}")
        with open(f"/proc/{pid}/maps", encoding="utf-8", errors="surrogateescape") as file:
            for line in file:
                if "/" in line:
                    yield line[line.index("/") :].rstrip("\n")
