"""Lines of machine code that another compiler than ours described by DWARF: functions, and those that were inlined."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crashcheck.analyzer.trace import native_lines
from crashcheck.analyzer.trace.native_lines import NativeLines
from support import compilers

SOURCE = """\
#include "inner.h"

int volatile seen;

static void __attribute__((noinline)) save(int value)
{
    store(value);
    seen = 1;
}

int main(void)
{
    save(seen);
    return 0;
}
"""
HEADER = """\
extern int volatile seen;
static inline __attribute__((always_inline)) void store(int value)
{
    seen = value;
}
"""

# A unit whose base is `main`; `early` is below it, at an offset that wraps around, as Go's linker writes it.
WRAPPING = """\
    .file 0 "{folder}" "save.c"
    .text
    .p2align 4
early:
    .loc 0 5 1
    nop
    .p2align 4
    .size early, . - early
    .globl main
main:
    .loc 0 9 1
    xorl %eax, %eax
    ret
    .size main, . - main
after:
    .section .debug_abbrev, "", @progbits
    .uleb128 1, 0x11                        # a unit without children
    .byte 0
    .uleb128 0x03, 0x08, 0x1b, 0x08         # name, folder: strings
    .uleb128 0x11, 0x01, 0x55, 0x17         # low_pc: an address; ranges: an offset
    .uleb128 0x10, 0x17, 0, 0, 0            # lines: an offset
    .section .debug_info, "", @progbits
    .long 2f - 1f
1:  .short 5
    .byte 1, 8
    .long .debug_abbrev
    .uleb128 1
    .asciz "save.c"
    .asciz "{folder}"
    .quad main
    .long ranges, lines
2:  .section .debug_line, "", @progbits
lines:
    .section .debug_rnglists, "", @progbits
    .long 4f - 3f
3:  .short 5
    .byte 8, 0
    .long 0
ranges:
    .byte 5                                 # the base
    .quad main
    .byte 4                                 # offsets: from -16 to 0
    .byte 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0
    .byte 4
    .uleb128 0, after - main
    .byte 0
4:  .section .note.GNU-stack, "", @progbits
"""


def is_own(path: str) -> bool:
    return not path.startswith("/usr/")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "inner.h").write_text(HEADER)
    (tmp_path / "save.c").write_text(SOURCE)
    return tmp_path / "save.c"


def code_of(program: Path, function: str) -> range:
    """The offsets in the file of a function's instructions."""
    with open(program, "rb") as file:
        elf = ELFFile(file)
        (symbol,) = (each for each in elf.get_section_by_name(".symtab").iter_symbols() if each.name == function)
        address = int(symbol["st_value"])
        for segment in elf.iter_segments():
            if segment["p_type"] == "PT_LOAD" and 0 <= address - segment["p_vaddr"] < segment["p_filesz"]:
                start = address - segment["p_vaddr"] + segment["p_offset"]
                return range(start, start + int(symbol["st_size"]))
    raise AssertionError(function)


def built(source: Path, *options: str) -> Path:
    program = source.with_suffix("")
    subprocess.run(
        [*compilers.c_compiler(), "-O2", *options, source.name, "-o", program], cwd=source.parent, check=True
    )
    return program


@pytest.mark.parametrize("options", [("-gdwarf-4",), ("-gdwarf-5",), ("-gdwarf-5", "-gz"), ("-gdwarf-5", "-static")])
def test_a_place_is_the_chain_of_its_line_and_the_calls_that_were_inlined(
    options: tuple[str, ...], source: Path
) -> None:
    program = built(source, *options)
    lines = NativeLines(is_own)
    chains = {lines.chain(str(program), offset) for offset in code_of(program, "save")}
    shown = {tuple((place.function, place.file, place.line) for place in chain) for chain in chains}
    inner, outer = str(source.parent / "inner.h"), str(source)
    assert (("store", inner, 4), ("save", outer, 7)) in shown
    assert (("save", outer, 8),) in shown
    assert {chain[-1][:2] for chain in shown} == {("save", outer)}


