"""Table 1 of Pillai et al., OSDI 2014 (ALICE): which properties of a file system fail, row by row.

A model has a state that violates the property where the table has a cross. Its columns ext4-ordered, ext4-writeback,
xfs and btrfs are `ext4-strict` (kernels of that time), `ext4-writeback`, `xfs` and `btrfs`. OTHERWISE lists where a
model differs from its column, and why.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from crashcheck.analyzer.persistence import Options
from support.folders import Recorded
from support.tracing import CallsBuilder

B = 4096
OLD, NEW = b"o" * B, b"n" * B
COLUMNS = ("ext4-strict", "ext4-writeback", "xfs", "btrfs")
ORDERED, WRITEBACK, XFS, BTRFS = COLUMNS
Folder = dict[str, bytes | None]


@dataclass(frozen=True)
class Row:
    """A property: a program, and whether a state violates it."""

    name: str
    first: Folder
    program: Callable[[CallsBuilder], object]
    violated: Callable[[Folder], bool]
    fails: tuple[str, ...]
    tear: int = 0


def steps(*some: Callable[[CallsBuilder], object]) -> Callable[[CallsBuilder], object]:
    return lambda t: [step(t) for step in some]


def of(folder: Folder, path: str) -> bytes:
    return folder.get(path) or b""


append = lambda t: t.append("f", B, NEW)  # noqa: E731
append_two = lambda t: t.append("f", B, NEW + NEW)  # noqa: E731
inside = lambda t: t.append("f", 100, b"n" * 100)  # noqa: E731
overwrite = lambda t: t.write("f", 0, NEW)  # noqa: E731
move = lambda t: t.move("a", "b")  # noqa: E731
other = lambda t: t.move("c", "d")  # noqa: E731
replaced = lambda t: (t.open("tmp"), t.write("tmp", 0, NEW), t.move("tmp", "f"))  # noqa: E731
emptied = lambda t: (t.truncate("f", 0), t.write("f", 0, NEW))  # noqa: E731

ROWS = [
    Row(
        "single sector append",
        {"f": OLD[:100]},
        inside,
        lambda s: of(s, "f")[100:] not in (b"", b"n" * 100),
        (WRITEBACK,),
    ),
    Row(
        "single block overwrite",
        {"f": OLD},
        overwrite,
        lambda s: s["f"] not in (OLD, NEW),
        (ORDERED, WRITEBACK, XFS),
        512,
    ),
    Row("single block append", {"f": OLD}, append, lambda s: of(s, "f")[B:] not in (b"", NEW), (WRITEBACK,)),
    Row("multi-block append", {"f": OLD}, append_two, lambda s: of(s, "f")[B:] not in (b"", NEW + NEW), COLUMNS),
    Row(
        "multi-block prefix append",
        {"f": OLD},
        append_two,
        lambda s: not (OLD + NEW + NEW).startswith(of(s, "f")),
        (WRITEBACK,),
    ),
    Row("directory op", {"a": OLD}, move, lambda s: len(s) != 1, ()),
    Row(
        "overwrite -> any op",
        {"f": OLD, "a": b""},
        steps(overwrite, move),
        lambda s: "b" in s and s["f"] == OLD,
        (ORDERED, WRITEBACK, XFS),
    ),
    Row(
        "[append, rename] -> any op",
        {"f": OLD, "a": b""},
        steps(replaced, move),
        lambda s: "b" in s and s["f"] != NEW,
        (WRITEBACK,),
    ),
    Row(
        "O_TRUNC append -> any op",
        {"f": OLD, "a": b""},
        steps(emptied, move),
        lambda s: "b" in s and s["f"] != NEW,
        (WRITEBACK,),
    ),
    Row(
        "append -> append (same file)",
        {"f": OLD},
        steps(append, lambda t: t.append("f", 2 * B, b"m" * B)),
        lambda s: of(s, "f")[2 * B :] == b"m" * B and of(s, "f")[B : 2 * B] != NEW,
        (WRITEBACK,),
    ),
    Row(
        "append -> any op",
        {"f": OLD, "a": b""},
        steps(append, move),
        lambda s: "b" in s and s["f"] == OLD,
        (ORDERED, WRITEBACK, XFS),
    ),
    Row(
        "dir op -> any op",
        {"a": OLD, "e": None},
        steps(move, lambda t: t.open("e/new"), lambda t: t.fsync("e/new")),
        lambda s: "e/new" in s and "b" not in s,
        (BTRFS,),
    ),
]
# A real ext4 of today was seen to fail (docs/file-systems.md), or Linux documents that it may.
OTHERWISE = {
    ("single sector append", ORDERED): "seen: an append inside the last block reads as zeros",
    ("multi-block prefix append", ORDERED): "seen: a hole below the size",
    ("append -> append (same file)", ORDERED): "seen: the same hole",
    ("O_TRUNC append -> any op", ORDERED): "closing a file starts its write-back and does not wait",
    ("O_TRUNC append -> any op", XFS): "the same: filemap_flush in xfs_release",
    ("O_TRUNC append -> any op", BTRFS): "the same since Linux 3.17",
    ("[append, rename] -> any op", BTRFS): "the same since Linux 3.17",
    ("overwrite -> any op", BTRFS): "noflushoncommit, the default",
    ("append -> any op", BTRFS): "noflushoncommit, the default",
}


@pytest.mark.parametrize("model", COLUMNS)
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_property_fails_in_a_model_where_the_table_has_a_cross(row: Row, model: str, tmp_path: Path) -> None:
    run = Recorded(tmp_path, row.program, row.first, model, Options(tear=row.tear))
    fails = any(row.violated(folder) for folder in run.folders())
    assert fails is (model in row.fails or (row.name, model) in OTHERWISE)


def test_a_column_differs_from_the_table_only_by_states_that_it_lacks() -> None:
    crossed = {(row.name, model) for row in ROWS for model in row.fails}
    assert not crossed & set(OTHERWISE)
