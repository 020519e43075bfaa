"""Which folder's sync a new name waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from crashcheck.analyzer.persistence import NEVER, Options, build
from crashcheck.analyzer.persistence.sync_intervals import folder_hash
from crashcheck.errors import CrashcheckError
from support.tracing import TraceBuilder


@pytest.mark.parametrize(
    ("file", "folder", "durable"),
    [
        ("log/a", "log", True),
        ("log/a", "", False),
        ("log/a", "data", False),
        ("a", "", True),
        ("log/a", None, True),
    ],
)
def test_a_name_waits_for_the_sync_of_its_own_folder(
    tmp_path: Path, file: str, folder: str | None, durable: bool
) -> None:
    t = TraceBuilder(tmp_path / "t")
    t.create(file)
    t.fsync(file)
    t.dirsync(folder)
    graph = build(t.trace(), "page-cache", Options(files="posix"))
    assert (int(graph.durable_from[0]) < NEVER) is durable


def test_a_folder_is_named_by_fnv_1a() -> None:
    assert folder_hash("") == 0xCBF29CE484222325
    assert folder_hash("foobar") == 0x85944171F73967E8


def test_an_unknown_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CrashcheckError, match="expected one of btrfs, eadr, ext4, ext4-strict, ext4-w") as caught:
        build(TraceBuilder(tmp_path / "t").trace(), "arm")
    assert caught.value.slug == "unknown-model"
