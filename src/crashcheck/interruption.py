"""How work ends early: SIGTERM and SIGHUP as Ctrl-C does, and long computations when what they call then raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

KeepOn = Callable[[], None]  # called now and then by what takes long; what it raises ends that


def always() -> None:
    """Keep on, however long it takes."""


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
