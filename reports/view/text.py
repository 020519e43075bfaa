"""Text from the program under test, made safe to show: bounded, without control codes, one line where one is meant."""

from __future__ import annotations

import re
from collections.abc import Sequence

# CSI, OSC (ended by BEL or ST) and two-character escapes, as terminals understand them (ECMA-48, section 5).
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")
# What would still act on a terminal or reorder what a reader sees: C0, DEL, C1, bidirectional controls
# ("Trojan Source", CVE-2021-42574), line separators, and halves of surrogate pairs (undecodable bytes).
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_SURROGATES = re.compile("[\ud800-\udfff]")

LINE_CHARS = 300
BLOCK_LINES = 40
BLOCK_COLUMNS = 240
_FRAME = re.compile(  # of a stack as Node, Java and Go print it, below the message
    r"\s+at \S|\s+/\S+\.(go|s):\d+( \+0x|$)|goroutine \d+ \[|created by \S|[\w./*()·-]+\((\{?0x.*|\.\.\.)?\)$"
)
_FINALIZER = "Exception ignored in: "


def _picture(match: re.Match[str]) -> str:
    code = ord(match.group())
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else "\ufffd"


def valid(text: str) -> str:
    """`text` with every half of a surrogate pair replaced, so that it can be encoded as UTF-8."""
    return text if text.isascii() else _SURROGATES.sub("\ufffd", text)


def _safe(text: str) -> str:
    return _UNSAFE.sub(_picture, _ESCAPES.sub("", text))


def shorten(text: str, limit: int) -> str:
    """`text`, with its middle left out where it is longer than `limit` characters."""
    if len(text) <= limit:
        return text
    head = (limit - 1) * 2 // 3
    return f"{text[:head]}…{text[len(text) - (limit - 1 - head) :]}"


def line(text: str, limit: int = LINE_CHARS) -> str:
    """One line of at most `limit` characters without control codes; a newline is shown as a symbol."""
    if len(text) > 8 * limit:  # before the patterns run: a line may be megabytes
        text = text[: 4 * limit] + "…" + text[-4 * limit :]
    shown = _safe(text).replace("\t", " ").replace("\n", "\u240a")
    return shorten(shown, limit)


def block(text: str, lines: int = BLOCK_LINES, columns: int = BLOCK_COLUMNS) -> tuple[tuple[str, ...], int]:
    """The lines of a program's output, bounded, and the number of characters left out.

    The first third and the last two thirds are kept: a check usually prints its failure at the end.
    """
    budget = lines * columns * 2
    left_out = 0
    if len(text) > budget:
        left_out = len(text) - budget
        text = f"{text[: budget // 3]}\n… {left_out:,} characters left out …\n{text[left_out + budget // 3 :]}"
    rows = [_safe(row.rstrip("\r")).expandtabs(8) for row in text.split("\n")]
    while rows and not rows[-1].strip():
        rows.pop()
    if len(rows) > lines:
        head = lines // 3
        dropped = rows[head : len(rows) - (lines - head - 1)]
        left_out += sum(len(row) + 1 for row in dropped)
        rows = [*rows[:head], f"… {len(dropped):,} lines left out …", *rows[len(rows) - (lines - head - 1) :]]
    return tuple(shorten(row, columns) for row in rows), left_out


def reason(rows: Sequence[str]) -> str:
    """The first row of a check's output, or the exception below a traceback of Python; "" if it printed nothing."""
    shown = [row for row in rows if row.strip()]
    if shown and shown[0].startswith("Traceback (most recent call last)"):
        shown = [row for row in shown[1:] if not row[0].isspace()] or shown
    return shown[0].strip() if shown else ""


def telling(rows: tuple[str, ...], most: int) -> tuple[str, ...]:
    """The rows of a check's output that give its reason, at most `most`, after one with the number of those left out.

    A check prints its reason at its end; a runtime may print a stack below that, and Python what finalizers raised.
    """
    if len(rows) <= most:
        return rows
    before = next((at for at, row in enumerate(rows) if at and row.startswith(_FINALIZER)), len(rows))
    shown = [row for row in rows[:before] if row.strip() and not _FRAME.match(row)][-most:]
    left_out = len(rows) - len(shown)
    return (f"… {left_out} line{'s' * (left_out != 1)} left out …", *shown)
