"""Record a command in the user's own folder, where it runs as it would without us: same place, terminal and input.

The folder is copied before and after; nothing of ours is ever in it. What the command leaves running continues, under
the recorder, which then records nothing more and ends with it. So does the command itself if we are killed.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from types import FrameType

from crashcheck.config.faults import Fault
from crashcheck.errors import CrashcheckError
from crashcheck.runtime import validate
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.record import WITHOUT_URING, ProcessEnd, Recording, from_os, recorder_options
from crashcheck.runtime.seal import seal
from crashcheck.runtime.sparse import copy_tree

_NUMBER = struct.Struct("i")


@dataclass(frozen=True, slots=True)
class InPlaceCommand:
    """A command of the user, and the folder in which it runs and that is watched."""

    words: Sequence[str]
    folder: Path | None  # None: the working folder, by the name that the user's shell has for it
    faults: Sequence[Fault] = ()
    io_uring: bool = False  # permit it, although it is not followed


def record_in_place(command: InPlaceCommand, work: Path) -> Recording:
    """Run `command`, and fill the folder `work` as `record` does.

    An exit status other than 0 is an error, unless calls were made to fail. Raises CrashcheckError: as `record`.
    """
    library = build_runtime()
    work.mkdir(parents=True, exist_ok=True)
    work = work.resolve()
    named = command.folder or Path.cwd()
    # The folder itself, whatever the command does to its name.
    folder = os.open(command.folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    seen = Path(f"/proc/self/fd/{folder}")
    trace = work / "trace.cct"
    try:
        left_out = copy_tree(seen, work / "first", lenient=True)
        for name in ("stdout", "stderr", "addresses"):
            (work / name).touch()
        options = recorder_options(library, command.faults, io_uring=command.io_uring)
        words = [*options, str(trace), f"/proc/{os.getpid()}/fd/{folder}", *command.words]
        end = _run(library.syscalls, work / "stdout", words, command.folder)
        left_out |= copy_tree(seen, work / "pool", lenient=True)
        with open(f"{trace}.notes", "a", encoding="utf-8", errors="surrogateescape") as notes:
            notes.writelines(f"uncopied\t{path}\n" for path in sorted(left_out))
        seal(trace)
    except OSError as error:
        raise from_os(error, work) from error
    finally:
        os.close(folder)
    recording = Recording(work, end)
    validate.check_permitted(recording, command.words)
    missed = validate.unmet_faults(recording, command.faults)
    hint = WITHOUT_URING if ("io_uring", "refused") in validate.read_notes(trace) else ""
    if end.exit_code != 0 and (missed or not command.faults):
        raise CrashcheckError("workload-failed", f"the workload {end.text(None)}: {' '.join(command.words)}", hint)
    validate.check_faults(recording, missed)
    validate.check_calls(recording, f"`{shlex.join(command.words)}`", True, named)
    return recording


def _run(recorder: Path, copy: Path, words: Sequence[str], folder: Path | None) -> ProcessEnd:
    """The command under the recorder, until the command ends. `copy`: gets what it prints, as the terminal does."""
    answer, report = os.pipe()
    os.set_inheritable(report, True)
    began = time.monotonic()
    with open(answer, "rb", buffering=0) as pipe, _signals_passed_on() as pass_on_to:
        try:
            process = subprocess.Popen(
                [str(recorder), "--in-place", str(report), str(copy), *words],
                cwd=folder,
                env=_environment(folder),
                close_fds=False,  # what the user's shell has opened for the command
            )
        finally:
            os.close(report)
        pass_on_to(_number(pipe))
        status = _number(pipe)
    seconds = time.monotonic() - began
    if status is None:
        code = process.wait()
        return ProcessEnd(code if code >= 0 else None, -code if code < 0 else None, False, seconds)
    process.poll()
    process.returncode = 0 if process.returncode is None else process.returncode  # it may stay, and is not ours then
    killed_by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
    return ProcessEnd(os.WEXITSTATUS(status) if killed_by is None else None, killed_by, False, seconds)


def _number(pipe: FileIO) -> int | None:
    data = pipe.read(_NUMBER.size) or b""
    return int(_NUMBER.unpack(data)[0]) if len(data) == _NUMBER.size else None


def _environment(folder: Path | None) -> Mapping[str, str]:
    """The user's; Python may have added LC_CTYPE to it (PEP 538)."""
    variables = dict(os.environ)
    with open("/proc/self/environ", "rb") as file:
        given = file.read().split(b"\0")
    if variables.get("LC_CTYPE") == "C.UTF-8" and not any(entry.startswith(b"LC_CTYPE=") for entry in given):
        del variables["LC_CTYPE"]
    if folder is not None:
        variables["PWD"] = str(folder)  # as after `cd`
    return variables


@contextlib.contextmanager
def _signals_passed_on() -> Iterator[Callable[[int | None], None]]:
    """The terminal sends Ctrl-C and Ctrl-Z to the command as well: it decides what follows. Others are passed on.

    Gives a function that is called with the command's process number once it runs, or None if it does not.

    We stop when the recorder reports that the command has stopped. If we stopped by ourselves, a shell might let both
    continue before that, and see us stop once more. So this holds before the command runs, which may stop us at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda main: None
        return
    to: int | None = None
    waiting: list[int] = []

    def passes(number: int, frame: FrameType | None) -> None:
        if number not in (signal.SIGTERM, signal.SIGHUP):
            return
        if to is None:
            waiting.append(number)
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(to, number)

    def pass_on_to(main: int | None) -> None:
        nonlocal to
        to = main
        while main is not None and waiting:
            passes(waiting.pop(), None)

    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, passes)
    try:
        yield pass_on_to
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        for each in waiting:
            signal.raise_signal(each)
