"""Parsers of what compilers, other tools and earlier runs leave take any input, as those in test_parsers do."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crashcheck.analyzer.compile.driver import arguments
from crashcheck.analyzer.compile.facts import read_sections
from crashcheck.analyzer.compile.instrument.unit import UnitOptions, canonical_text, instrument_text
from crashcheck.analyzer.compile.ir.debuginfo import DebugInfo
from crashcheck.analyzer.concurrency.anticipating import FORMAT, VERSION, AnticipatingInvariants
from crashcheck.checker import policy
from crashcheck.checker.fixes import proposals
from crashcheck.checker.fixes.proposals import Proposals, Proposed
from crashcheck.checker.fixes.source import patch
from crashcheck.checker.fixes.source.c_source import NotEditable, Source, known_macros
from crashcheck.checker.results import Edit, Fix
from crashcheck.checker.store import Store
from crashcheck.errors import CrashcheckError
from crashcheck.reports.formats import failure
from crashcheck.reports.github.event import read_event
from crashcheck.runtime.build import build_runtime
from crashcheck.runtime.validate import read_notes
from crashcheck.stages.run_summary import _needed
from support.compilers import plain_clang
from support.fuzzing import Edits, changed, changes, fuzzed, must_take

SOURCE = b"""\
#include <string.h>
#define FLUSH(p, n) do { flush((p), \\
    (n)); } while (0)
