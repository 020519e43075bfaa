"""The error of a test that a crash state fails, and how exceptions are shown."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from types import TracebackType

_OURS = Path(__file__).resolve().parent
_INSTALLED = re.compile(r"/(lib|lib64)/python3(\.\d+)?/|/(site|dist)-packages/")
_SHOWN_LINES = 20  # of an exception


class CrashFound(AssertionError):
    """A crash leaves files that the test does not accept. The text: what, when, in which state, how to see it again."""

    __module__ = "crashcheck.testing"  # as users import it

    def __init__(self, sentence: str, details: str) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.details = details
        self.cause = ""

    def caused_by(self, error: BaseException | None) -> None:
        """Show how the check, or the test, failed in the state."""
        self.cause = "".join(f"  | {line}\n" for line in shown(error).splitlines()) if error is not None else ""

    def __str__(self) -> str:
        return f"{self.sentence}\n{self.cause}{self.details}"


def shown(error: BaseException) -> str:
    """An exception, and where it was raised outside of crashcheck: what a check that fails prints."""
    lines = "".join(traceback.format_exception_only(error)).strip().splitlines()
    if len(lines) > _SHOWN_LINES:
        lines = [*lines[:_SHOWN_LINES], "..."]
    place = _place(error.__traceback__)
    return "\n".join([*lines, *([place] if place else [])])


def _place(raised: TracebackType | None) -> str:
    """The innermost function that is neither of Python nor of an installed package."""
    inner = ""
    while raised is not None:
        code = raised.tb_frame.f_code
        path = Path(code.co_filename)
        if path.parent != _OURS and not _INSTALLED.search(code.co_filename) and path.suffix == ".py":
            inner = f"in {code.co_name} ({path.name}:{raised.tb_lineno})"
        raised = raised.tb_next
    return inner
