"""Makes standard input, output and error usable, even if the caller closed them or chose a small encoding."""

from __future__ import annotations

import io
import os
import sys

from crashcheck.errors import CrashcheckError


def make_usable() -> None:
    """Open what is closed, and let characters that an encoding lacks be escaped instead of raising an error.

    A closed descriptor would be given to the next file that is opened, and a program's output written into that. In
    place of a closed output every write fails, as it would have; in place of closed errors it is lost.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            opened = os.open(os.devnull, mode)
            if opened != number:  # a lower one is closed, too
                os.dup2(opened, number)
                os.close(opened)
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False, encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False, encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def unwritable(error: OSError, instead: str = "") -> CrashcheckError:
    """What to report where standard output took no more; `instead`: what it would have shown."""
    return CrashcheckError(
        "output-unwritable",
        f"the output cannot be written: {error.strerror or error}.",
        instead or "Give it more room.",
    )


def give_up_output() -> None:
    """Drop what standard output still holds: the interpreter writes that at its end, and would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
