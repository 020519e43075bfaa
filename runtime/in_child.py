"""Record a function of this process: it runs in a forked child, which has all that the function needs.

The recorder of system calls attaches to the child before the function begins, and records until the child ends. The
end of the function is marked as that of an operation.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from crashcheck.errors import CrashcheckError
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.copied_process import end_with_parent, fork, use_streams
from crashcheck.runtime.record import ProcessEnd, Recording, from_os, tail
from crashcheck.runtime.seal import seal
from crashcheck.runtime.sparse import copy_tree
from crashcheck.runtime.validate import check_permitted

_PR_SET_NO_NEW_PRIVS, _PR_SET_PTRACER = 38, 0x59616D61
_SYS_SECCOMP, _SECCOMP_SET_MODE_FILTER = 317, 1  # of x86-64
_MARK_CALL, _MARK_ENDS, _MARK_BEGINS = 0x63636D6B, 0, 1  # trace_format.h
_FILTER_ENTRY_BYTES = 8  # struct sock_filter
_NOT_RECORDED = 125  # status of a child whose function was not called
_libc = ctypes.CDLL(None, use_errno=True)


class _FilterProgram(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("entries", ctypes.c_void_p))


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded function. `answer`: what `in_child` returned; None if its process ended before."""

    recording: Recording
    answer: bytes | None


def record_function(function: Callable[[], bytes], work: Path, timeout_s: float) -> Recorded:
    """Call `function` in a child whose working folder is `work`/pool, and fill the folder `work` as `record` does.

    The pool must be there, with the files to start from. The main thread only: the child has no other. Raises
    CrashcheckError: `ptrace-not-permitted`, `record-failed`, `record-disk-full`, and those of build_runtime.
    """
    recorder = build_runtime().syscalls
    work = work.resolve()
    try:
        copy_tree(work / "pool", work / "first")
        (work / "addresses").touch()
        end, answer = _run(recorder, function, work, timeout_s)
        seal(work / "trace.cct")
    except OSError as error:
        raise from_os(error, work) from error
    recording = Recording(work, end)
    check_permitted(recording, ["this process"])
    if end.exit_code == _NOT_RECORDED and answer is None:
        raise CrashcheckError(
            "record-failed", f"the function could not be recorded{tail(recording.stderr)}", "Run the test once more."
        )
    return Recorded(recording, answer)


@contextlib.contextmanager
def operation() -> Iterator[None]:
    """In the function: what is done here is an operation, which is acknowledged at its end, but not by an exception."""
    _libc.prctl(_MARK_CALL, _MARK_BEGINS, 0, 0, 0)
    yield
    sys.stdout.flush()
    _libc.prctl(_MARK_CALL, _MARK_ENDS, 0, 0, 0)


def _run(
    recorder: Path, function: Callable[[], bytes], work: Path, timeout_s: float
) -> tuple[ProcessEnd, bytes | None]:
    answer = os.memfd_create("crashcheck-answer")
    began = time.monotonic()
    with (
        os.fdopen(answer, "r+b", buffering=0) as answered,
        open(work / "stdout", "ab") as out,
        open(work / "stderr", "ab") as err,
    ):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            child = fork()
            if child == 0:
                ours.close()
                _become(function, work / "pool", (out.fileno(), err.fileno()), theirs, answer)
            try:
                words = [str(recorder), "--attach", str(ours.fileno()), str(child)]
                process = subprocess.Popen(
                    [*words, str(work / "trace.cct"), str(work / "pool")],
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=(ours.fileno(),),
                    start_new_session=True,  # Ctrl-C is for us
                )
            except BaseException:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                raise
        timed_out = _wait(process, child, timeout_s)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        end = ProcessEnd(
            exit_code=status if status >= 0 and not timed_out else None,
            signal=-status if status < 0 and not timed_out else None,
            timed_out=timed_out,
            seconds=time.monotonic() - began,
        )
        data = os.pread(answer, os.fstat(answered.fileno()).st_size, 0)
    return end, data[1:] if data else None


def _wait(recorder: subprocess.Popen[bytes], child: int, timeout_s: float) -> bool:
    """Wait for the recorder, which ends after the child; whether the child's time ran out."""
    try:
        recorder.wait(timeout_s)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # not reaped yet: the number is still its own
        recorder.wait()


def _become(
    function: Callable[[], bytes], folder: Path, outputs: tuple[int, int], recorder: socket.socket, answer: int
) -> NoReturn:
    """In the child: call the function once it is recorded, write what it returns, and end."""
    code = _NOT_RECORDED
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        gc.freeze()  # what only the parent needs is never finalised here
        os.setsid()
        end_with_parent()
        os.chdir(folder)
        use_streams(*outputs)
        if _is_followed(recorder):
            signal.pthread_sigmask(signal.SIG_SETMASK, set())
            code = 1
            os.pwrite(answer, b"\0" + function(), 0)
            sys.stdout.flush()
            sys.stderr.flush()
            code = 0
    finally:
        os._exit(code)


def _is_followed(recorder: socket.socket) -> bool:
    """Whether the recorder has attached itself, and sees all calls from now on."""
    _libc.prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1), 0, 0, 0)  # where only ancestors may trace
    recorder.send(b"\0")
    entries = recorder.recv(1 << 16)
    if not entries:
        return False
    reason = _install(entries)
    if reason:
        recorder.send(reason.encode())
        recorder.recv(1)  # its end of the connection is closed when every call stops
    recorder.close()
    return True


def _install(entries: bytes) -> str:
    """Install a seccomp filter; empty, or why that is not permitted."""
    buffer = ctypes.create_string_buffer(entries, len(entries))
    program = _FilterProgram(len(entries) // _FILTER_ENTRY_BYTES, ctypes.addressof(buffer))

    def install() -> bool:
        result: int = _libc.syscall(_SYS_SECCOMP, _SECCOMP_SET_MODE_FILTER, 0, ctypes.byref(program))
        return result == 0

    # without privileges only for programs that can gain none
    if install() or (_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 and install()):
        return ""
    return os.strerror(ctypes.get_errno())