def test_code_below_the_base_of_its_unit_has_lines(source: Path) -> None:
    assembly = source.with_suffix(".s")
    assembly.write_text(WRAPPING.format(folder=source.parent))
    program = built(assembly)
    lines = NativeLines(is_own)
    for name, line in (("early", 5), ("main", 9)):
        (place,) = lines.chain(str(program), code_of(program, name)[0])
        assert (place.file, place.line) == (str(source), line)


def test_a_program_without_debug_information_and_one_of_libraries_alone_have_no_places(source: Path) -> None:
    stripped = built(source, "-g0")
    assert NativeLines(is_own).chain(str(stripped), code_of(stripped, "main")[0]) == ()
    program = built(source, "-g")
    assert NativeLines(lambda path: False).chain(str(program), code_of(program, "main")[0]) == ()
    assert NativeLines(is_own).chain(str(program), 0) == ()
    assert NativeLines(is_own).chain(str(source), 0) == NativeLines(is_own).chain("/no/such", 0) == ()


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("_MOST_FUNCTIONS", {("", "inner.h", 4), ("", "save.c", 8)}), ("_MOST_LINES", set())],
)
def test_of_what_is_too_large_functions_are_left_out_first_and_then_lines(
    limit: str, expected: set[tuple[str, str, int]], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = built(source, "-g")
    monkeypatch.setattr(native_lines, limit, 0)
    lines = NativeLines(is_own)
    chains = [lines.chain(str(program), offset) for offset in code_of(program, "save")]
    assert all(len(chain) <= 1 for chain in chains)
    shown = {(place.function, Path(place.file).name, place.line) for chain in chains for place in chain}
    assert shown >= expected
    assert bool(shown) == bool(expected)


def test_a_damaged_file_has_other_places_or_none_but_no_error(source: Path) -> None:
    program = built(source, "-g")
    whole, chance = program.read_bytes(), random.Random(1)
    offsets = code_of(program, "save")
    for number in range(30):
        damaged = bytearray(whole)
        for _ in range(100):
            damaged[chance.randrange(64, len(damaged))] = chance.randrange(256)
        path = source.parent / f"damaged{number}"
        path.write_bytes(damaged)
        lines = NativeLines(is_own)
        for offset in offsets:
            lines.chain(str(path), offset)


GO_MAIN = """\
package main

import (
	"os"

	"example.org/deep/store"
)

func main() {
	if (&store.Writer{}).Save(os.Args[1]) != nil {
		os.Exit(1)
	}
}
"""
GO_STORE = """\
package store

import "os"

type Writer struct{ last int }

func (w *Writer) Save(path string) error {
	return os.WriteFile(path, []byte("x"), 0o644)
}
"""


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("go"), reason="there is no Go here")
@pytest.mark.parametrize("options", [(), ("-ldflags=-s -w",), ("-ldflags=-s -w", "-buildmode=pie")])
def test_a_finding_in_go_names_the_function_and_line(options: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "go.mod").write_text("module example.org/deep\n\ngo 1.18\n")
    (tmp_path / "main.go").write_text(GO_MAIN)
    (tmp_path / "store").mkdir()
    (tmp_path / "store/store.go").write_text(GO_STORE)
    subprocess.run(["go", "build", "-gcflags=-l", *options, "-o", "save"], cwd=tmp_path, check=True)
    lines = NativeLines(lambda path: path.startswith(str(tmp_path)))
    program = tmp_path / "save"
    with open(program, "rb") as file:
        text = ELFFile(file).get_section_by_name(".text")
        code = range(text["sh_offset"], text["sh_offset"] + text["sh_size"])
    chains = {lines.chain(str(program), offset) for offset in code[::4]}
    saves = {place[1:3] for chain in chains for place in chain if place[0] == "store.(*Writer).Save"}
    assert (str(tmp_path / "store/store.go"), 8) in saves
