"""Inputs for parsers: whole documents with a few changes, which get deeper than random bytes.

`CRASHCHECK_FUZZ_EXAMPLES=100000` tries that many for each parser, with another seed each time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from crashcheck.errors import CrashcheckError

_WANTED = os.environ.get("CRASHCHECK_FUZZ_EXAMPLES", "")
fuzzed = settings(
    max_examples=int(_WANTED or 60),
    derandomize=not _WANTED,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)

Edits = list[tuple[float, int, bytes]]
_WORDS = [
    b"",
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"\xed\xb2\x80",
    b"\n",
    b"\\",
    b"%",
    b"'",
    b'"',
    b"{",
    b"[",
    b"]",
    b"(",
    b")",
]
_LONG = [b"[[" * 3000, b"[" * 100000, b"(" * 5000, b"{" * 5000, b"/*", b"//", b"@", b" ", b"#"]
_NUMBERS = [b"-1", b"0", b"9" * 40, b"9" * 5000, b"0x" + b"f" * 5000, b"1e400", b"nan", b"null", b"\\u0000"]
_HUNK = [b"@@ -1 +1,99999999 @@\n", b"+"]
changes = st.lists(
    st.tuples(
        st.floats(0, 1),
        st.integers(0, 12),
        st.one_of(st.sampled_from([*_WORDS, *_LONG, *_NUMBERS, *_HUNK]), st.binary(max_size=8)),
    ),
    max_size=5,
)


def changed(document: bytes, edits: Edits) -> bytes:
    """The document with some bytes replaced: where (as a share of its length), how many, by what."""
    for share, gone, new in edits:
        at = int(share * len(document))
        document = document[:at] + new + document[at + gone :]
    return document


class WholeFile:
    """A file to be damaged, and what it holds, which Hypothesis does not show."""

    def __init__(self, path: Path) -> None:
        self.path, self.content = path, path.read_bytes()

    def __repr__(self) -> str:
        return f"WholeFile({self.path})"


def must_take(parse: Callable[[Any], object], value: Any) -> None:
    """It returns, or raises an error for users."""
    with contextlib.suppress(CrashcheckError):
        parse(value)
