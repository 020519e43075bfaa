"""Golden files: each report as a reader last accepted it.

`UPDATE_GOLDEN=1 pytest tests/reports` writes them again; read the difference before committing.
"""

from __future__ import annotations

import os

from support.paths import TESTS

FOLDER = TESTS / "reports" / "golden"


def check(name: str, text: str) -> None:
    """`text` is the golden file's, byte for byte."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_bytes(text.encode("utf-8"))
    assert text.encode("utf-8") == path.read_bytes()
