"""What the fixture `crashes` is: a function is recorded, and its crash states are given to a check or to a loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import TYPE_CHECKING, Any

from crashcheck.errors import CrashcheckError
from crashcheck.testing.boundary import end_run, go_to, here, resume, running_loop
from crashcheck.testing.failure import shown
from crashcheck.testing.recorded_call import Call, RecordedCall, Start, record_call

if TYPE_CHECKING:
    from crashcheck.checker.execution.in_turn import CheckCall
    from crashcheck.checker.execution.python_check import Judge
    from crashcheck.testing.exploration import Found
    from crashcheck.testing.state import State

Check = Callable[["State"], object]
CHECK_S = 10.0  # how long a check may take
STATES = 2_000
SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Settings:
    """What the options of a test run ask for."""

    model: str = "ext4"
    states: int = STATES
    seconds: float = SECONDS  # of the search, from the end of the recording
    token: str = ""  # of the only state that is wanted
    kept: Callable[[], Path] = lambda: Path(tempfile.mkdtemp(prefix="crashcheck-"))  # a new folder that stays
    again: Callable[[str], str] = lambda token: f"CRASH_STATE={token}, and the same test"
    remark: Callable[[str], None] = lambda text: None  # what to print at the end of the test run
    met: Callable[[], None] = lambda: None  # the state of the token was found
    jobs: int = 0  # 0: one for each core


class Crashes:
    """See the module `crashcheck.testing`. `settings` is called at each use: an object may serve several tests."""

    def __init__(self, settings: Callable[[], Settings] = Settings) -> None:
        self._settings = settings

    def check(
        self,
        function: Callable[..., Any],
        /,
        *args: Any,
        check: Check,
        start: Start = None,
        timeout_s: float = CHECK_S,
        **kwargs: Any,
    ) -> None:
        """Call `function(*args, **kwargs)`, and `check(state)` for states that a crash can leave.

        A state fails if the check raises, or returns something false that is not None, or does not end in `timeout_s`.
        `start`: files that are there before, by their names, or a folder to copy. Raises CrashFound for the smallest
        state that fails, what the function raises, and CrashcheckError.
        """
        __tracebackhide__ = True
        settings = self._settings()
        try:
            with _explored(settings, Call(function, args, kwargs), start) as explored:
                chosen = explored.chosen() if settings.token else None
                found = None if settings.token else explored.by(partial(_judge, check), timeout_s)
        except CrashcheckError as error:
            raise error.with_traceback(None) from None  # our own frames explain nothing
        if chosen is not None:
            _call_here(check, chosen)
        if found is not None:
            _fail(found, check)

    def __call__(
        self, function: Callable[..., Any], /, *args: Any, start: Start = None, **kwargs: Any
    ) -> Iterator[State]:
        """For a loop: the rest of the test runs with each state, in a process of its own. See `check`.

        In this process the loop gets one state: the smallest that fails, else what the function left.
        """
        return _states(self._settings(), Call(function, args, kwargs), start)


def _states(settings: Settings, call: Call, start: Start) -> Iterator[State]:
    from crashcheck.checker.execution.python_check import Entered

    if not here.depth:
        raise CrashcheckError(
            "crashes-loop",
            "`for state in crashes(...)` works in a test function that pytest calls, and in crashcheck.testing's "
            "CrashTestCase of unittest: the rest of the test is run with each state.",
            "Elsewhere give a check: crashes.check(function, ..., check=...).",
        )
    with _explored(settings, call, start) as explored:
        if settings.token:
            state = explored.chosen()
            if state is not None:
                yield _entered(state)
            return
        loop = running_loop()
        try:
            found = explored.by(None, CHECK_S)
        except Entered as entered:  # in a process of its own
            here.is_run = True
            resume(loop)
            yield explored.state_of(entered.called)
            return
        if found is None:
            final = explored.final()
            go_to(final)
            yield final
            return
    if not found.fails_again:
        raise found.error
    here.failure = found.error
    yield _entered(found.state)


def _entered(state: State) -> State:
    """A copy of a state that is kept, as the working folder: the test may change it."""
    copy = _copied(state)
    go_to(copy)
    return copy


def _copied(state: State) -> State:
    from crashcheck.testing.state import State

    copy = state.with_name("checked")
    shutil.copytree(state, copy, symlinks=True)
    return State.of(copy, state.done)


@contextlib.contextmanager
def _explored(settings: Settings, call: Call, start: Start) -> Iterator[_Explored]:
    """A recorded call, until its states are not needed any more."""
    __tracebackhide__ = True
    if here.is_run:
        end_run(None)  # an earlier loop of the test gave this process its state, and that has passed
    if threading.current_thread() is not threading.main_thread():
        raise CrashcheckError(
            "crashes-thread",
            f"crashes was used in the thread {threading.current_thread().name!r}.",
            "Use it in the main thread: functions and checks run in copies of the process, which have no other.",
        )
    work = Path(tempfile.mkdtemp(prefix="crashcheck-test-"))
    owner = os.getpid()
    try:
        with _untraced():
            recorded = record_call(call, start, work)
        yield _Explored(settings, recorded, work)
    finally:
        if os.getpid() == owner:
            shutil.rmtree(work, ignore_errors=True)


@contextlib.contextmanager
def _untraced() -> Iterator[None]:
    """Without what follows each line of a test in Python, as Hypothesis does: a search would take 4 times as long.

    One that is written in C, as coverage's, would miss the rest of the function that is traced.
    """
    tracer = sys.gettrace()
    stopped = isinstance(tracer, FunctionType | MethodType)
    if stopped:
        sys.settrace(None)
    try:
        yield
    finally:
        if stopped:
            sys.settrace(tracer)


class _Explored:
    """A recorded call, whose states may be searched."""

    def __init__(self, settings: Settings, call: RecordedCall, work: Path) -> None:
        self._settings = settings
        self._call = call
        self._work = work

    @_untraced()
    def by(self, judge: Callable[[State], str] | None, timeout_s: float) -> Found | None:
        """Search; None if nothing fails. Raises Entered in a process of its own, without a `judge`."""
        from crashcheck.checker.execution.python_check import ForkServer
        from crashcheck.testing import exploration

        settings = self._settings
        config = exploration.config_of(settings.model, timeout_s, settings.states, settings.seconds)
        of_called: Judge | None = None if judge is None else lambda called: judge(self.state_of(called))
        with contextlib.closing(ForkServer(of_called)) as server:
            outlook = exploration.explore(config, self._call, server, settings.kept, settings.again, settings.jobs)
        if outlook.remark:
            settings.remark(outlook.remark)
        return outlook.found

    def state_of(self, called: CheckCall) -> State:
        """What a run of the check is given."""
        from crashcheck.testing.exploration import called_state

        return called_state(self._call, called)

    def chosen(self) -> State | None:
        """The only state that is wanted; None if it is one of another call."""
        from crashcheck.checker.token import Token
        from crashcheck.testing.exploration import chosen_state

        state = chosen_state(self._call, Token.parse(self._settings.token), self._settings.kept() / "state")
        if state is not None:
            self._settings.met()
        return state

    def final(self) -> State:
        from crashcheck.testing.exploration import final_state

        return final_state(self._call, self._work / "final")


def _judge(check: Check, state: State) -> str:
    """Why a state fails, empty if it passes."""
    try:
        _must_accept(check, state)
    except BaseException as error:
        return shown(error) + "\n"
    return ""


def _must_accept(check: Check, state: State) -> None:
    """Call the check. Raises what it raises, and AssertionError if it returns something false that is not None."""
    result = check(state)
    if inspect.iscoroutine(result):
        if running_loop() is None:
            result = asyncio.run(result)
        else:  # the test is a coroutine, too
            with ThreadPoolExecutor(1) as thread:
                result = thread.submit(asyncio.run, result).result()
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise TypeError("the check is a generator function: nothing of it has run")
    if result is not None and not result:
        raise AssertionError(f"the check returned {result!r}")


def _call_here(check: Check, state: State) -> None:
    """Call the check in this process, on a copy of a state. Raises what `_must_accept` raises."""
    before, copy = Path.cwd(), _copied(state)
    os.chdir(copy)
    try:
        _must_accept(check, copy)
    finally:
        os.chdir(before)


def _fail(found: Found, check: Check) -> None:
    __tracebackhide__ = True
    if found.fails_again:
        try:
            _call_here(check, found.state)
        except Exception as error:
            found.error.caused_by(error)
            raise found.error.with_traceback(error.__traceback__) from None
    raise found.error
