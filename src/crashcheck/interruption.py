"""Ends work early: SIGTERM and SIGHUP act as Ctrl-C, and long computations call a function that may raise."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

KeepOn = Callable[[], None]  # called now and then by what takes long; what it raises ends that
_SWITCH_S = 0.0005  # how long a thread in the background may hold the interpreter that another waits for


def always() -> None:
    """Keep on, however long it takes."""


def both(one: KeepOn, other: KeepOn) -> KeepOn:
    """Keep on while both do."""

    def keep_on() -> None:
        one()
        other()

    return keep_on


class _Ended(Exception):
    """Nobody waits for it any more."""


class Background:
    """Work in a thread, which ends with the process at the latest."""

    def __init__(self, work: Callable[[KeepOn], None]) -> None:
        """`work` gets what it must call now and then."""
        self._work = work
        self._unwanted = False
        self._error: BaseException | None = None
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for its end, and raise what ended it."""
        self._thread.join()
        if self._error is not None:
            raise self._error

    def end(self) -> None:
        """Let it end at the next opportunity."""
        self._unwanted = True

    def _run(self) -> None:
        try:
            self._work(self._keep_on)
        except BaseException as error:
            self._error = error
        finally:
            sys.setswitchinterval(self._switch_s)

    def _keep_on(self) -> None:
        if self._unwanted:
            raise _Ended


@contextmanager
def interruptible() -> Iterator[None]:
    """KeyboardInterrupt on SIGTERM and SIGHUP too, where handlers may be set. What is ignored (`nohup`) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = {number: signal.getsignal(number) for number in numbers}
    ours = [number for number in numbers if before[number] is not signal.SIG_IGN]
    for number in ours:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, before[number])
