"""What a run says on GitHub beside the Markdown of its summary: annotations of a check run, a comment, a review."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from crashcheck.reports.text import line, valid

Conclusion = Literal["success", "neutral", "failure"]

TEXT_MAX = 65_535  # characters of a comment, of a check run's summary
TITLE_MAX = 255  # of an annotation
MESSAGE_MAX = 60_000  # bytes of an annotation's message: GitHub takes 64 KB
SUGGESTED_LINES_MAX = 20


@dataclass(frozen=True, slots=True)
class Annotation:
    """Words at lines of a file of the repository, as a check run takes them."""

    path: str
    start_line: int
    end_line: int
    level: Literal["failure", "warning", "notice"]
    title: str
    message: str

    def payload(self) -> dict[str, str | int]:
        return {
            "path": self.path,
            "start_line": self.start_line,
            "end_line": self.end_line,
            "annotation_level": self.level,
            "title": line(self.title, TITLE_MAX),
            "message": bounded(self.message, MESSAGE_MAX),
        }


@dataclass(frozen=True, slots=True)
class CheckText:
    """The head of a check run. `url`: where more is to be read, or ""."""

    title: str
    summary: str
    conclusion: Conclusion
    url: str = ""


@dataclass(frozen=True, slots=True)
class ReviewComment:
    """A comment of a review at one line of the new side of the diff."""

    path: str
    line: int
    body: str

    def payload(self) -> dict[str, str | int]:
        return {"path": self.path, "line": self.line, "side": "RIGHT", "body": self.body}


def marker(kind: Literal["comment", "review"], config: str) -> str:
    """The hidden first line by which a run finds what it wrote before; each configuration has its own.

    What comes from the program under test cannot imitate it: it never begins a text, and its `<` is escaped.
    """
    key = hashlib.sha256(config.encode("utf-8", "replace")).hexdigest()[:12]
    return f"<!-- crashcheck {kind} {key} -->"


def bounded(text: str, most_bytes: int) -> str:
    """`text` as valid UTF-8 of at most `most_bytes`, its end left out where it is longer."""
    raw = valid(text).encode("utf-8")
    return valid(text) if len(raw) <= most_bytes else raw[: most_bytes - 3].decode("utf-8", "ignore") + "…"


def fenced(rows: Sequence[str], info: str = "") -> str:
    """A code block that no row can end: its fence is longer than any run of backticks within."""
    longest = max((len(run) for row in rows for run in re.findall("`+", row)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}{info}", *rows, fence))
