"""Call the function under test in a recorded child, in a folder of its own."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import os
import pickle
import shutil
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from crashcheck.errors import CrashcheckError
from crashcheck.runtime.agents.sitecustomize import note_submitters
from crashcheck.runtime.in_child import operation, record_function
from crashcheck.runtime.record import Recording
from crashcheck.runtime.validate import check_calls
from crashcheck.testing.state import Done

Start = Mapping[str, str | bytes] | str | os.PathLike[str] | None  # files by their names, a folder to copy, or nothing
_START = "Give files with their content, start={'cfg.json': '{}'}, or a folder that is copied."
FUNCTION_S = 60.0  # how long a function may take


@dataclass(frozen=True, slots=True)
class Call:
    """A function with its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The function's, of a partial that of what it calls."""
        function = self.function
        while isinstance(function, functools.partial):
            function = function.func
        name = getattr(function, "__name__", type(function).__name__)
        return "the function" if name == "<lambda>" else str(name)


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """A function that has returned, and the recording of it."""

    name: str  # of the function
    recording: Recording
    result: object
    why_no_result: str  # it cannot be copied to another process

    def done(self, printed: bytes, acked: int) -> Done:
        """What had been done when so much was printed, and so many operations had ended: the function is one."""
        text = printed.decode("utf-8", "replace")
        return Done(text, True, self.result, self.why_no_result) if acked else Done(text, False)


def record_call(call: Call, start: Start, work: Path) -> RecordedCall:
    """Record a call, in the folder `work`/pool.

    Raises what the function raises, and CrashcheckError: crashes-function, crashes-start, nothing-persistent,
    not-followed, and those of record_function.
    """
    __tracebackhide__ = True
    write_start(start, work / "pool")
    recorded = record_function(lambda: _answer(call), work, FUNCTION_S)
    recording, end = recorded.recording, recorded.recording.end
    if recorded.answer is None:
        how = f"took more than {FUNCTION_S:g} s" if end.timed_out else f"did not return: its process {end.text(None)}"
        locks = " A lock that another thread holds stays locked there." if end.timed_out else ""
        hint = f"It runs in a child of the test's process and has to return.{locks}"
        raise CrashcheckError("crashes-function", f"{call.name} {how}.", hint)
    kind, value, text = pickle.loads(recorded.answer)
    if kind == "refused":
        raise CrashcheckError("crashes-function", value, text)
    if kind == "raised":
        raise _raised(call, value, text)
    try:
        check_calls(recording, call.name, True, recording.pool)
    except CrashcheckError as error:
        hint = "It runs in a folder of its own, its working folder: let it write there, by relative paths."
        raise CrashcheckError(error.slug, error.message.replace(f" in {recording.pool}", ""), hint) from None
    result, why = _loaded(value) if value is not None else (None, text)
    return RecordedCall(call.name, recording, result, why)


def write_start(start: Start, folder: Path) -> None:
    """Make the folder in which the function begins. Raises CrashcheckError(crashes-start)."""
    if isinstance(start, str | os.PathLike):
        if not os.path.isdir(start):
            raise CrashcheckError("crashes-start", f"start is {os.fspath(start)!r}, which is no folder.", _START)
        shutil.copytree(start, folder, symlinks=True)
        return
    if start is not None and not isinstance(start, Mapping):
        raise CrashcheckError("crashes-start", f"start is {start!r}.", _START)
    folder.mkdir(parents=True)
    for name, content in (start or {}).items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not path.name:
            raise CrashcheckError(
                "crashes-start", f"start names {name!r}, which is no file inside the function's folder.", _START
            )
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content.encode() if isinstance(content, str) else content)


def _answer(call: Call) -> bytes:
    """In the child: call the function; a pickled (kind, value, text)."""
    note_submitters()
    try:
        with operation():
            result = call.function(*call.args, **call.kwargs)
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            refusal = _refusal(call, result)
            if refusal:
                return refusal
    except BaseException as error:
        return _pickled_error(error)
    try:
        return pickle.dumps(("returned", pickle.dumps(result), ""))
    except Exception as error:
        return pickle.dumps(("returned", None, f"{type(error).__name__}: {error}"))


def _refusal(call: Call, result: object) -> bytes:
    """Why a result shows that the function did not run; empty if it does not."""
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        what = f"{call.name} returned a generator, of which nothing has run."
        return pickle.dumps(("refused", what, f"Give a function that uses it up: lambda: list({call.name}(...))"))
    return b""


def _pickled_error(error: BaseException) -> bytes:
    within = error.__traceback__.tb_next if error.__traceback__ is not None else None  # without ours
    text = "".join(traceback.format_exception(type(error), error, within))
    with contextlib.suppress(Exception):
        return pickle.dumps(("raised", pickle.dumps(error), text))
    return pickle.dumps(("raised", None, text))


def _raised(call: Call, pickled: bytes | None, text: str) -> BaseException:
    """What the function raised, with where; as an error of ours if it cannot be copied to this process."""
    error, why = _loaded(pickled) if pickled is not None else (None, "")
    if why or not isinstance(error, BaseException):
        return CrashcheckError("crashes-function", f"{call.name} raised an exception:\n{text.rstrip()}")
    error.add_note(f"raised by {call.name} in a child of the test's process:\n{text.rstrip()}")
    return error


def _loaded(pickled: bytes) -> tuple[object, str]:
    try:
        return pickle.loads(pickled), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"
