"""The fingerprint by which GitHub's code scanning knows an alert again after lines have moved."""

from __future__ import annotations

import re

import numpy as np

WINDOW = 100  # UTF-16 code units, blanks left out
BASE = 37
END_OF_FILE = 0xFFFF


def line_hashes(text: str) -> tuple[str, ...]:
    """GitHub's `primaryLocationLineHash` of every line of a file: "a7f2ff13bc495cf2:1".

    The upload action computes it as well and warns of any other value, so it is computed in the same way: a polynomial
    of the 100 characters from the line's start on, modulo 2**64, without spaces and tabs, past the end of the line,
    with a mark and then zeros after the end of the file; after the colon, the ordinal among equal ones. Described by
    https://github.com/github/codeql-action (src/fingerprints.ts).
    """
    kept = re.sub("[ \t]", "", re.sub("\r\n?", "\n", text))
    units = np.frombuffer(kept.encode("utf-16-le", "surrogatepass"), dtype="<u2").astype(np.uint64)
    stream = np.concatenate([units, np.array([END_OF_FILE], np.uint64), np.zeros(WINDOW, np.uint64)])
    starts = np.concatenate([[0], np.flatnonzero(units == ord("\n")) + 1])
    hashes = np.zeros(len(starts), np.uint64)
    for offset in range(WINDOW):
        hashes = hashes * np.uint64(BASE) + stream[starts + offset]
    seen: dict[int, int] = {}
    named: list[str] = []
    for value in hashes.tolist():
        seen[value] = seen.get(value, 0) + 1
        named.append(f"{value:x}:{seen[value]}")
    return tuple(named)
