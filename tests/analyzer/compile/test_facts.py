"""Program facts survive the linker, and damage to them is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.compile.facts import ProgramFacts, Site, TypeStep, UnhookedConstruct, UnitFacts, decode, encode
from crashcheck.analyzer.compile.ir.debuginfo import SourcePosition
from crashcheck.errors import CrashcheckError

AT = SourcePosition("/p/a.c", 3, 5, "f")
UNIT = UnitFacts(
    source="/p/a.c",
    directory="/p",
    compiler="clang version 14",
    binding="llvmlite 0.50",
    sites=(
        Site("store", (AT, SourcePosition("/p/a.c", 9, 1, "main")), "entry.valid", (TypeStep("entry", "valid", 8, 4),)),
        Site("call", (AT,), callee="g"),
    ),
    functions={"f": "00ff"},
    not_understood=(UnhookedConstruct(AT, "fxsave $0"),),
    notes=("-flto is ignored",),
    command=("clang", '-DNAME="a b"', "-x", "c"),
)


def test_a_unit_reads_back_equal() -> None:
    key, blob = encode(UNIT)
    (found,) = decode(blob, "x")
    assert found.key == key
    assert (found.sites, found.not_understood, found.notes) == (UNIT.sites, UNIT.not_understood, UNIT.notes)
    assert found.command == UNIT.command
    assert found.sites[0].line == 3
    assert len(blob) % 8 == 0


@given(st.lists(st.tuples(st.text(), st.integers(0, 1 << 31)), max_size=5), st.lists(st.integers(0, 64), max_size=5))
def test_units_concatenate_with_any_padding(names: list[tuple[str, int]], padding: list[int]) -> None:
    units = [
        UnitFacts(name, "/", "c", "b", (Site("call", (SourcePosition(name, line, 0, name),)),)) for name, line in names
    ]
    gaps = padding + [0] * len(units)
    section = b"".join(encode(unit)[1] + bytes(gap) for unit, gap in zip(units, gaps, strict=False))
    assert [unit.source for unit in decode(section, "x")] == [unit.source for unit in units]


@pytest.mark.parametrize(
    ("damage", "slug"),
    [
        (lambda blob: blob[:40], "facts-corrupt"),
        (lambda blob: b"X" + blob[1:], "facts-corrupt"),
        (lambda blob: blob[:50] + bytes([blob[50] ^ 1]) + blob[51:], "facts-corrupt"),
        (lambda blob: blob[:24] + bytes([blob[24] ^ 1]) + blob[25:], "facts-corrupt"),
        (lambda blob: blob[:8] + b"\x63" + blob[9:], "facts-version"),
    ],
)
def test_damage_is_an_error_that_names_the_binary(damage: object, slug: str) -> None:
    blob = damage(encode(UNIT)[1])  # type: ignore[operator]
    with pytest.raises(CrashcheckError) as caught:
        decode(blob, "/p/prog")
    assert caught.value.slug == slug
    assert "/p/prog" in caught.value.message


def test_modules_without_facts_are_data(tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("no ELF")
    facts = ProgramFacts.load(["/bin/sh", text, tmp_path / "gone", "/bin/sh"])
    assert facts.without_facts == ("/bin/sh",)
    assert facts.unit(1) is None
