"""Makes a trace of what strace printed, line by line."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from crashcheck.errors import CrashcheckError
from crashcheck.runtime.strace.content import SYNCS, Content
from crashcheck.runtime.strace.events import Events
from crashcheck.runtime.strace.folder import Folder
from crashcheck.runtime.strace.lines import TRACED, Call, Exit, read_lines
from crashcheck.runtime.strace.lines import descriptor as descriptor_in
from crashcheck.runtime.strace.names import Names
from crashcheck.runtime.strace.processes import Process, Processes
from crashcheck.runtime.strace.trace_writer import TraceWriter
from crashcheck.runtime.trace_format import OutputKind

_MOST_BYTES = 32 << 20  # of one write; a longer one is printed in part


def strace_command(output: Path, command: Sequence[str]) -> list[str]:
    """The command under strace. Raises CrashcheckError strace-missing."""
    program = shutil.which("strace")
    if program is None:
        raise CrashcheckError(
            "strace-missing", "strace is not installed, but [workload] recorder needs it.", "apt-get install strace"
        )
    options = ["-f", "--seccomp-bpf", "-y", "-yy", "-X", "raw", "-xx", "-s", str(_MOST_BYTES)]
    return [program, *options, "-e", f"trace={','.join(TRACED)}", "-o", str(output), "--", *command]


def convert(printed: Path, trace: Path, first: Path, pool: Path, cwd: Path, stdout: Path, stderr: Path) -> None:
    """Write the trace of what strace printed. `first`: a copy of the folder `pool` before.

    Raises OSError, and CrashcheckError record-failed for lines that no strace of a known version prints.
    """
    number = 0

    def counted(lines: Iterable[str]) -> Iterator[str]:
        nonlocal number
        for number, line in enumerate(lines, 1):  # noqa: B007 - named in the error
            yield line

    with open(printed, encoding="utf-8", errors="surrogateescape", newline="\n") as lines:
        copies = any(" copy_file_range(" in line or " sendfile(" in line or " ioctl(" in line for line in lines)
        standard = {os.fsencode(stdout): OutputKind.STDOUT} | {os.fsencode(stderr): OutputKind.STDERR}
        converter = _Converter(first, pool, cwd, standard, copies)
        lines.seek(0)
        try:
            for entry in read_lines(counted(lines)):
                converter.step(entry)
            converter.save(trace)
        except (IndexError, KeyError, ValueError, OverflowError) as error:
            raise CrashcheckError(
                "record-failed",
                f"line {number} of what strace printed cannot be read: {error}",
                'recorder = "syscalls" in [workload] needs no strace.',
            ) from error


class _Converter:
    """The parts that replay calls, and which call is whose."""

    def __init__(self, first: Path, pool: Path, cwd: Path, standard: dict[bytes, OutputKind], copies: bool) -> None:
        threads: dict[int, Process] = {}
        self._out = TraceWriter()
        self._folder = Folder(pool, first, self._out, copies)
        events = Events(self._out, lambda pid: threads[pid].pid, standard)
        self._processes = Processes(self._folder, events, threads, os.fsencode(cwd))
        self._content = Content(self._folder, events, self._processes)
        names = Names(self._folder, events, self._processes)
        self._steps = self._processes.steps() | self._content.steps() | names.steps()

    def save(self, path: Path) -> None:
        self._out.save(path, self._processes.main, len(self._folder.inodes), self._processes.clean)

    def step(self, entry: Call | Exit) -> None:
        self._processes.met(entry.pid)
        if isinstance(entry, Exit):
            self._processes.exit(entry)
            return
        self._processes.within(entry)
        if entry.name in SYNCS:
            self._content.sync(entry)
        elif entry.ended and entry.result >= 0 and entry.name in self._steps:
            for text in entry.arguments:
                if text.startswith("-100<"):
                    self._processes.threads[entry.pid].cwd = descriptor_in(text).path
            self._steps[entry.name](entry)
