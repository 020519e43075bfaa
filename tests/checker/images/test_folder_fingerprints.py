"""Fingerprints of folders: equal exactly where the folders are."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.folders import Recorded
from support.tracing import CallsBuilder

OLD, NEW = b"old, old", b"new, new"


@pytest.mark.parametrize("skipped", [0, (1 << 16) - 1])
def test_they_tell_files_apart_however_many_there_are(skipped: int, tmp_path: Path) -> None:
    """The two files written have ids that agree in their lowest bits."""

    def program(t: CallsBuilder) -> None:
        t.write("f", 0, OLD)
        t._inodes += skipped
        t.open("g")
        t.write("g", 0, OLD)
        t.write("f", 0, NEW)

    run = Recorded(tmp_path, program, {"f": OLD}, "posix")
    found: dict[bytes, set[str]] = {}
    for state in run.states:
        found.setdefault(run.content.fingerprint(state), set()).add(repr(sorted(run.folder(state).items())))
    assert all(len(folders) == 1 for folders in found.values())
    assert len(found) == len({folder for folders in found.values() for folder in folders})