typedef struct { int x; } unnamed;
struct part { char a[4]; unsigned b : 3, c : 5; };
struct node { struct node *next; struct part part[2]; union { long l; double d; } u; unnamed t; };
struct node pool[4]; /* crashcheck: ignore[ordering] known */
static inline void put(struct node *n, long v) { n->u.l = v; n->part[1].a[2] = 1; }
void change(struct node *n, int k)
{
    put(n, k);
    if (k > 3)
        n[k].next = &pool[k & 3]; // crashcheck: ignore[*] a reason
    else for (int i = 0; i < k; i++) { n->part[0].b = (unsigned)i; }
    switch (k) { case 1: pool[2].t.x = k; break; default: memcpy(n + 1, "a\\"b", 3); }
    __asm__ volatile("clwb %0; lock xaddl %1, %2" : "+m"(*n), "+r"(k), "+m"(pool[1].t.x) : : "memory");
}
"""
LEARNED = {
    "format": FORMAT,
    "version": VERSION,
    "runs": 2,
    "codes": {"f": "0a"},
    "sites": [
        {
            "site": "s",
            "functions": ["f"],
            "where": "a.c:1",
            "function": "f",
            "variable": "x",
            "shared": True,
            "before": [None, "s"],
        }
    ],
}
EDIT = Edit("a.c", 12, True, "    flush(n);\n    fence();")
EVENT = {
    "pull_request": {"number": 7, "head": {"sha": "a" * 40, "repo": {"full_name": "o/r"}}},
    "workflow_run": {
        "id": 5,
        "run_attempt": 1,
        "head_sha": "b" * 40,
        "head_branch": "x",
        "head_repository": {"full_name": "o/r", "owner": {"login": "o"}},
        "pull_requests": [{"number": 3}],
    },
}


@fuzzed
@given(changes, changes, st.integers(0, 3))
def test_arguments_of_the_compiler(
    tmp_path_factory: pytest.TempPathFactory, edits: Edits, in_file: Edits, nested: int
) -> None:
    folder = tmp_path_factory.mktemp("arguments")
    line = b"-O2 -g -x c++ -MD -MF d -o out -Wl,-z,now -fsanitize=address -DX='a b' in.c -std=c11 -c -- - @rest"
    (folder / "rest").write_bytes(changed(b'-Iinclude "a b.c" -DY=\\"x\\" ' + b"@rest " * nested, in_file))
    words = changed(line, edits).decode("utf-8", "surrogateescape").replace("\0", "").split()
    must_take(lambda words: arguments.parse(arguments.expand(words, str(folder))), words)


@fuzzed
@given(changes, st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=4))
def test_sources(edits: Edits, places: list[tuple[int, int]]) -> None:
    text = changed(SOURCE, edits).decode("utf-8", "replace")
    policy.in_comments("a.c", text.split("\n"))
    source = Source(text)
    known_macros([source])
    for line, column in places:
        with contextlib.suppress(NotEditable):
            statement = source.statement(line, column)
            source.loop_around(statement)
            source.in_loop(statement)
        with contextlib.suppress(NotEditable):
            source.call(line, column)


@fuzzed
@given(changes, st.lists(st.tuples(st.integers(-1, 30), st.booleans(), st.text(max_size=9), st.text(max_size=3))))
def test_edits_of_sources(edits: Edits, wanted: list[tuple[int, bool, str, str]]) -> None:
    text = changed(SOURCE, edits).decode("utf-8", "replace")

    def every(_: object) -> None:
        patch.diff(patch.applied([EDIT, *(Edit("a.c", *one) for one in wanted)], lambda file: text))

    must_take(every, None)


@fuzzed
@given(changes)
def test_files_of_earlier_runs(tmp_path_factory: pytest.TempPathFactory, edits: Edits) -> None:
    folder = tmp_path_factory.mktemp("earlier")
    learned = changed(json.dumps(LEARNED).encode(), edits).decode("utf-8", "replace")
    must_take(partial(AnticipatingInvariants.decode, origin="learned.json"), learned)
    must_take(
        failure.load, changed(failure.render(failure.Failure("a.toml")).encode(), edits).decode("utf-8", "replace")
    )
    run = Store(folder).folder / "run"
    run.mkdir(parents=True)
    fix = Fix("flush", "flush it", (EDIT,), 3, 0, "tried")
    proposals.save(Proposals((Proposed("a1", "ordering", "message", fix),), {"a.c": "00"}), run)
    for file, text in ((run / "fixes.json", b""), (run / "run.json", b'{"00aa": "recording"}')):
        file.write_bytes(changed(text or file.read_bytes(), edits))
    proposals.newest(folder / "crashcheck.toml")
    must_take(Store(folder).find, "00aa")
    (folder / "trace.notes").write_bytes(changed(b"pattern\ta.log\nprivate\tb.db\n", edits))
    read_notes(folder / "trace")


@fuzzed
@given(changes, st.sampled_from(["7", "", "x", "9" * 5000, "²"]))
def test_events_of_workflows(tmp_path_factory: pytest.TempPathFactory, edits: Edits, attempt: str) -> None:
    path = tmp_path_factory.mktemp("event") / "event.json"
    for event in (EVENT, {"workflow_run": EVENT["workflow_run"]}):
        path.write_bytes(changed(json.dumps(event).encode(), edits))
        environment = {
            "GITHUB_REPOSITORY": "o/r",
            "GITHUB_SHA": "c" * 40,
            "GITHUB_EVENT_PATH": str(path),
            "GITHUB_RUN_ID": "5",
            "GITHUB_RUN_ATTEMPT": attempt,
        }
        must_take(read_event, environment)


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


@fuzzed
@given(changes)
def test_text_of_a_unit(unit: str, edits: Edits) -> None:
    text = changed(unit.encode(), edits).decode("utf-8", "surrogateescape")
    must_take(lambda text: instrument_text(text, UnitOptions("unit.c", "/", "clang")), text)


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
        AnticipatingInvariants.decode(deep, "learned.json")
    run = Store(tmp_path).folder / "run"
    run.mkdir(parents=True)
    for file in ("fixes.json", "run.json"):
        (run / file).write_text(deep)
    assert proposals.newest(tmp_path / "crashcheck.toml") is None
    with pytest.raises(CrashcheckError, match="No recording"):
        Store(tmp_path).find("00")
