"""The symptom of a failed run: what it printed without its numbers, so that equal failures have equal symptoms."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NUMBERS = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F]*\d[0-9a-fA-F]*\b|\d+")
_UNPRINTABLE = re.compile(r"[^ -~]+")
_MOST = 200  # signs of one run
_CHARACTERS = 200  # of a line


def signs(lines: Iterable[str]) -> frozenset[str]:
    """The lines of a run's output, with what varies between runs masked."""
    found: dict[str, None] = {}
    for line in lines:
        sign = masked(line)
        if sign:
            found[sign] = None
            if len(found) == _MOST:
                break
    return frozenset(found)


def differences(actual: Sequence[str], legal: Sequence[Sequence[str]]) -> frozenset[str]:
    """Of an output that is none of the legal ones: in which lines it differs from the one that is most like it."""
    nearest = min((_differing(actual, expected) for expected in legal), key=len, default=[])
    return signs(f"{masked(mine)} instead of {masked(theirs)}" for mine, theirs in nearest)


def masked(line: str) -> str:
    """Without numbers, addresses, bytes that are no text, and how often a word is repeated."""
    words = _NUMBERS.sub("#", _UNPRINTABLE.sub(" ? ", line[:_CHARACTERS])).split()
    return " ".join(word for at, word in enumerate(words) if not at or word != words[at - 1])


def _differing(actual: Sequence[str], expected: Sequence[str]) -> list[tuple[str, str]]:
    longest = max(len(actual), len(expected))
    mine, theirs = ([*lines, *["nothing"] * (longest - len(lines))] for lines in (actual, expected))
    return [(one, other) for one, other in zip(mine, theirs, strict=True) if one != other]
