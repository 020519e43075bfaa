"""Layouts of structs in program facts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from crashcheck.analyzer.compile.facts import FieldLayout, ProgramFacts, TypeLayout

SOURCE = """
struct far { long x; struct far *next; };
struct entry { long key; union { int small; long large; } as; };
struct bucket { char valid[6]; struct entry entry[3]; struct far *far; unsigned low : 3, high : 5; };
struct unused { int a; };
int main(void)
{
    struct bucket *b = (struct bucket *)pool;
    OPAQUE(b);
    b->entry[1].key = 3;
    return (int)sizeof(struct unused) - 4;
}
"""


def test_types_that_sites_name_and_their_parts_are_laid_out(build: Callable[..., Path], clang: str) -> None:
    program = build(SOURCE, "-O1", "-g", clang=clang)
    (unit,) = ProgramFacts.load([program]).units.values()
    assert unit.layouts == (
        TypeLayout(
            "bucket",
            72,
            (
                FieldLayout("valid", 0, 6, "", 6),
                FieldLayout("entry", 8, 48, "entry", 3),
                FieldLayout("far", 56, 8, "", 0),
                FieldLayout("low", 64, 1, "", 0),
                FieldLayout("high", 64, 1, "", 0),
            ),
        ),
        TypeLayout("entry", 16, (FieldLayout("key", 0, 8, "", 0), FieldLayout("as", 8, 8, "entry.as", 0))),
        TypeLayout("entry.as", 8, (FieldLayout("small", 0, 4, "", 0), FieldLayout("large", 0, 8, "", 0))),
        TypeLayout("far", 16, (FieldLayout("x", 0, 8, "", 0), FieldLayout("next", 8, 8, "", 0))),
    )
