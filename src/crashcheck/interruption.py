"""How work ends early: SIGTERM as Ctrl-C does, and long computations when what they call now and then raises."""

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
    """KeyboardInterrupt on SIGTERM too, where handlers may be set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
