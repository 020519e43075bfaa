"""Parsers of what compilers, other tools and earlier runs leave take any input, as those in test_parsers do."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.compile.driver import arguments
from crashcheck.analyzer.compile.facts import read_sections
from crashcheck.analyzer.compile.instrument.unit import UnitOptions, canonical_text, instrument_text
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo
from crashcheck.analyzer.compile.learned_sets import FORMAT
from crashcheck.analyzer.concurrency.anticipating import AnticipatingInvariants
from crashcheck.checker.fixes import proposals
from crashcheck.checker.store import Store
from crashcheck.errors import CrashcheckError
from crashcheck.runtime.build import build_runtime
from crashcheck.stages.run_summary import _needed
from support.compilers import plain_clang
from support.fuzzing import fuzzed, must_take
from support.parsers.written import SOURCE


@pytest.fixture(scope="module")
def library() -> Path:
    return build_runtime().shared


def _meaningful(at: tuple[str, int], image: bytes) -> int:
    """An offset in the ELF header, in the table of sections, or anywhere."""
    table = int.from_bytes(image[0x28:0x30], "little")
    return {"header": at[1] % 64, "sections": table + at[1] % (len(image) - table), "": at[1] % len(image)}[at[0]]


@fuzzed
@given(
    st.lists(
        st.tuples(
            st.tuples(st.sampled_from(["header", "sections", ""]), st.integers(0, 1 << 24)),
            st.one_of(st.binary(min_size=1, max_size=8), st.sampled_from([b"\xff" * 8, b"\0" * 8, b"\0\0\0\x7f"])),
        ),
        max_size=6,
    ),
    st.one_of(st.none(), st.integers(0, 1 << 18)),
)
def test_programs(
    tmp_path_factory: pytest.TempPathFactory,
    library: Path,
    edits: list[tuple[tuple[str, int], bytes]],
    cut: int | None,
) -> None:
    path, whole = tmp_path_factory.mktemp("elf") / "library.so", library.read_bytes()
    image = bytearray(whole)
    for at, new in edits:
        low = _meaningful(at, whole)
        image[low : low + len(new)] = new[: len(image) - low]
    path.write_bytes(image[:cut])
    read_sections(str(path))
    list(_needed(str(path)))


@pytest.fixture(scope="module")
def unit(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A unit as clang describes it, in LLVM's text."""
    folder = tmp_path_factory.mktemp("unit")
    (folder / "unit.c").write_bytes(SOURCE)
    flags = ["-g", "-O1", "-Xclang", "-disable-llvm-passes", "-c", "-emit-llvm", "-Wno-everything"]
    command = [*plain_clang(), *flags, str(folder / "unit.c"), "-o", str(folder / "unit.bc")]
    subprocess.run(command, check=True)
    return canonical_text((folder / "unit.bc").read_bytes(), UnitOptions("unit.c", "/", "clang"))


@fuzzed
@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 16),
            st.sampled_from(["!", "scope: !", "baseType: !", "elements: !", "size: ", "offset: ", "line: "]),
            st.one_of(st.integers(0, 150), st.sampled_from([2**32 - 1, 2**64 - 1])),
        ),
        max_size=8,
    )
)
def test_types_and_places_of_a_unit(unit: str, new: list[tuple[int, str, int]]) -> None:
    """References between nodes of debug information may lead anywhere, in circles too."""
    lines = unit.split("\n")
    first = next(at for at, line in enumerate(lines) if line.startswith("!0 = "))
    for at, key, number in new:
        row = first + at % (len(lines) - first)
        name, equals, node = lines[row].partition(" = ")
        lines[row] = name + equals + re.sub(rf"{key}\d+", f"{key}{number}", node, count=1)
    must_take(lambda text: instrument_text(text, UnitOptions("unit.c", "/", "clang")), "\n".join(lines))


DAMAGED = {
    "define void @f(": "define void @f(",
    "define void @f() {\nentry:\n  ret void": "define void @f() {",  # it never ends
    "define void @f() {\n  store\n}": "  store",
    "define void @f() {\n  %\n}": "  %",
    "define void @f() {\n  br label %a\n}": "the unit as a whole",
}


@pytest.mark.parametrize("text", DAMAGED)
def test_a_damaged_unit_is_refused_by_the_name_of_its_source_and_by_its_line(text: str) -> None:
    with pytest.raises(CrashcheckError) as caught:
        instrument_text(text, UnitOptions("/unit.c", "/", "clang"))
    assert caught.value.slug == "ir-construct"
    assert caught.value.message.startswith(
        f"/unit.c: cannot instrument this construct: {DAMAGED[text].strip()} (clang, "
    )


@pytest.mark.parametrize("tag", ["typedef", "array_type"])
def test_types_and_scopes_that_lead_in_a_circle_end(tag: str) -> None:
    derived = f'!DIDerivedType(tag: DW_TAG_{tag}, name: "a"'
    debug = DebugInfo(f"!0 = {derived}, scope: !1, baseType: !1)\n!1 = {derived}, scope: !0, baseType: !0)")
    assert debug.strip(0) is None
    assert debug.is_array(0) == (tag == "array_type")
    namespaces = DebugInfo('!0 = !DINamespace(name: "a", scope: !1)\n!1 = !DINamespace(name: "b", scope: !0)')
    assert namespaces.qualified(0) == "a::b::a"


def test_a_response_file_that_names_itself_or_never_ends_a_quotation_stays(tmp_path: Path) -> None:
    (tmp_path / "own").write_text("-O2 @own @own")
    (tmp_path / "open").write_text("-DX='a")
    assert arguments.expand(["@own", "@open", "@none"], str(tmp_path)) == ["-O2", "@own", "@own", "@open", "@none"]


def test_files_of_earlier_runs_that_are_nested_too_deep_are_damaged(tmp_path: Path) -> None:
    deep = "[" * 200_000
    with pytest.raises(CrashcheckError, match="damaged"):
        AnticipatingInvariants.decode(f'{{"format": "{FORMAT}", "sites": {deep}', "learned.json")
    run = Store(tmp_path).folder / "run"
    run.mkdir(parents=True)
    for file in ("fixes.json", "run.json"):
        (run / file).write_text(deep)
    assert proposals.newest(tmp_path / "crashcheck.toml") is None
    with pytest.raises(CrashcheckError, match="No recording"):
        Store(tmp_path).find("00")
