"""What a check is given: a folder as a crash left it, and what had been done by then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path, PosixPath


@dataclass(frozen=True, slots=True)
class Done:
    """What the world had seen of the function before the crash."""

    printed: str  # the last line may be incomplete
    returned: bool
    result: object = None  # what the function returned, where it had
    why_no_result: str = ""  # it cannot be copied from the function's process

    @property
    def lines(self) -> list[str]:
        """The complete lines that were printed."""
        return self.printed.split("\n")[:-1]

    @property
    def value(self) -> object:
        """What the function returned. Raises ValueError if it had not, or if its result cannot be shown here."""
        if not self.returned:
            raise ValueError("the function had not returned before this crash: ask state.done.returned first")
        if self.why_no_result:
            raise ValueError(f"what the function returned cannot be copied to the check: {self.why_no_result}")
        return self.result


class State(PosixPath):
    """The folder that the function wrote to, as a crash left it: a path, with `done`. It is the working folder, too."""

    done: Done

    @classmethod
    def of(cls, folder: Path | str, done: Done) -> State:
        state = cls(folder)
        state.done = done
        return state

    def with_segments(self, *segments: str) -> Path:
        """What is in the folder is a plain path (Python 3.12 and later)."""
        return Path(*segments)
